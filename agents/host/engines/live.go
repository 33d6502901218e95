package engines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// Times of one engine's life.
const (
	readyLimit    = 30 * time.Minute // from start to the first token: large weights from a slow disk
	readyTry      = time.Minute      // for one token
	readyPause    = 100 * time.Millisecond
	readyMaxPause = 2 * time.Second
	stopLimit     = 15 * time.Second // from SIGTERM to SIGKILL
	logCheck      = 5 * time.Second
)

// life is one engine process and everything that goes with it.
type life struct {
	*unit
	driver  engine.Driver
	spec    engine.Spec
	proc    *process
	ports   []int
	address string // of its HTTP
	ended   context.CancelFunc
	kept    bool // it goes on without this agent
	helpers sync.WaitGroup

	// Guarded by the unit's mutex: whatever still runs of a life that is over must not speak for the next one.
	over    bool
	closing bool // it is being stopped: it is not admitted again
	doubted bool // it lives and does not work: no new attempts until it has given a token
}

// live starts an engine and stays with it until it is gone. nil means that it was stopped on purpose.
func (u *unit) live(d wire.Desired) error {
	l, ctx, err := u.begin(d)
	if err != nil {
		return err
	}
	defer l.end()
	ready := make(chan error, 1)
	l.helpers.Go(func() { ready <- l.untilReady(ctx) })
	if err, on := l.await(ready, d); !on {
		return err
	}
	l.admit()
	hung := make(chan error, 1)
	if !l.spec.Silent() {
		l.helpers.Go(func() { l.poll(ctx) })
		l.helpers.Go(func() { hung <- l.watch(ctx) })
	}
	for {
		select {
		case <-l.proc.exited:
			return l.died()
		case err := <-hung:
			return err
		case <-u.ctx.Done():
			l.stop()
			return nil
		case <-u.wake:
			now := u.wanted()
			if now.Wanted == stopped || !equal(now, d) {
				l.stop()
				return nil
			}
			l.admit()
			u.sup.signal() // the generation is observed
		}
	}
}

// begin starts the process, or goes on with the one that an earlier agent left, and what follows its events.
func (u *unit) begin(d wire.Desired) (*life, context.Context, error) {
	l := &life{unit: u}
	r, left := u.sup.claim(u.id)
	if left && !r.fits(d) {
		u.sup.discard(&r)
		left = false
	}
	ctx, ended := context.WithCancel(context.Background())
	l.ended = ended
	subs, err := l.open(d, &r, left)
	if err != nil {
		ended()
		for _, sub := range subs {
			_ = sub.Run(ctx, nil) // closes its listener: ctx has ended
		}
		u.sup.ports.give(l.ports)
		u.mu.Lock()
		u.adopting = false
		u.mu.Unlock()
		return nil, nil, err
	}
	u.mu.Lock()
	u.engine, u.pid, u.started, u.restarts = r.Engine, l.proc.pid, time.UnixMilli(r.StartedMS), max(u.restarts, r.Restarts)
	u.address, u.mark, u.last = l.address, l.driver.UsageMark(), engine.Load{}
	message := u.message // of the failure before: shown until the engine is ready
	u.mu.Unlock()
	u.set(wire.StateStarting, message)
	l.follow(ctx, r.Engine, subs, left)
	l.helpers.Go(func() { l.keepLogSmall(ctx) })
	return l, ctx, nil
}

// open prepares and starts the process, or adopts it. The subscribers are there before it is.
func (l *life) open(d wire.Desired, r *record, left bool) (subs []*kvevent.Subscriber, err error) {
	if left {
		err = l.restore(d, r)
	} else {
		err = l.prepare(d)
	}
	if err != nil {
		return nil, err
	}
	if subs, err = l.subscribers(); err != nil {
		return subs, err
	}
	spec := l.spec
	if err := l.devices(&spec); err != nil {
		return subs, err
	}
	c, err := l.driver.Command(spec)
	if err != nil {
		return subs, err
	}
	l.address = hostPort(c.Host, l.spec.Port)
	if left {
		if r.Argv != digest(&c) {
			l.sup.cfg.Log.Info("an adopted engine would be started differently now: restart it when there is time", "unit", d.Name)
		}
		l.proc, err = l.sup.adopt(r)
		return subs, err
	}
	*r = record{Engine: ids.New(), Program: c.Path, Unit: l.id, Desired: d, Spec: l.spec, Ports: l.ports, Host: c.Host, Argv: digest(&c),
		StartedMS: l.sup.cfg.Clock.Now().UnixMilli()}
	l.mu.Lock()
	r.Restarts = l.restarts
	l.mu.Unlock()
	if spec.Container != "" {
		if l.sup.cfg.Runtime == nil {
			return subs, errors.New("the unit wants a container, and this agent was started without --container-command")
		}
		if err := checkImage(spec.Container); err != nil {
			return subs, err
		}
		r.Container = containerName(r.Engine)
		c.Env = append(c.Env, envEngine+r.Engine.String(), envUnit+r.Unit.String())
		c = l.sup.cfg.Runtime.wrap(r.Container, l.dir, &spec, c)
	}
	l.proc, err = l.sup.spawn(l.dir, r, c)
	return subs, err
}

