package credit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Bus carries notices: *bus.Bus. A notice that is lost costs time, never correctness.
type Bus interface {
	Publish(subject string, data []byte) error
	Subscribe(subject string, fn func(subject string, data []byte)) (stop func(), err error)
}

// Config says how a gateway process holds money. DB, Bus, Process and LockDir must be given.
type Config struct {
	DB      *db.DB
	Bus     Bus
	Clock   clock.Clock // nil = clock.System
	Process string      // host and pid, for people
	LockDir string      // where the epochs' lock files lie; the same folder for every process of a host
	// Log tells where this process's part of the usage log ends by now; nil = nothing is told. Heartbeats note it, so that
	// the end of a log that is replaced is not wholly forgotten.
	Log func() (incarnation string, seq map[int]uint64)

	Validity   time.Duration // 0 = 5 min. How long the process may admit without hearing from the database
	Heartbeat  time.Duration // 0 = a tenth of Validity
	RequestMax time.Duration // 0 = 1 h. The longest a request may run: the gateway must end it then
	RecallWait time.Duration // 0 = 200 ms. How long other gateways have to return idle money
	IdleAfter  time.Duration // 0 = 5 s. When idle money returns by itself
	Horizon    time.Duration // 0 = 10 s. For how much spending ahead an allotment is raised
}

const (
	defaultValidity   = 5 * time.Minute
	defaultRequestMax = time.Hour
	defaultRecallWait = 200 * time.Millisecond
	defaultIdleAfter  = 5 * time.Second
	defaultHorizon    = 10 * time.Second
	txTimeout         = 5 * time.Second // of one transaction; requests wait for it
)

func (c *Config) complete() error {
	if c.DB == nil || c.Bus == nil || c.Process == "" || c.LockDir == "" {
		return errors.New("credit: DB, Bus, Process and LockDir must be given")
	}
	if c.Clock == nil {
		c.Clock = clock.System
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&c.Validity, defaultValidity}, {&c.RequestMax, defaultRequestMax}, {&c.RecallWait, defaultRecallWait},
		{&c.IdleAfter, defaultIdleAfter}, {&c.Horizon, defaultHorizon}} {
		if *d.value <= 0 {
			*d.value = d.standard
		}
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = c.Validity / 10
	}
	if c.Validity <= margin+c.Heartbeat {
		return fmt.Errorf("credit: a validity of %v leaves nothing after a heartbeat and the margin of %v", c.Validity, margin)
	}
	return nil
}

// Allotments is the money that one gateway process may spend. There is one per process. It is safe for concurrent use.
type Allotments struct {
	cfg   Config
	clock clock.Clock
	base  time.Time // validity counts from here
	store store
	stats counters

	epoch   atomic.Pointer[epoch]
	past    []*os.File // locks of earlier epochs: streams may still run on them. The heart's alone
	polled  time.Time  // when changed caps were looked for; the sweep's alone
	closing atomic.Bool
	beatNow chan struct{}

	ctx    context.Context // of background work, ended by stop
	stop   context.CancelFunc
	work   sync.WaitGroup
	mu     sync.Mutex // guards halted: nothing is spawned once work is waited for
	halted bool
	unhear []func()
}

// Open begins an epoch: its row, its lock, its heartbeat. Close it, or let the process die.
func Open(ctx context.Context, c Config) (*Allotments, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	a := &Allotments{cfg: c, clock: c.Clock, base: c.Clock.Now(), polled: c.Clock.Now(), store: store{db: c.DB}, beatNow: make(chan struct{}, 1)}
	a.ctx, a.stop = context.WithCancel(context.WithoutCancel(ctx))
	e, err := a.begin(ctx)
	if err != nil {
		a.stop()
		return nil, err
	}
	a.epoch.Store(e)
	if err := a.hear(); err != nil {
		a.stop()
		e.lock.Close()
		return nil, err
	}
	a.spawn(a.beat)
	a.spawn(a.sweep)
	return a, nil
}

