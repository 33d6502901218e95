// Package reconcile proves that the books agree with what was delivered: engine tokens by the agents' journals = usage
// events = rollups = ledger = budgets = invoices, every difference in a class of its own, and none unexplained.
//
// It owns reconcile_runs and nothing that it compares; it never repairs. It does not know engines, and works out anew what an
// invoice is about instead of asking billing/invoice.
//
// Words. Watermark: the moment up to which everything is compared; the log is rated to it. Class: why two sides may
// differ: an answer that was cut, a probe, an attempt that was abandoned. Explained: the difference has such a reason.
//
// Invariants: both sides of a comparison are read in one snapshot; a difference in one place is never made good by the
// opposite one in another (they are added up without their sign); a customer billed above a journal is never explained.
package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

// Times of a run.
const (
	defaultGrace  = 10 * time.Second // for a record to arrive on the other side
	defaultWait   = 30 * time.Second // for the rater to reach the end of the log
	defaultSettle = 20 * time.Second // for what is on its way when something is unexplained
	readTimeout   = 10 * time.Minute // of one comparison
	poll          = 200 * time.Millisecond
	again         = time.Second
)

// Config of a run. Zero times take their defaults.
type Config struct {
	DB    *db.DB
	Bus   *bus.Bus // nil: the log cannot be asked, and the watermark is where the rater is
	Clock clock.Clock
	Since time.Time // tokens of attempts before it are left out; zero = all

	Grace  time.Duration // 0 = 10 s
	Wait   time.Duration // 0 = 30 s
	Settle time.Duration // 0 = 20 s
}

// Run compares everything, stores the report and gives it. Unexplained differences are in the report, not an error. What
// is unexplained at first is looked at again for a while: journals and events travel on different ways.
func Run(ctx context.Context, c Config) (*Report, error) {
	if c.DB == nil || c.Clock == nil {
		return nil, errors.New("reconcile: Config needs DB and Clock")
	}
	setDefault(&c.Grace, defaultGrace)
	setDefault(&c.Wait, defaultWait)
	setDefault(&c.Settle, defaultSettle)
	var report *Report
	for deadline := c.Clock.Now().Add(c.Settle); ; {
		watermark, rated, err := c.watermark(ctx)
		if err != nil {
			return nil, err
		}
		if report, err = c.compare(ctx, watermark, rated); err != nil {
			return nil, err
		}
		if !report.Unexplained || c.Clock.Now().After(deadline) {
			break
		}
		if err := sleep(ctx, again); err != nil {
			return nil, err
		}
	}
	return report, c.store(ctx, report)
}

func setDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// watermark is now, once the log is rated to where it ends now; or how far it is rated, when that takes too long.
func (c *Config) watermark(ctx context.Context) (at time.Time, rated bool, err error) {
	at = c.Clock.Now()
	var end usagelog.Info
	if c.Bus != nil {
		if end, err = usagelog.Inspect(ctx, c.Bus.JetStream()); errors.Is(err, usagelog.ErrNoLog) {
			return at, true, nil
		} else if err != nil {
			return at, false, err
		}
	}
	for deadline := at.Add(c.Wait); ; {
		pos, err := c.position(ctx)
		if err != nil {
			return at, false, err
		}
		if c.Bus != nil && (end.Last == 0 || pos.Incarnation == end.Incarnation && uint64(pos.Seq) >= end.Last) {
			return at, true, nil
		}
		if c.Bus == nil || c.Clock.Now().After(deadline) {
			if pos.LastAt != nil {
				at = *pos.LastAt
			}
			return at, false, nil
		}
		if err := sleep(ctx, poll); err != nil {
			return at, false, err
		}
	}
}

func (c *Config) position(ctx context.Context) (pos q.ReconcilePositionRow, err error) {
	err = c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		pos, err = q.New(tx).ReconcilePosition(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil {
		return pos, fmt.Errorf("reconcile: how far the log is rated: %w", err)
	}
	return pos, nil
}

// compare reads everything in one snapshot.
func (c *Config) compare(ctx context.Context, watermark time.Time, rated bool) (*Report, error) {
	r := &Report{At: c.Clock.Now(), Watermark: watermark, Rated: rated}
	err := c.DB.InTx(ctx, db.System().ReadOnly().Snapshot().Timeout(readTimeout), func(tx pgx.Tx) error {
		r.Lines = nil
		for _, part := range []struct {
			what string
			do   func(context.Context, pgx.Tx, *Report) error
		}{
			{"tokens", c.tokens}, {"rollups", rollups}, {"ledger", books}, {"budgets", budgets}, {"invoices", invoices}, {"exceptions", exceptions},
		} {
			if err := part.do(ctx, tx, r); err != nil {
				return fmt.Errorf("reconcile: %s: %w", part.what, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.sum()
	return r, nil
}

func (c *Config) store(ctx context.Context, r *Report) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("reconcile: %w", err)
	}
	return c.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		return q.New(tx).InsertReconcileRun(ctx, q.InsertReconcileRunParams{ID: ids.New(), At: r.At, Watermark: r.Watermark, Unexplained: r.Unexplained, Report: text})
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
