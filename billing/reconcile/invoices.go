package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
)

// finalWithin is how long after a month's freeze an invoice may wait to be made final. Later it is a difference.
const finalWithin = 24 * time.Hour

// freezeAfter is how long after its end usage still joins a month: as billing/invoice has it.
const freezeAfter = 48 * time.Hour

// invoices compares frozen months with their invoices, and what is due with what is receivable.
func invoices(ctx context.Context, tx pgx.Tx, r *Report) error {
	queries := q.New(tx)
	months, err := queries.MonthsAgainstInvoices(ctx, r.Watermark)
	if err != nil {
		return err
	}
	for _, m := range months {
		name := m.Month.Format("January 2006")
		r.same(Ledger, "invoices of "+name+", credit and overrun", Nano, m.UsageNano, m.InvoicesNano, m.DifferenceNano)
		if m.Pending == 0 {
			continue
		}
		late := r.Watermark.After(m.Month.AddDate(0, 1, 0).Add(freezeAfter + finalWithin))
		line := Line{Side: Invoices, Name: "not final of " + name, Unit: Nano, Left: m.PendingNano, Difference: m.PendingNano, Count: m.Pending, Explained: !late,
			Note: fmt.Sprintf("invoices of %d customers wait to be made final", m.Pending)}
		r.Lines = append(r.Lines, line)
	}
	lines, err := queries.InvoiceLinesAgainstTotals(ctx)
	if err != nil {
		return err
	}
	r.same(Invoices, "final invoices that are not their lines", Count, 0, lines.Different, lines.Different)
	due, err := queries.DueAgainstReceivable(ctx)
	if err != nil {
		return err
	}
	r.same(Invoices, "ledger: receivable of what is invoiced", Nano, due.DueNano, due.ReceivableNano, due.DifferenceNano)
	return nil
}
