package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"millrace/agents/host/relay"
	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// Restarting. An engine that lived for steadyAfter was sound; before that its end counts as a quick failure.
const (
	firstPause   = 250 * time.Millisecond // before the first restart; doubles
	longestPause = 30 * time.Second
	faultedPause = time.Minute // a faulted unit is still tried
	faultedAfter = 5           // quick failures in a row
	steadyAfter  = time.Minute
)

// unit is one unit's runner and what others may see of it.
type unit struct {
	sup *Supervisor
	id  ids.ID
	dir string

	// ctx ends when the unit is to go; rush ends when its running attempts are not to be waited for any longer.
	ctx, rush    context.Context
	leave, hurry context.CancelFunc
	wake         chan struct{} // capacity 1: desired has changed
	progress     atomic.Int64  // chunks relayed
	suspect      chan struct{} // capacity 1: the relay met a failure
	quick        int           // quick failures in a row; the runner's own
	again        *wire.Desired // wanted again while it goes; guarded by the supervisor
	unwanted     bool          // it goes because nobody wants it, not because the agent ends; guarded by the supervisor

	mu       sync.Mutex
	desired  wire.Desired
	state    string
	message  string
	engine   ids.ID // of the running process; Nil = none
	address  string
	mark     []byte
	pid      int
	started  time.Time
	restarts int
	adopting bool          // an earlier agent's engine has not proved itself yet
	attempts int           // in flight
	idle     chan struct{} // closed when attempts reaches 0; nil when nobody waits
	last     engine.Load
	heard    time.Time // when the engine last told its load
}

func newUnit(s *Supervisor, d wire.Desired) *unit {
	u := &unit{sup: s, id: d.Unit, dir: s.dirOf(d.Unit), desired: d, state: wire.StateStopped,
		wake: make(chan struct{}, 1), suspect: make(chan struct{}, 1)}
	u.ctx, u.leave = context.WithCancel(context.Background())
	u.rush, u.hurry = context.WithCancel(context.Background())
	return u
}

