package engines

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
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

// begin starts the process and what follows its events.
func (u *unit) begin(d wire.Desired) (*life, context.Context, error) {
	l := &life{unit: u}
	err := l.prepare(d)
	if err != nil {
		u.sup.ports.give(l.ports)
		return nil, nil, err
	}
	ctx, ended := context.WithCancel(context.Background())
	l.ended = ended
	eng := ids.New()
	subs, err := l.subscribers()
	if err == nil {
		var c engine.Command
		if c, err = l.driver.Command(l.spec); err == nil {
			l.address = net.JoinHostPort(cmp.Or(c.Host, "127.0.0.1"), strconv.Itoa(l.spec.Port))
			l.proc, err = u.sup.spawn(u.dir, u.id, eng, c)
		}
	}
	if err != nil {
		ended()
		for _, sub := range subs {
			_ = sub.Run(ctx, nil) // closes its listener: ctx has ended
		}
		u.sup.ports.give(l.ports)
		return nil, nil, err
	}
	u.mu.Lock()
	u.engine, u.pid, u.started = eng, l.proc.cmd.Process.Pid, u.sup.cfg.Clock.Now()
	u.address, u.mark, u.last = l.address, l.driver.UsageMark(), engine.Load{}
	message := u.message // of the failure before: shown until the engine is ready
	u.mu.Unlock()
	u.set(wire.StateStarting, message)
	l.follow(ctx, eng, subs)
	l.helpers.Go(func() { l.keepLogSmall(ctx) })
	return l, ctx, nil
}

// prepare reads the spec and fills in what is this host's to choose.
func (l *life) prepare(d wire.Desired) (err error) {
	if err := l.folder(); err != nil {
		return err
	}
	if l.driver, err = engine.Lookup(engine.Family(d.Engine)); err != nil {
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
	return l.takePorts()
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

// stop drains and ends the process.
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
	l.proc.terminate(stopLimit)
}

// end releases everything that went with the process. Its death is told before anything else.
func (l *life) end() {
	l.setIf(wire.StateStarting, "", func() bool {
		l.over, l.engine, l.pid = true, ids.Nil, 0
		return l.state == wire.StateReady || l.state == wire.StateDraining
	})
	l.proc.kill() // when it hangs
	l.ended()
	l.helpers.Wait()
	removePID(l.dir)
	l.sup.ports.give(l.ports)
}
