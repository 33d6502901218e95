package topup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Rules of automatic charges.
const (
	maxPerDay  = 3 // in any 24 hours; another one is a runaway
	orgsAtOnce = 100
	unknownFor = 10 * time.Minute // a charge whose outcome is unknown keeps its key so long: the provider is through with it by then
	claimFor   = time.Minute
)

// Recharge begins an automatic top-up for every organization whose balance is below what it said.
func (s *Service) Recharge(ctx context.Context) error {
	var orgs []ids.ID
	err := s.system(ctx, func(_ pgx.Tx, r *q.Queries) (err error) {
		orgs, err = r.OrgsToRecharge(ctx, orgsAtOnce)
		return err
	})
	if err != nil {
		return fmt.Errorf("topup: who runs low: %w", err)
	}
	var errs []error
	for _, org := range orgs {
		errs = append(errs, s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.recharge(ctx, tx, org) }))
	}
	return errors.Join(errs...)
}

// need is what a decision to charge stands on, read under the lock of the organization's row.
type need struct {
	auto    q.AutoRecharge
	balance q.BalanceBudgetRow
	pending money.Nano // on its way already
}

func (s *Service) need(ctx context.Context, r *q.Queries, org ids.ID) (n need, err error) {
	if n.auto, err = r.LockAutoRecharge(ctx, org); err != nil {
		return n, found(err, "auto-recharge")
	}
	if n.balance, err = r.BalanceBudget(ctx, org); err != nil && !errors.Is(err, pgx.ErrNoRows) { // none: never had credit
		return n, fmt.Errorf("topup: balance: %w", err)
	}
	cents, err := r.PendingTopupCents(ctx, org)
	n.pending = nano(cents)
	return n, err
}

func (n need) on() bool { return n.auto.Enabled && n.auto.Paused == "" }

// low compares what the customer sees as the balance; gap counts what gateways hold as his too, for most of it comes back.
func (n need) low() bool {
	return n.balance.CapNano-n.balance.SettledNano-n.balance.OutstandingNano+int64(n.pending) < n.auto.BelowNano
}

// gap is the whole of what is missing, in cents: charging less would charge again at once.
func (n need) gap() int64 {
	missing := money.Nano(n.auto.ToNano-n.balance.CapNano+n.balance.SettledNano) - n.pending
	cents := int64((missing + NanoPerCent - 1) / NanoPerCent)
	return min(max(cents, MinCents), MaxCents)
}

func (s *Service) recharge(ctx context.Context, tx pgx.Tx, org ids.ID) error {
	r := q.New(tx)
	n, err := s.need(ctx, r, org)
	if err != nil || !n.on() || !n.low() {
		return err
	}
	if c, err := r.PaymentCustomer(ctx, org); err != nil || c.MethodID == nil {
		if err = found(err, "card"); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		return s.pause(ctx, tx, org, PauseNoCard)
	}
	recent, err := r.AutoTopupsSince(ctx, q.AutoTopupsSinceParams{OrgID: org, Since: s.now().Add(-24 * time.Hour)})
	if err != nil {
		return fmt.Errorf("topup: recent charges: %w", err)
	}
	if recent >= maxPerDay {
		if err := s.alarm(ctx, tx, "Runaway auto-recharge stopped", fmt.Sprintf("%s was charged %d times within 24 hours; auto-recharge is paused.", ids.Format(ids.Org, org), recent)); err != nil {
			return err
		}
		return s.pause(ctx, tx, org, PauseRunaway)
	}
	month, err := s.month(ctx, r, org)
	if err != nil {
		return err
	}
	used, err := r.AutoTopupCentsSince(ctx, q.AutoTopupCentsSinceParams{OrgID: org, Since: month.Start})
	if err != nil {
		return fmt.Errorf("topup: charges of the month: %w", err)
	}
	cents := min(n.gap(), n.auto.MonthlyMaxNano/int64(NanoPerCent)-used)
	if cents < MinCents {
		return s.monthFull(ctx, tx, n.auto, month.Start, month.End)
	}
	now := s.now()
	_, err = r.InsertTopup(ctx, q.InsertTopupParams{OrgID: org, ID: ids.New(), Kind: string(Auto), Cents: cents, CreatedBy: tenants.System().Name(), Now: now, NextAt: &now})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // one is open
	}
	return err
}

