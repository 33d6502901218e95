package fleet

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

// Times of the executor.
const (
	busyEvery = 300 * time.Millisecond // while something moves
	idleEvery = time.Second
	tidyEvery = time.Hour // between looks for histories that are too old
)

// Notices tells gateways that units have changed: *bus.Bus.
type Notices interface {
	Publish(subject string, data []byte) error
}

// ExecutorConfig is what an executor works with.
type ExecutorConfig struct {
	DB     Database
	Bus    Notices
	Log    *slog.Logger  // nil = the default
	Clock  clock.Clock   // nil = the system's
	Loads  Loads         // nil = nobody tells: drains last their whole time
	Limits Limits        // the zero value = DefaultLimits
	Lease  time.Duration // 0 = 10 s
}

// Executor carries the current plan out. Run it in as many processes as there are: one acts.
type Executor struct {
	cfg    ExecutorConfig
	holder string
	term   int64
	read   *reader
	tried  time.Time // when a repair was last thought about
	froze  time.Time // when the fleet was last seen frozen
	tidied time.Time
	most   int // steps of a pass; 0 = all (tests stop between them)
	done   int // steps of this pass
}

// NewExecutor makes one with a name of its own.
func NewExecutor(c ExecutorConfig) *Executor {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = clock.System
	}
	if c.Limits == (Limits{}) {
		c.Limits = DefaultLimits
	}
	if c.Lease == 0 {
		c.Lease = leaseFor
	}
	return &Executor{cfg: c, holder: ids.New().String(), read: newReader(c.Limits, c.Loads)}
}

// Run acts until ctx ends, then lets another take over at once.
func (e *Executor) Run(ctx context.Context) error {
	defer func() {
		if err := e.drop(ctx); err != nil {
			e.cfg.Log.Warn("fleet: the lease was not given back; another takes over when it has run out", "cause", err)
		}
	}()
	for {
		moved, err := e.Pass(ctx)
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("fleet: a pass failed; the next one continues", "cause", err)
		}
		if err := e.tidy(ctx); err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("fleet: old histories were not removed", "cause", err)
		}
		every := idleEvery
		if moved > 0 {
			every = busyEvery
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}

// tidy forgets what became of units long ago.
func (e *Executor) tidy(ctx context.Context) error {
	now := e.cfg.Clock.Now()
	if now.Sub(e.tidied) < tidyEvery {
		return nil
	}
	e.tidied = now
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return e.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error { return q.New(tx).ForgetUnitEvents(ctx) })
}

// Pass takes or keeps the lease, looks at everything once and does what is due. It says how many steps were made.
func (e *Executor) Pass(ctx context.Context) (int, error) {
	e.done = 0
	mine, held, err := e.take(ctx)
	if err != nil || !mine {
		return 0, err
	}
	w, err := e.look(ctx)
	if err != nil || w == nil {
		return 0, err
	}
	if why := w.frozen(); why != "" {
		e.cfg.Log.Warn("fleet: frozen", "reason", why)
		e.froze = e.cfg.Clock.Now()
		return 0, nil
	}
	// After a mass loss hosts come back one by one: those that are last are no losses to be repaired yet.
	settled := held >= e.cfg.Limits.Wait && e.cfg.Clock.Now().Sub(e.froze) >= e.cfg.Limits.Wait
	err = e.carryOut(ctx, w, settled)
	if e.done > 0 {
		e.notice()
	}
	if err == nil && settled && e.done == 0 && e.may() {
		err = e.repair(ctx, w)
	}
	return e.done, err
}

// look reads the world; nil when no plan was ever committed.
func (e *Executor) look(ctx context.Context) (w *world, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = e.cfg.DB.InTx(ctx, db.System().ReadOnly().Snapshot(), func(tx pgx.Tx) error {
		query := q.New(tx)
		there, err := query.HasFleet(ctx)
		if err == nil && there {
			w, err = e.read.read(ctx, query)
		}
		return err
	})
	if err == nil && w != nil {
		w.match()
	}
	return w, err
}

// may reports whether this pass may make another step.
func (e *Executor) may() bool { return e.most == 0 || e.done < e.most }

// carryOut makes every step that is due: first what the plan has and the hosts do not, then unit by unit. A unit whose row or plan
// has changed meanwhile is left to the next pass.
func (e *Executor) carryOut(ctx context.Context, w *world, settled bool) error {
	var errs []error
	step := func(made bool, err error) bool {
		switch {
		case errors.Is(err, errLost):
			errs = append(errs, err)
			return false
		case errors.Is(err, errMoved):
			return true
		case err != nil:
			errs = append(errs, err)
		case made:
			e.done++
		}
		return e.may() && ctx.Err() == nil
	}
	if w.plan != nil {
		for i := range w.plan.body.Units {
			want := &w.plan.body.Units[i]
			if want.Ends == "" && w.byID[want.ID] == nil && !step(e.create(ctx, w, want)) {
				return errors.Join(errs...)
			}
		}
	}
	m := w.count()
	for _, u := range w.units {
		if !settled && u.awaited() {
			continue // its hosts may only not have reported yet
		}
		if made := e.done; len(u.missing) > 0 {
			if !step(e.complete(ctx, w, u)) {
				break
			}
			if e.done > made {
				continue // the next pass sees its new rows
			}
		}
		s := Next(w.view(u, m), e.cfg.Limits)
		if !s.does(u) {
			continue
		}
		if !step(e.apply(ctx, w, u, &s)) {
			break
		}
		w.note(u, s, m)
	}
	return errors.Join(errs...)
}

// does reports whether a step changes anything.
func (s *Step) does(u *unit) bool {
	return len(s.Changes) > 0 || s.Remove || s.State != u.row.State
}

// notice makes every gateway read the catalogue again; a lost one costs the time to the next poll.
func (e *Executor) notice() {
	if err := e.cfg.Bus.Publish(bus.NoticeCatalogue, nil); err != nil {
		e.cfg.Log.Warn("fleet: notice not sent", "cause", err)
	}
}
