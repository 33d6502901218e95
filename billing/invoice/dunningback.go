package invoice

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
)

// reopen counts an invoice's days anew: it was settled, and is owed again. Reminders of before were about something else.
func (s *Service) reopen(ctx context.Context, tx pgx.Tx, inv q.Invoice) error {
	r, now := q.New(tx), s.now()
	if err := r.KeepReopening(ctx, q.KeepReopeningParams{OrgID: inv.OrgID, InvoiceID: inv.ID, ReopenedAt: now}); err != nil {
		return fmt.Errorf("invoice: reopen: %w", err)
	}
	return named("undo reminders", r.UndoAllDunning(ctx, q.UndoAllDunningParams{OrgID: inv.OrgID, InvoiceID: inv.ID, Now: now}))
}

// owedAnew keeps how much of what is due is the operator's own doing, and counts an invoice's days anew when the customer
// owes something of it again. refunded is what such refunds moved.
func (s *Service) owedAnew(ctx context.Context, tx pgx.Tx, before, after q.Invoice, refunded int64) error {
	r := q.New(tx)
	was, err := r.RefundedCents(ctx, q.RefundedCentsParams{OrgID: after.OrgID, InvoiceID: after.ID})
	if err != nil {
		return fmt.Errorf("invoice: refunds: %w", err)
	}
	now := stillRefunded(was, refunded, unpaid(after))
	if now != was {
		if err := r.KeepRefunded(ctx, q.KeepRefundedParams{OrgID: after.OrgID, InvoiceID: after.ID, Cents: now, Now: s.now()}); err != nil {
			return fmt.Errorf("invoice: refunds: %w", err)
		}
	}
	// What was given up in part was never settled: its days and restrictions go on.
	settled := before.SettledAt != nil && after.GivenUpCents == 0
	refund := State(before.State) == Open && owed(before, was) == 0 && owed(after, now) > 0 // all that was due was the operator's doing
	if State(after.State) == Open && (settled || refund) {
		return s.reopen(ctx, tx, after)
	}
	return nil
}

// stillRefunded is what of due the operator gave back past credit notes, in cents: never more than is due. Money that comes pays
// what the customer owes first; a refund that was paid again hides no later dispute.
func stillRefunded(was, moved, due int64) int64 { return min(max(was+moved, 0), max(due, 0)) }

// refunds is what of an invoice's money the operator gave back past credit notes, in the payment provider's own pages. What is
// booked as such stays so. Of what was refunded since, as much as credit notes have to send back is theirs: by a try whose
// answer was lost, or by an operator who did it by hand.
func refunds(push q.InvoicePush, notes []q.CreditNote, seen TillState) int64 {
	sent, waits := int64(0), int64(0) // their own booking has moved both
	for i := range notes {
		switch n := &notes[i]; {
		case toSend(n):
			waits += sends(n)
		case sentThere(n):
			sent += sends(n)
		}
	}
	past := max(seen.Refunded-sent, 0)
	booked := min(push.RefundedCents, past)
	return booked + max(past-booked-waits, 0)
}
