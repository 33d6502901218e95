package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db/q"
)

// rollups compares events with the rollups that pages read, cell by cell.
func rollups(ctx context.Context, tx pgx.Tx, r *Report) error {
	rows, err := q.New(tx).EventsAgainstRollups(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		unit := Nano
		switch {
		case strings.HasSuffix(row.Name, "tokens"):
			unit = Tokens
		case row.Name == "requests", row.Name == "billed requests":
			unit = Count
		}
		r.same(Events, "rollups: "+row.Name, unit, row.Events, row.Rollups, row.Difference)
	}
	return nil
}

// books compares events with the ledger, and the ledger with itself.
func books(ctx context.Context, tx pgx.Tx, r *Report) error {
	queries := q.New(tx)
	rows, err := queries.EventsAgainstLedger(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.same(Events, "ledger: "+row.Name, Nano, row.Events, row.Ledger, row.Difference)
	}
	txns, err := queries.EventsAgainstTxns(ctx)
	if err != nil {
		return err
	}
	r.same(Events, "ledger: transactions that are their events", Count, txns.Events, txns.Ledger, txns.Different)
	book, err := ledger.Verify(ctx, tx)
	if err != nil {
		return err
	}
	total, err := strconv.ParseInt(book.Total, 10, 64)
	if err != nil {
		return fmt.Errorf("the ledger's total %s: %w", book.Total, err)
	}
	r.same(Ledger, "all entries sum to zero", Nano, 0, total, max(total, -total))
	r.same(Ledger, "transactions that do not balance", Count, 0, int64(len(book.Unbalanced)), int64(len(book.Unbalanced)))
	r.same(Ledger, "balances that are not their entries", Count, 0, int64(len(book.Drifted)), int64(len(book.Drifted)))
	r.same(Ledger, "sums of days that are not their entries", Count, 0, int64(len(book.Days)), int64(len(book.Days)))
	r.same(Ledger, "lots that are not their moves, or not the credit they make up", Count, 0, int64(len(book.Lots)), int64(len(book.Lots)))
	return payments(ctx, queries, r)
}

// payments compares what top-ups brought in, less what went back and fees, with what the ledger says is at the payment
// provider; then it tells what comparing with the provider's own lists found last.
func payments(ctx context.Context, queries *q.Queries, r *Report) error {
	p, err := queries.TopupsAgainstLedger(ctx)
	if err != nil {
		return err
	}
	r.same(Payments, "ledger: money at the payment provider", Nano, p.Topups, p.Ledger, p.Difference)
	line := Line{Side: Payments, Name: "payment provider's own lists", Unit: Count, Explained: true, Note: "never compared: payments are off, or an hour has not passed"}
	check, err := queries.NewestStripeCheck(ctx)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return err
	default:
		line.Left, line.Right = check.Payments, check.Payments-check.Differences
		line.Difference, line.Explained = check.Differences, check.Differences == 0
		line.Note = "compared at " + check.At.UTC().Format(time.RFC3339)
		if check.Problem != "" {
			line.Note += ", not to the end: " + check.Problem
		}
	}
	r.Lines = append(r.Lines, line)
	return nil
}

// budgets compares what may still be spent with events, ledger and allotments.
func budgets(ctx context.Context, tx pgx.Tx, r *Report) error {
	queries := q.New(tx)
	settled, err := queries.BalancesAgainstEvents(ctx)
	if err != nil {
		return err
	}
	r.same(Events, "balances: settled", Nano, settled.Events, settled.Budgets, settled.Difference)
	has, err := queries.BalancesAgainstLedger(ctx)
	if err != nil {
		return err
	}
	r.same(Ledger, "balances: credit that is left", Nano, has.Ledger, has.Budgets, has.Difference)
	out, err := queries.OutstandingAgainstAllotments(ctx)
	if err != nil {
		return err
	}
	r.same(Budgets, "outstanding is what allotments hold", Nano, out.Allotments, out.Budgets, out.Difference)
	behind, err := queries.OutstandingBehindFences(ctx)
	if err != nil {
		return err
	}
	r.same(Budgets, "allotments of fenced epochs that hold something", Count, 0, behind.Allotments, behind.Allotments)
	return nil
}

// exceptions lists what is not a difference and should be looked at.
func exceptions(ctx context.Context, tx pgx.Tx, r *Report) error {
	x, err := q.New(tx).ReconcileExceptions(ctx)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		name string
		n    int64
		note string
	}{
		{"messages of the log that were gone before they were rated", x.GapMessages, "listed: they can no longer be billed"},
		{"logs that were replaced, how far they were not rated is not known", x.OpenGaps, "listed: what came after the last rated message can no longer be billed"},
		{"events in quarantine", x.Quarantined, "wait for a decision"},
		{"events whose price was corrected", x.Repriced, "in the customer's favour"},
	} {
		line := Line{Side: Log, Name: l.name, Unit: Count, Left: l.n, Right: l.n, Count: l.n, Explained: true}
		if l.n > 0 {
			line.Note = l.note
		}
		r.Lines = append(r.Lines, line)
	}
	return nil
}