// monthFull tells once a month that the maximum is used up.
func (s *Service) monthFull(ctx context.Context, tx pgx.Tx, a q.AutoRecharge, begin, end time.Time) error {
	if a.MonthFullAt != nil && !a.MonthFullAt.Before(begin) {
		return nil
	}
	if err := q.New(tx).NoteMonthFull(ctx, q.NoteMonthFullParams{OrgID: a.OrgID, Now: s.now()}); err != nil {
		return fmt.Errorf("topup: note a full month: %w", err)
	}
	return s.mail(ctx, tx, a.OrgID, "Auto-recharge has reached its monthly maximum",
		fmt.Sprintf("Auto-recharge has used up the $%s that you allow a month. Your balance is not topped up again before %s.", money.Nano(a.MonthlyMaxNano), end.Format("2 January 2006 15:04 MST")))
}

// charge charges the kept card for an automatic top-up that is due, once what happened so far is known.
func (s *Service) charge(ctx context.Context, t q.Topup) error {
	seen, err := s.look(ctx, t)
	if err != nil {
		return err
	}
	if State(seen.row.State) != State(t.State) || seen.row.Attempt != t.Attempt {
		return s.finish(ctx, t, seen)
	}
	customer, wanted, err := s.wanted(ctx, t)
	if err != nil {
		return err
	}
	if !wanted {
		t2 := t
		t2.State, t2.NextAt = string(Expired), nil
		return s.finish(ctx, t, outlook{row: t2})
	}
	p, err := s.c.Gateway.Charge(ctx, Charge{Key: fmt.Sprintf("%s:%d", ledgerKey(t, "charge"), t.Attempt), Customer: customer.CustomerID, Method: text(customer.MethodID),
		Topup: t.ID, Attempt: int(t.Attempt), Cents: t.Cents})
	switch {
	case refusedForGood(err):
		refused := t
		pause := decline(&refused, Decline{Code: "refused", Final: true}, s.now())
		slog.WarnContext(ctx, "topup: a charge was refused for what it is; auto-recharge is paused", "topup", ids.Format(ids.Topup, t.ID), "cause", err)
		return s.finish(ctx, t, outlook{row: refused, pause: pause})
	case fault.Is(err, fault.Limited), err != nil && s.now().Sub(t.UpdatedAt) > unknownFor:
		// The provider answers the same key with the same refusal for a day. Nothing was found under this attempt.
		again := t
		again.Attempt++
		at := s.now().Add(claimFor)
		again.NextAt = &at
		return errors.Join(err, s.finish(ctx, t, outlook{row: again}))
	case err != nil:
		return err // the outcome is unknown: the same key again after a look
	}
	next, err := decide(t, customer.CustomerID, sight{payment: &p}, s.now())
	if err != nil {
		return err
	}
	return s.finish(ctx, t, next)
}

// refusedForGood reports that the payment provider refused a charge for what it is: without a card of this customer that it
// knows, another try is refused too.
func refusedForGood(err error) bool {
	if err == nil {
		return false
	}
	f := fault.Of(err)
	return f.Kind == fault.NotFound || f.Code == CodeRefused
}

// wanted reports whether the balance is still low and the customer still allows it.
func (s *Service) wanted(ctx context.Context, t q.Topup) (c q.PaymentCustomer, ok bool, err error) {
	err = s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		n, err := s.need(ctx, r, t.OrgID)
		if err != nil {
			return err
		}
		if c, err = r.PaymentCustomer(ctx, t.OrgID); err != nil {
			return found(err, "customer at the payment provider")
		}
		n.pending -= nano(t.Cents) // this one
		ok = n.on() && n.low() && c.MethodID != nil
		return nil
	})
	return c, ok, err
}

// finish writes an outlook; when somebody else was faster it leaves the rest to the next turn.
func (s *Service) finish(ctx context.Context, before q.Topup, next outlook) error {
	err := s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.apply(ctx, tx, before, next) })
	if errors.Is(err, errMoved) {
		return nil
	}
	if err == nil {
		s.tell(ctx, before, next)
	}
	return err
}