// admits gives nil when the epoch may take new holds now; extends asks for a running one.
func (a *Allotments) admits(e *epoch, now time.Time, extends bool) error {
	switch {
	case e.over.Load():
		return unavailable("The gateway is renewing its budgets. Please retry shortly.")
	case extends:
		return nil
	case a.closing.Load():
		return errClosing()
	case now.Sub(a.base) >= time.Duration(e.valid.Load())-margin:
		return unavailable("The gateway cannot reach its budgets right now. Please retry shortly.")
	}
	return nil
}

// Valid reports whether new holds may be taken now.
func (a *Allotments) Valid() bool {
	return a.admits(a.epoch.Load(), a.clock.Now(), false) == nil
}

// Epoch is the current epoch.
func (a *Allotments) Epoch() ids.ID { return a.epoch.Load().id }

// LogEnd says where a gateway's part of the usage log ends: the last acknowledged sequence of each shard it wrote to.
type LogEnd struct {
	Incarnation string         `json:"incarnation"`
	Seq         map[int]uint64 `json:"seq"`
}

// Close returns all free money, says goodbye with the log's end, and ends the epoch. Call it when every hold is settled
// and the log has acknowledged every event. If something prevents the goodbye the error says so, and the rest of the
// money returns once the process is proven dead.
func (a *Allotments) Close(ctx context.Context, end LogEnd) error {
	if a.closing.Swap(true) {
		return nil
	}
	for _, stop := range a.unhear {
		stop()
	}
	e := a.epoch.Load()
	e.each(func(w *wallet) { w.fail(errClosing(), func(*waiter) bool { return true }) })
	err := a.returnAll(ctx, e)
	if open := a.Stats().Holds; err == nil && open > 0 {
		err = fmt.Errorf("credit: %d holds are open: the epoch stays until this process is proven dead", open)
	}
	if err == nil && !e.over.Load() {
		err = a.store.goodbye(ctx, e.id, end)
	}
	a.halt()
	for _, lock := range append(a.past, a.epoch.Load().lock) {
		lock.Close()
	}
	if err == nil {
		if removeErr := os.Remove(e.lock.Name()); removeErr != nil {
			slog.Warn("credit: a lock file stays behind", "cause", removeErr)
		}
	}
	return err
}

// spawn runs fn on a goroutine that halt waits for; false once that has begun.
func (a *Allotments) spawn(fn func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.halted {
		return false
	}
	a.work.Go(fn)
	return true
}

// halt ends background work and waits for it.
func (a *Allotments) halt() {
	a.mu.Lock()
	a.halted = true
	a.mu.Unlock()
	a.stop()
	a.work.Wait()
}

// counters are what Stats tells.
type counters struct {
	raises, refusals, recalls, returns, epochs, misuses atomic.Int64
}

// Stats counts since the process began.
type Stats struct {
	Raises, Refusals, Recalls, Returns, Epochs int64
	Misuses                                    int64 // wrong settlements: more than was held, or twice. Always 0
	Holds                                      int64 // open now, in the current epoch
}

// Stats tells what has happened, for metrics.
func (a *Allotments) Stats() Stats {
	s := Stats{Raises: a.stats.raises.Load(), Refusals: a.stats.refusals.Load(), Recalls: a.stats.recalls.Load(),
		Returns: a.stats.returns.Load(), Epochs: a.stats.epochs.Load(), Misuses: a.stats.misuses.Load()}
	a.epoch.Load().each(func(w *wallet) { s.Holds += int64(w.open) })
	return s
}

// broken is what a request is told when the database was needed and did not help.
func broken(err error) error {
	if f := fault.Of(err); f.Kind == fault.Unavailable {
		return f
	}
	return unavailable("The gateway cannot reach its budgets right now. Please retry shortly.").WithCause(err)
}