// restore takes what an earlier agent chose.
func (l *life) restore(d wire.Desired, r *record) (err error) {
	if l.driver, err = engine.Lookup(engine.Family(d.Engine)); err != nil {
		return err
	}
	l.spec, l.ports = r.Spec, r.Ports
	l.sup.ports.keep(l.ports)
	return nil
}

// prepare reads the spec and fills in what is this host's to choose.
func (l *life) prepare(d wire.Desired) (err error) {
	if err := l.folder(); err != nil {
		return err
	}
	family := engine.Family(d.Engine)
	if l.driver, err = engine.Lookup(family); err != nil {
		return err
	}
	if err := json.Unmarshal(d.Spec, &l.spec); err != nil {
		return fmt.Errorf("the unit's engine spec: %w", err)
	}
	l.spec.Model = d.Model
	if l.spec.DataDir == "" {
		l.spec.DataDir = l.dir
	}
	l.spec.Agent = l.sup.self
	l.ports, err = l.sup.ports.assign(family, &l.spec, l.driver.Caps().KVEvents)
	return err
}

// devices turns the plan's GPU numbers into the tools' of this moment, and makes the engine count as the tools do.
func (l *life) devices(s *engine.Spec) error {
	if len(s.Devices) == 0 {
		return nil
	}
	if l.sup.cfg.Device != nil {
		now := make([]int, len(s.Devices))
		for i, index := range s.Devices {
			number, err := l.sup.cfg.Device(index)
			if err != nil {
				return err
			}
			now[i] = number
		}
		s.Devices = now
	}
	if !s.Ascend { // CUDA would put the fastest first
		env := map[string]string{"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
		maps.Copy(env, s.Env)
		s.Env = env
	}
	return nil
}

// await waits for readiness; on is false when the engine is gone or not wanted before that.
func (l *life) await(ready <-chan error, d wire.Desired) (err error, on bool) {
	for {
		select {
		case err := <-ready:
			return err, err == nil
		case <-l.proc.exited:
			return l.died(), false
		case <-l.ctx.Done():
			l.stop()
			return nil, false
		case <-l.wake:
			if now := l.wanted(); now.Wanted == stopped || !equal(now, d) {
				l.stop()
				return nil, false
			}
		}
	}
}

// untilReady asks for one token until the engine gives it. Of a replica over several hosts only the first can be asked: its
// token is made by all of them.
func (l *life) untilReady(ctx context.Context) error {
	if l.spec.Silent() {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for pause := readyPause; ; pause = min(pause*3/2, readyMaxPause) {
		err := l.prove(limit, readyTry)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.Done():
			return fmt.Errorf("not ready after %s: %w", readyLimit, err)
		case <-time.After(pause):
		}
	}
}

// prove generates one token. An engine that does not listen yet is not asked: a question is a journal record.
func (l *life) prove(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := listens(ctx, l.address); err != nil {
		return err
	}
	return l.driver.Ready(ctx, l.client(), l.base(), l.spec.Model)
}

// admit makes a proved engine ready, or draining when that is wanted.
func (l *life) admit() {
	state := wire.StateReady
	if l.wanted().Wanted == draining {
		state = wire.StateDraining
	}
	l.setIf(state, "", func() bool {
		l.heard = l.sup.cfg.Clock.Now()
		l.adopting = false
		return !l.over && !l.closing && !l.doubted
	})
}

// died says why the process is gone. Only an engine that never served has its log quoted: later the log may hold prompts.
func (l *life) died() error {
	l.mu.Lock()
	served := l.state == wire.StateReady || l.state == wire.StateDraining
	l.mu.Unlock()
	if text := logEnd(l.dir); !served && text != "" {
		return fmt.Errorf("the engine %s: %s", l.proc.how(), text)
	}
	return errors.New("the engine " + l.proc.how())
}

// stop drains and ends the process, or leaves it to the next agent.
func (l *life) stop() {
	l.setIf(wire.StateDraining, "", func() bool { l.closing = true; return true })
	t := time.NewTimer(l.sup.cfg.Drain)
	defer t.Stop()
	select {
	case <-l.drained():
	case <-l.proc.exited:
	case <-t.C:
	case <-l.rush.Done():
	}
	if l.kept = l.sup.leavesBehind(l.unit); !l.kept {
		l.proc.terminate(stopLimit)
	}
}

// end releases everything that went with the process. Its death is told before anything else.
func (l *life) end() {
	if l.kept {
		l.ended()
		l.helpers.Wait()
		return
	}
	l.setIf(wire.StateStarting, "", func() bool {
		l.over, l.adopting, l.engine, l.pid = true, false, ids.Nil, 0
		return l.state == wire.StateReady || l.state == wire.StateDraining
	})
	l.proc.kill() // when it hangs
	l.ended()
	l.helpers.Wait()
	removeRecord(l.dir)
	l.sup.ports.give(l.ports)
}
