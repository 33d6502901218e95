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

// refunds is what of an invoice's money the operator gave back past credit notes, in the payment provider's own pages.
func refunds(notes []q.CreditNote, seen TillState) int64 {
	ours := int64(0) // what credit notes send back; their own booking has moved it
	for _, n := range notes {
		if Back(n.Back) == BackByStripe {
			ours += n.Cents - n.RelievedCents
		}
	}
	return max(seen.Refunded-ours, 0)
}

// keepRefunded keeps how much of what is owed again is the operator's own doing. before and after are the invoice around what
// went back: a dispute behind a refund counts anew.
func (c *Collector) keepRefunded(ctx context.Context, tx pgx.Tx, before, after q.Invoice, cents int64) error {
	r := q.New(tx)
	was, err := r.RefundedCents(ctx, q.RefundedCentsParams{OrgID: after.OrgID, InvoiceID: after.ID})
	if err != nil {
		return fmt.Errorf("invoice: refunds: %w", err)
	}
	if cents != was {
		err := r.KeepRefunded(ctx, q.KeepRefundedParams{OrgID: after.OrgID, InvoiceID: after.ID, Cents: cents, Now: c.s.now()})
		if err != nil {
			return fmt.Errorf("invoice: refunds: %w", err)
		}
	}
	if State(before.State) == Open && owed(before, was) == 0 && owed(after, cents) > 0 {
		return c.s.reopen(ctx, tx, after)
	}
	return nil
}