// want replaces what is desired.
func (u *unit) want(d wire.Desired) {
	u.mu.Lock()
	same := u.desired.Generation == d.Generation && u.desired.Wanted == d.Wanted && equal(u.desired, d)
	u.desired = d
	u.mu.Unlock()
	if !same {
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
}

func (u *unit) wanted() wire.Desired {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.desired
}

// equal reports whether both describe the same engine: then nothing is restarted, whatever the generation.
func equal(a, b wire.Desired) bool {
	return a.Engine == b.Engine && a.Model == b.Model && bytes.Equal(compact(a.Spec), compact(b.Spec))
}

func compact(spec json.RawMessage) []byte {
	var s engine.Spec
	if json.Unmarshal(spec, &s) != nil {
		return spec
	}
	text, err := json.Marshal(s)
	if err != nil {
		return spec
	}
	return text
}

// run keeps the unit as desired until it is to go.
func (u *unit) run() {
	defer u.hurry()
	defer func() {
		if !u.sup.leavesBehind(u) {
			u.set(wire.StateStopped, "")
		}
	}()
	for u.ctx.Err() == nil {
		d := u.wanted()
		if d.Wanted == stopped {
			u.set(wire.StateStopped, "")
			u.wait(u.ctx, nil)
			continue
		}
		began := u.sup.cfg.Clock.Now()
		err := u.live(d)
		if err == nil { // stopped as desired, or to be started differently
			u.quick = 0
			continue
		}
		u.failed(err, u.sup.cfg.Clock.Now().Sub(began))
	}
}

// failed tells why the engine is gone and pauses before the next start.
func (u *unit) failed(err error, lived time.Duration) {
	if lived >= steadyAfter {
		u.quick = 0
	}
	u.quick++
	u.mu.Lock()
	u.restarts++
	u.mu.Unlock()
	pause := min(firstPause<<min(u.quick-1, 16), longestPause)
	if u.quick >= faultedAfter {
		pause = faultedPause
		u.set(wire.StateFaulted, err.Error())
	} else {
		u.set(wire.StateStarting, err.Error())
	}
	u.sup.cfg.Log.Error("an engine failed", "unit", u.wanted().Name, "error", err, "failures", u.quick, "next_start_in", pause)
	u.wait(u.ctx, time.After(pause/2+rand.N(pause/2)))
}

// wait returns when desired changes, the timer fires (nil = never) or ctx ends.
func (u *unit) wait(ctx context.Context, timer <-chan time.Time) {
	select {
	case <-u.wake:
		u.quick = 0 // a person or the hub has changed something: try at once
	case <-timer:
	case <-ctx.Done():
	}
}

// stopped is the wanted state in which no engine runs; the others of wire.Desired are serving and draining.
const (
	stopped  = "stopped"
	draining = "draining"
)

// set changes the state and tells the hub.
func (u *unit) set(state, message string) { u.setIf(state, message, func() bool { return true }) }

// setIf does so if may, called under the mutex, says so.
func (u *unit) setIf(state, message string, may func() bool) {
	if len(message) > wire.MaxUnitMessage {
		message = message[:wire.MaxUnitMessage]
	}
	u.mu.Lock()
	if !may() {
		u.mu.Unlock()
		return
	}
	u.state, u.message = state, message
	u.sup.cfg.Board.Load(u.loadNow()) // under the mutex: an older load must not overtake it
	u.mu.Unlock()
	u.sup.signal()
}

// loadNow is the load message of this moment. The caller holds the mutex.
func (u *unit) loadNow() wire.Load {
	l := wire.Load{Unit: u.id, Engine: u.engine, State: u.state, AtMS: u.sup.cfg.Clock.Now().UnixMilli()}
	if u.state == wire.StateReady || u.state == wire.StateDraining {
		l.Running, l.Waiting, l.QueuedTokens, l.KVUsage = u.last.Running, u.last.Waiting, u.last.QueuedTokens, u.last.KVUsage
		l.CacheQueries, l.CacheHits = u.last.PrefixQueries, u.last.PrefixHits
		for _, r := range u.last.Ranks {
			l.Ranks = append(l.Ranks, wire.RankLoad{Rank: r.Rank, Running: r.Running, Waiting: r.Waiting, QueuedTokens: r.QueuedTokens, KVUsage: r.KVUsage})
		}
	}
	return l
}

func (u *unit) observed() wire.UnitObserved {
	u.mu.Lock()
	defer u.mu.Unlock()
	o := wire.UnitObserved{Unit: u.id, Generation: u.desired.Generation, State: u.state, Message: u.message, Restarts: u.restarts}
	if u.engine != ids.Nil {
		o.PID, o.StartedMS = u.pid, u.started.UnixMilli()
	}
	return o
}

// place is one attempt at the engine that runs now.
type place struct {
	unit    *unit
	address string
	mark    []byte
}

func (u *unit) enter() (relay.Place, string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.state == wire.StateDraining || u.ctx.Err() != nil:
		return nil, wire.RefusedDraining
	case u.state != wire.StateReady:
		return nil, wire.RefusedNotReady
	}
	u.attempts++
	return &place{u, u.address, u.mark}, ""
}

func (p *place) Address() string   { return p.address }
func (p *place) UsageMark() []byte { return p.mark }
func (p *place) Progress()         { p.unit.progress.Add(1) }

func (p *place) Leave(broken bool) {
	u := p.unit
	u.mu.Lock()
	u.attempts--
	if u.attempts == 0 && u.idle != nil {
		close(u.idle)
		u.idle = nil
	}
	u.mu.Unlock()
	if broken {
		select {
		case u.suspect <- struct{}{}:
		default:
		}
	}
}

// drained is closed once no attempt runs.
func (u *unit) drained() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.attempts == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if u.idle == nil {
		u.idle = make(chan struct{})
	}
	return u.idle
}

// folder makes the unit's own folder.
func (u *unit) folder() error {
	if err := os.MkdirAll(u.dir, folderMode); err != nil {
		return fmt.Errorf("the unit's folder: %w", err)
	}
	return nil
}
