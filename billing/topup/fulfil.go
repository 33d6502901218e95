package topup

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	return s.fulfil(ctx, org, id, "")
}

// fulfil does so with a payment that may be the top-up's; "" = none is known of.
func (s *Service) fulfil(ctx context.Context, org, id ids.ID, payment string) (Topup, error) {
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
		next, err := s.look(ctx, t, payment)
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

// apply brings a top-up to what was decided, in tx, with everything that follows: all or nothing.
func (s *Service) apply(ctx context.Context, tx pgx.Tx, before q.Topup, out outlook) error {
	r := q.New(tx)
	if out.card != nil || out.pause != "" { // the lock order of db/query/topup.sql
		if err := lockAuto(ctx, tx, before.OrgID); err != nil {
			return err
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
	if err := change(ctx, r, next, s.now()); err != nil {
		return err
	}
	if State(before.State) != Succeeded && State(next.State) == Succeeded {
		if err := s.credit(ctx, tx, next, out.card); err != nil {
			return err
		}
	}
	if err := s.bookFee(ctx, tx, before, next); err != nil {
		return err
	}
	if err := s.clawBack(ctx, tx, before, next); err != nil {
		return err
	}
	return s.pauseAfter(ctx, tx, next.OrgID, out.pause)
}

// pauseAfter pauses auto-recharge for what was applied; a refund pauses only what it would lead to a charge of.
func (s *Service) pauseAfter(ctx context.Context, tx pgx.Tx, org ids.ID, why Pause) error {
	switch why {
	case "":
		return nil
	case PauseRefund:
		n, err := s.need(ctx, q.New(tx), org)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		n.pending = 0 // what is on its way may not come
		if err != nil || !n.low() {
			return err
		}
	}
	return s.pause(ctx, tx, org, why)
}

func change(ctx context.Context, r *q.Queries, t q.Topup, now time.Time) error {
	err := r.ChangeTopup(ctx, q.ChangeTopupParams{OrgID: t.OrgID, ID: t.ID, State: t.State, SessionID: t.SessionID, SessionUrl: t.SessionUrl,
		PaymentID: t.PaymentID, Attempt: t.Attempt, Declines: t.Declines, Failure: t.Failure, ClawedCents: t.ClawedCents, Clawbacks: t.Clawbacks,
		RefundedCents: t.RefundedCents, DisputedCents: t.DisputedCents, FeeCents: t.FeeCents, NextAt: t.NextAt, PaidAt: t.PaidAt, UpdatedAt: now, CustomerIds: t.CustomerIds})
	if err != nil {
		return fmt.Errorf("topup: change: %w", err)
	}
	return nil
}

// credit keeps the card, where one was to be kept, and gives what was paid for.
func (s *Service) credit(ctx context.Context, tx pgx.Tx, t q.Topup, card *Card) error {
	if card != nil {
		if err := s.keep(ctx, tx, t.OrgID, *card); err != nil {
			return err
		}
	}
	in := credit.GrantInput{Org: t.OrgID, Kind: credit.Paid, Amount: nano(t.Cents), Reason: s.memo(t, "Top-up by card"), IdempotencyKey: ledgerKey(t, "credit"),
		Actor: tenants.System().Name(), From: ledger.StripeClearing}
	if _, _, err := credit.GiveCredit(ctx, tx, in, s.now()); err != nil {
		return err
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
	lot, err := q.New(tx).GrantByKey(ctx, q.GrantByKeyParams{OrgID: next.OrgID, IdempotencyKey: ledgerKey(next, "credit")})
	if err != nil {
		return fmt.Errorf("topup: credit of a top-up: %w", err)
	}
	_, err = credit.TakeBack(ctx, tx, credit.Clawback{Org: next.OrgID, Amount: nano(delta), From: ledger.StripeClearing, Burn: lot.ID,
		Memo: s.memo(next, wentBack(delta, next.DisputedCents-before.DisputedCents)), Key: ledgerKey(next, fmt.Sprintf("clawback:%d", next.Clawbacks))})
	return err
}

// wentBack says why credit is taken (cents are positive) or given again.
func wentBack(cents, disputed int64) string {
	switch {
	case cents < 0 && disputed < 0:
		return "Disputed payment won: credit is back"
	case cents < 0:
		return "Refund that failed: credit is back"
	case disputed > 0:
		return "Disputed payment: credit taken back"
	}
	return "Refund of a top-up"
}

// tell makes gateways and open pages look again, after the commit.
func (s *Service) tell(ctx context.Context, before q.Topup, next outlook) {
	if !same(before, next.row) {
		credit.Tell(ctx, s.c.Notify, before.OrgID)
	}
}
