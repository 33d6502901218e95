package topup

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// errMoved says that somebody else changed the top-up since the look at the payment provider began.
var errMoved = errors.New("topup: changed meanwhile")

// looks is how often Fulfil looks again when somebody else is faster.
const looks = 8

// Fulfil looks at the payment provider and does what follows from what it sees: credit, clawback, or a new state. Whoever
// hears that something may have happened calls it; calling it for nothing changes nothing.
func (s *Service) Fulfil(ctx context.Context, org, id ids.ID) (Topup, error) {
	if !s.On() {
		return Topup{}, errOff
	}
	for try := 1; ; try++ {
		var t q.Topup
		err := s.inOrg(ctx, org, func(r *q.Queries) (err error) {
			t, err = r.Topup(ctx, q.TopupParams{OrgID: org, ID: id})
			return found(err, "top-up")
		})
		if err != nil {
			return Topup{}, err
		}
		next, err := s.look(ctx, t)
		if err != nil {
			return topupOf(t), err
		}
		err = s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { return s.apply(ctx, tx, t, next) })
		if errors.Is(err, errMoved) && try < looks {
			continue
		}
		if err != nil {
			return topupOf(t), err
		}
		s.tell(ctx, t, next)
		return topupOf(next.row), nil
	}
}

// outlook is what a look at the payment provider leads to.
type outlook struct {
	row   q.Topup
	card  *Card // to keep; nil = none
	pause Pause // of auto-recharge; "" = none
}

// look asks the payment provider and decides. It changes nothing.
func (s *Service) look(ctx context.Context, t q.Topup) (outlook, error) {
	var customer q.PaymentCustomer
	err := s.inOrg(ctx, t.OrgID, func(r *q.Queries) (err error) {
		customer, err = r.PaymentCustomer(ctx, t.OrgID)
		return found(err, "customer at the payment provider")
	})
	if err != nil {
		return outlook{}, err
	}
	seen, err := s.see(ctx, t, customer.CustomerID)
	if err != nil {
		return outlook{}, err
	}
	return decide(t, customer.CustomerID, seen, s.now())
}

// see asks what the payment provider knows of a top-up.
func (s *Service) see(ctx context.Context, t q.Topup, customer string) (x sight, err error) {
	if t.SessionID != nil && State(t.State) != Succeeded {
		page, err := s.c.Gateway.Session(ctx, *t.SessionID)
		if err != nil {
			return x, err
		}
		x.session = &page
		if page.Payment != "" {
			t.PaymentID = &page.Payment
		}
	}
	var p Payment
	switch {
	case Kind(t.Kind) == Auto && State(t.State) != Succeeded: // every attempt is a payment of its own: the newest counts
		if p, err = s.c.Gateway.FindPayment(ctx, customer, t.ID); fault.Is(err, fault.NotFound) {
			return x, nil
		}
	case t.PaymentID != nil:
		p, err = s.c.Gateway.Payment(ctx, *t.PaymentID)
	default:
		return x, nil
	}
	if err != nil {
		return x, err
	}
	x.payment = &p
	return x, nil
}

