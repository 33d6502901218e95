// Package engines supervises the engine processes of one host: it starts what is desired, proves it ready by a real
// generation, watches it, restarts it when it dies or hangs, drains and stops it.
//
// It owns the processes, their folders, logs and ports, and who may enter a unit; it does not own what is desired (the
// hub), how an engine is spoken to (serving/engine), or what passes through (package relay).
//
// Words. Unit: what the hub wants here, by id. Engine: one process of a unit, with an id of its own; the next has another.
//
// Invariants: at most one engine per unit; a unit is ready only while its engine lives and has generated a token; an
// engine's death is told at once; an engine is stopped only after its attempts have ended or the deadline has passed;
// what an earlier agent left running is adopted, with proof that it is the same process, or ended before anything starts;
// no two engines of a host share a port.
package engines

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"millrace/agents/host/relay"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// Board is where a supervisor tells what the hub should know (package facts).
type Board interface {
	Load(wire.Load)
	Remove(unit ids.ID)
	Cache(unit, engine, head ids.ID)
	Blocks(unit, engine ids.ID, up kvevent.Update)
}

// Config is what a supervisor works with.
type Config struct {
	Dir          string        // one folder per unit below it
	DieWithAgent bool          // the kernel kills engines when the agent dies
	Keep         bool          // engines outlive the agent, and the next one adopts them
	Drain        time.Duration // how long running attempts may go on before an engine is stopped
	Clock        clock.Clock
	Log          *slog.Logger
	Board        Board
	// Client gives the HTTP client for the agent's own questions to a unit's engine (relay.Probe).
	Client func(unit ids.ID, driver engine.Driver) *http.Client
	// Runtime runs engines in containers; nil = there are none.
	Runtime *Runtime
	// Device gives the number by which the tools know a GPU now, by its index in plans; nil = they are the same.
	Device func(index int) (int, error)
}

// Supervisor is safe for concurrent use.
type Supervisor struct {
	cfg    Config
	forker *forker
	ports  ports
	self   string // this program, which engines' adapters are part of; "" = unknown

	mu      sync.RWMutex
	units   map[ids.ID]*unit
	left    map[ids.ID]record // engines of an earlier agent, not yet taken over
	closed  bool
	running sync.WaitGroup
	changed chan struct{} // capacity 1: something that Observed shows has changed
}

// New takes the folder over, and kills what an earlier agent left running in it and nobody can go on with.
func New(cfg Config) (*Supervisor, error) {
	if err := os.MkdirAll(cfg.Dir, folderMode); err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	self, _ := os.Executable() // an engine that needs it says so
	s := &Supervisor{cfg: cfg, self: self, ports: ports{taken: map[int]bool{}}, units: map[ids.ID]*unit{}, changed: make(chan struct{}, 1)}
	var err error
	if s.left, err = s.reclaim(); err != nil {
		return nil, fmt.Errorf("engines: %w", err)
	}
	for _, r := range s.left {
		s.ports.keep(r.Ports) // nobody else gets them, whoever is first
	}
	s.forker = newForker()
	return s, nil
}

func (s *Supervisor) dirOf(unit ids.ID) string { return filepath.Join(s.cfg.Dir, unit.String()) }

// leavesBehind reports whether a unit's engine is to outlive this agent, which ends.
func (s *Supervisor) leavesBehind(u *unit) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.cfg.Keep && s.closed && !u.unwanted && u.wanted().Wanted != stopped
}

// Apply makes desired the whole of what should run here. It returns at once.
func (s *Supervisor) Apply(desired []wire.Desired) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	wanted, runs := map[ids.ID]bool{}, map[ids.ID]bool{}
	for _, d := range desired {
		wanted[d.Unit], runs[d.Unit] = true, d.Wanted != stopped
		switch u := s.units[d.Unit]; {
		case u == nil:
			s.launch(d)
		case u.ctx.Err() != nil:
			u.again = &d // the old engine must be gone first
		default:
			u.want(d)
		}
	}
	for id, u := range s.units {
		if !wanted[id] {
			u.again, u.unwanted = nil, true
			u.leave()
		}
	}
	s.retire(runs)
}

// launch begins a unit. The caller holds the mutex.
func (s *Supervisor) launch(d wire.Desired) {
	u := newUnit(s, d)
	r, left := s.left[d.Unit]
	u.adopting = left && r.fits(d)
	s.units[d.Unit] = u
	s.running.Go(func() {
		u.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		if u.again != nil && !s.closed {
			s.launch(*u.again)
			return
		}
		if s.closed && s.cfg.Keep && !u.unwanted {
			return // its last state stands: the engine runs
		}
		delete(s.units, u.id)
		s.cfg.Board.Remove(u.id)
		s.signal()
	})
}

// Enter implements relay.Units.
func (s *Supervisor) Enter(id ids.ID) (relay.Place, string) {
	s.mu.RLock()
	u := s.units[id]
	s.mu.RUnlock()
	if u == nil {
		return nil, wire.RefusedUnknown
	}
	return u.enter()
}

// Observed is every unit as it is now, by id.
func (s *Supervisor) Observed() []wire.UnitObserved {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]wire.UnitObserved, 0, len(s.units))
	for _, u := range s.units {
		out = append(out, u.observed())
	}
	slices.SortFunc(out, func(a, b wire.UnitObserved) int { return slices.Compare(a.Unit[:], b.Unit[:]) })
	return out
}

// Changed tells when Observed may differ from what it was.
func (s *Supervisor) Changed() <-chan struct{} { return s.changed }

func (s *Supervisor) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Stop refuses new attempts everywhere at once, lets running ones end within the drain time or ctx, and stops every engine
// that is not to be kept. The supervisor is of no use afterwards.
func (s *Supervisor) Stop(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for _, u := range s.units {
		u.leave()
	}
	s.mu.Unlock()
	stopped := make(chan struct{})
	go func() { // ends with the units
		s.running.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		s.mu.Lock()
		for _, u := range s.units {
			u.hurry()
		}
		s.mu.Unlock()
		<-stopped
	}
	s.forker.close()
}
