package topup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/period"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Rules of automatic charges.
const (
	maxPerDay     = 3 // in any 24 hours; another one is a runaway
	orgsAtOnce    = 100
	rechargeLimit = time.Minute // of a turn's time: charges that are due want theirs
	claimFor      = time.Minute
)

// Recharge begins an automatic top-up for every organization whose balance is below what it said. Where its time ends, the
// next call goes on.
func (s *Service) Recharge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rechargeLimit)
	defer cancel()
	s.recharging.Lock()
	defer s.recharging.Unlock()
	var errs []error
	for {
		var orgs []ids.ID
		err := s.system(ctx, func(_ pgx.Tx, r *q.Queries) (err error) {
			orgs, err = r.OrgsToRecharge(ctx, q.OrgsToRechargeParams{After: s.recharged, MaxRows: orgsAtOnce})
			return err
		})
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("topup: who runs low: %w", err))...)
		}
		for _, org := range orgs {
			if ctx.Err() != nil {
				return errors.Join(append(errs, ctx.Err())...)
			}
			errs = append(errs, s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.recharge(ctx, tx, org) }))
			s.recharged = org
		}
		if len(orgs) < orgsAtOnce {
			s.recharged = ids.Nil
			return errors.Join(errs...)
		}
	}
}

// need is what a decision to charge stands on, read under the lock of the organization's row.
type need struct {
	auto      q.AutoRecharge
	suspended bool
	balance   q.BalanceBudgetRow
	pending   money.Nano  // on its way already
	month     period.Span // that is running
	used      int64       // cents that automatic top-ups took in it, with what is on its way
}

func (s *Service) need(ctx context.Context, r *q.Queries, org ids.ID) (n need, err error) {
	if n.auto, err = r.LockAutoRecharge(ctx, org); err != nil {
		return n, found(err, "auto-recharge")
	}
	if n.balance, err = r.BalanceBudget(ctx, org); err != nil && !errors.Is(err, pgx.ErrNoRows) { // none: never had credit
		return n, fmt.Errorf("topup: balance: %w", err)
	}
	cents, err := r.PendingTopupCents(ctx, org)
	if err != nil {
		return n, fmt.Errorf("topup: money on its way: %w", err)
	}
	n.pending = nano(cents)
	row, err := r.GetOrg(ctx, org)
	if err != nil {
		return n, found(err, "organization")
	}
	n.suspended = row.SuspendedAt != nil
	if n.month, err = s.month(ctx, r, org); err != nil {
		return n, err
	}
	if n.used, err = r.AutoTopupCentsSince(ctx, q.AutoTopupCentsSinceParams{OrgID: org, Since: n.month.Start}); err != nil {
		return n, fmt.Errorf("topup: charges of the month: %w", err)
	}
	return n, nil
}

func (n need) on() bool { return n.auto.Enabled && n.auto.Paused == "" && !n.suspended }

// left is what may still be charged in the running month, in cents.
func (n need) left() int64 { return n.auto.MonthlyMaxNano/int64(NanoPerCent) - n.used }

// without is the need as if a top-up that is on its way were not.
func (n need) without(cents int64) need {
	n.pending -= nano(cents)
	n.used -= cents
	return n
}

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
	cents := min(n.gap(), n.left())
	if cents < MinCents {
		return s.monthFull(ctx, tx, n.auto, n.month.Start, n.month.End)
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
