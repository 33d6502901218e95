package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
)

// CrashConfig says how often to kill what.
type CrashConfig struct {
	Binary       string // of millrace
	Dir          string // "" = a temporary folder, removed when nothing was found
	UpKills      int    // of the whole `up`
	GatewayKills int    // of a gateway process alone
	Seed         uint64 // of the load and of the moments; 0 = by chance
	Out          io.Writer
}

// ErrCrash means that the books did not agree with what clients were told.
var ErrCrash = errors.New("the books do not agree with what the clients were told")

const maxWrongShown = 20

// Crash kills `up`, and gateways alone, at random moments under load. After each kill the books must agree with what every
// client was told. The data of a part that found something is kept.
func Crash(ctx context.Context, c CrashConfig) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	fmt.Fprintf(c.Out, "crash run, seed %d\n", c.Seed)
	dir := c.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "millrace-crash-"); err != nil {
			return err
		}
		// As root the database runs as another user, who must be able to cross the folder.
		if err := os.Chmod(dir, 0o711); err != nil {
			return err
		}
	}
	var errs []error
	for _, part := range []struct {
		name string
		n    int
		run  func(context.Context, *crashRun) error
	}{{"up", c.UpKills, crashUp}, {"gateway", c.GatewayKills, crashGateways}} {
		if part.n <= 0 {
			continue
		}
		r := &crashRun{cfg: c, name: part.name, dir: filepath.Join(dir, part.name), kills: part.n, began: time.Now(),
			random: rand.New(rand.NewPCG(c.Seed, 0)), book: newBook()}
		if err := r.whole(ctx, part.run); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w (everything is kept in %s)", part.name, err, r.dir))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.Dir == "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// crashRun is one part of a run.
type crashRun struct {
	cfg    CrashConfig
	name   string
	dir    string
	kills  int
	began  time.Time
	random *rand.Rand
	log    io.Writer // of the processes

	book  *book
	load  *crashLoad
	since ids.ID // events up to here were compared
	sum   tally
	wrong []string
}

func (r *crashRun) whole(ctx context.Context, run func(context.Context, *crashRun) error) error {
	if err := os.MkdirAll(r.dir, 0o711); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(r.dir, "processes.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	r.log = log
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	err = run(ctx, r)
	fmt.Fprintf(r.cfg.Out, "%s: %d kills in %.0f s: %s\n", r.name, r.kills, time.Since(r.began).Seconds(), r.sum)
	for i, w := range r.wrong {
		if i == maxWrongShown {
			fmt.Fprintf(r.cfg.Out, "  … and %d more\n", len(r.wrong)-i)
			break
		}
		fmt.Fprintf(r.cfg.Out, "  WRONG: %s\n", w)
	}
	if len(r.wrong) > 0 {
		err = errors.Join(err, ErrCrash)
	}
	return err
}

// moment is a random time up to longest.
func (r *crashRun) moment(longest time.Duration) time.Duration {
	return time.Duration(r.random.Int64N(int64(longest)))
}

// wait sleeps, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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

// check compares the books with what the clients were told. Nobody may be asking.
func (r *crashRun) check(ctx context.Context, d *db.DB) error {
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
