package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/reconcile"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
)

// Waiting for the fence.
const (
	fencePoll  = 50 * time.Millisecond
	fenceLimit = time.Minute
)

// awaitFence waits until no more epochs are open than gateways live: then everything that the dead ones said is rated,
// their streams are closed, and their money is back.
func awaitFence(ctx context.Context, d *db.DB, living int64) error {
	ctx, cancel := context.WithTimeout(ctx, fenceLimit)
	defer cancel()
	for {
		var open int64
		err := d.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			open, err = q.New(tx).CrashOpenEpochs(ctx)
			return err
		})
		if err == nil && open <= living {
			return nil
		}
		if wait(ctx, fencePoll) != nil {
			return fmt.Errorf("%d epochs are not fenced after %v (%d gateways live): %w", open, fenceLimit, living, errors.Join(err, ctx.Err()))
		}
	}
}

// check compares the books with what the clients were told, and with what the engines' journals say. Nobody may be
// asking.
func (r *crashRun) check(ctx context.Context, d *db.DB, log *bus.Bus) error {
	if err := r.compare(ctx, d); err != nil {
		return err
	}
	report, err := reconcile.Run(ctx, reconcile.Config{DB: d, Bus: log, Clock: clock.System, Grace: time.Millisecond})
	if err != nil {
		return err
	}
	if report.Unexplained {
		var text strings.Builder
		if err := report.WriteText(&text); err != nil {
			return err
		}
		r.wrong = append(r.wrong, "reconcile finds unexplained differences:\n"+text.String())
	}
	return nil
}

func (r *crashRun) compare(ctx context.Context, d *db.DB) error {
	return d.InTx(ctx, db.System().ReadOnly().Snapshot().Timeout(fenceLimit), func(tx pgx.Tx) error {
		queries := q.New(tx)
		events, err := queries.CrashEvents(ctx, r.since)
		if err != nil {
			return err
		}
		sum, wrong := r.book.compare(events)
		r.sum.add(sum)
		r.wrong = append(r.wrong, wrong...)
		if n := len(events); n > 0 {
			r.since = events[n-1].ID
		}
		wrong, err = soundBooks(ctx, tx)
		r.wrong = append(r.wrong, wrong...)
		return err
	})
}

// soundBooks checks what must hold of the books by themselves.
func soundBooks(ctx context.Context, tx pgx.Tx) (wrong []string, err error) {
	queries := q.New(tx)
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	report, err := ledger.Verify(ctx, tx)
	if err != nil {
		return nil, err
	}
	if !report.Sound() {
		say("the ledger is not sound: %+v", *report)
	}
	outlived, err := queries.CrashOutlived(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range outlived {
		say("an allotment outlived its fence: %+v", a)
	}
	budgets, err := queries.CrashBudgets(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range budgets {
		say("a budget does not add up: %+v", b)
	}
	txns, err := queries.CrashTxns(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range txns {
		say("a ledger transaction is not what its events were charged: %+v", t)
	}
	quarantined, err := queries.CrashQuarantine(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range quarantined {
		say("an event is in quarantine: %s: %s", e.Reason, e.Payload)
	}
	gaps, err := queries.CrashGaps(ctx)
	if gaps > 0 {
		say("%d gaps in the log", gaps)
	}
	return wrong, err
}
