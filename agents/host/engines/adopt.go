package engines

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// An agent that keeps engines leaves them running when it ends, however it ends. The next one finds them by their records,
// proves that they are the same processes, and goes on with those that are desired as they are; it stops the others.

var errGone = errors.New("the engine of an earlier agent ended before it was taken over")

// adopt takes over a running engine. A descriptor holds the process first, so that the proof is of what is held.
func (s *Supervisor) adopt(r *record) (*process, error) {
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("adopting an engine: %w", err)
	}
	if !r.alive() {
		_ = unix.Close(fd)
		return nil, errGone
	}
	p := &process{pid: r.PID, exited: make(chan struct{}), ends: s.ends(r)}
	go func() { // ends with the process, or with the agent that keeps it
		p.follow(fd)
		_ = s.destroy([]record{*r}) // what the leader left behind
		close(p.exited)
	}()
	return p, nil
}

// follow waits for an adopted leader's end. It is reaped here when this very process started it, before it became another
// program by an update.
func (p *process) follow(fd int) {
	wait := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(wait, -1)
		if err == nil && n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Close(fd)
	var status syscall.WaitStatus
	_, _ = syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil) // ECHILD: somebody else's
	p.reaped = true
}

// claim gives the record of a unit's engine that an earlier agent left, once.
func (s *Supervisor) claim(unit ids.ID) (record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.left[unit]
	delete(s.left, unit)
	return r, ok
}

// retire stops engines that were left and are not to run any more. The caller holds the mutex.
func (s *Supervisor) retire(runs map[ids.ID]bool) {
	for id, r := range s.left {
		if runs[id] {
			continue
		}
		delete(s.left, id)
		s.running.Go(func() { s.discard(&r) })
	}
}

// discard ends an engine that nobody goes on with.
func (s *Supervisor) discard(r *record) {
	s.cfg.Log.Info("stopping an engine that an earlier agent left running", "unit", r.Desired.Name, "pid", r.PID)
	if p, err := s.adopt(r); err == nil {
		p.terminate(stopLimit)
	}
	s.ports.give(r.Ports)
	if now, err := readRecord(s.dirOf(r.Unit)); err == nil && now.Engine == r.Engine { // not its successor's
		removeRecord(s.dirOf(r.Unit))
	}
}

// fits reports whether the engine is the one that is desired.
func (r *record) fits(d wire.Desired) bool { return d.Wanted != stopped && equal(r.Desired, d) }

// settlePoll is how often Settle looks.
const settlePoll = 20 * time.Millisecond

// Settle waits until every adopted engine has proved again that it serves, has failed, or ctx ends: an agent that comes
// back need not refuse what its engines can do.
func (s *Supervisor) Settle(ctx context.Context) {
	for s.unsettled() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(settlePoll):
		}
	}
}

func (s *Supervisor) unsettled() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, u := range s.units {
		u.mu.Lock()
		waits := u.adopting
		u.mu.Unlock()
		if waits {
			return true
		}
	}
	return false
}