// apply brings a top-up to what was decided, in tx, with everything that follows: all or nothing.
func (s *Service) apply(ctx context.Context, tx pgx.Tx, before q.Topup, out outlook) error {
	r := q.New(tx)
	if out.card != nil || out.pause != "" { // the lock order: auto_recharges, then topups
		if _, err := r.LockAutoRecharge(ctx, before.OrgID); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("topup: lock auto-recharge: %w", err)
		}
	}
	now, err := r.LockTopup(ctx, q.LockTopupParams{OrgID: before.OrgID, ID: before.ID})
	if err != nil {
		return found(err, "top-up")
	}
	if now.Version != before.Version {
		return errMoved
	}
	next := out.row
	if same(before, next) {
		return nil
	}
	if before.ClawedCents != next.ClawedCents {
		next.Clawbacks++
	}
	if err := r.ChangeTopup(ctx, q.ChangeTopupParams{OrgID: next.OrgID, ID: next.ID, State: next.State, SessionID: next.SessionID, SessionUrl: next.SessionUrl,
		PaymentID: next.PaymentID, Attempt: next.Attempt, Declines: next.Declines, Failure: next.Failure, ClawedCents: next.ClawedCents, Clawbacks: next.Clawbacks,
		RefundedCents: next.RefundedCents, DisputedCents: next.DisputedCents, FeeCents: next.FeeCents, NextAt: next.NextAt, PaidAt: next.PaidAt, UpdatedAt: s.now()}); err != nil {
		return fmt.Errorf("topup: change: %w", err)
	}
	if State(before.State) != Succeeded && State(next.State) == Succeeded {
		if err := s.credit(ctx, tx, next, out.card); err != nil {
			return err
		}
	}
	if out.pause != "" {
		if err := s.pause(ctx, tx, next.OrgID, out.pause); err != nil {
			return err
		}
	}
	if err := s.bookFee(ctx, tx, before, next); err != nil {
		return err
	}
	return s.clawBack(ctx, tx, before, next)
}

// credit gives what was paid for.
func (s *Service) credit(ctx context.Context, tx pgx.Tx, t q.Topup, card *Card) error {
	in := credit.GrantInput{Org: t.OrgID, Kind: credit.Paid, Amount: nano(t.Cents), Reason: s.memo(t, "Top-up by card"), IdempotencyKey: ledgerKey(t, "credit"),
		Actor: tenants.System().Name(), From: ledger.StripeClearing}
	if _, _, err := credit.GiveCredit(ctx, tx, in, s.now()); err != nil {
		return err
	}
	if card != nil {
		if err := s.keep(ctx, tx, t.OrgID, *card); err != nil {
			return err
		}
	}
	return s.mailReceipt(ctx, tx, t)
}

func ledgerKey(t q.Topup, what string) string {
	return "topup:" + ids.Format(ids.Topup, t.ID) + ":" + what
}

// memo is a line of the ledger; a test payment says so wherever it is seen.
func (s *Service) memo(t q.Topup, text string) string {
	if Kind(t.Kind) == Auto {
		text += " (auto-recharge)"
	}
	if s.Test() {
		text += ", test payment"
	}
	return text
}

// bookFee books what the payment provider kept, once it is known.
func (s *Service) bookFee(ctx context.Context, tx pgx.Tx, before, next q.Topup) error {
	fee := nano(next.FeeCents)
	if before.FeeCents != 0 || fee == 0 {
		return nil
	}
	_, _, err := ledger.Post(ctx, tx, ledger.Txn{Org: next.OrgID, Kind: ledger.Adjustment, Memo: s.memo(next, "Fee of the payment provider"), Key: ledgerKey(next, "fee"),
		Entries: []ledger.Entry{ledger.Debit(ledger.Fees, fee), ledger.Credit(ledger.StripeClearing, fee)}})
	return err
}

// clawBack moves credit by the difference to what was taken back before.
func (s *Service) clawBack(ctx context.Context, tx pgx.Tx, before, next q.Topup) error {
	delta := next.ClawedCents - before.ClawedCents
	if delta == 0 {
		return nil
	}
	memo := "Refund of a top-up"
	switch {
	case delta < 0:
		memo = "Disputed payment won: credit is back"
	case next.DisputedCents > before.DisputedCents:
		memo = "Disputed payment: credit taken back"
	}
	_, err := credit.TakeBack(ctx, tx, credit.Clawback{Org: next.OrgID, Amount: nano(delta), From: ledger.StripeClearing, Memo: s.memo(next, memo),
		Key: ledgerKey(next, fmt.Sprintf("clawback:%d", next.Clawbacks))})
	return err
}

// tell makes gateways and open pages look again, after the commit.
func (s *Service) tell(ctx context.Context, before q.Topup, next outlook) {
	if !same(before, next.row) {
		credit.Tell(ctx, s.c.Notify, before.OrgID)
	}
}
