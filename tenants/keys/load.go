package keys

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"millrace/internal/ids"
)

// call is one lookup that requests wait for, however many they are.
type call struct {
	done    chan struct{} // closed when entry or err is set
	entry   *entry        // nil = unknown key
	err     error
	reloads int
}

// flight is a query under way, with the notices that overtook it: its answer may be older than they are.
type flight struct {
	started       time.Time
	overtaken     map[Hash]bool
	overtakenOrgs map[ids.ID]bool
}

func (f *flight) stale(h Hash, org ids.ID) bool { return f.overtaken[h] || f.overtakenOrgs[org] }

// takeOff registers a flight. Call it before the query is sent.
func (a *Authenticator) takeOff() *flight {
	f := &flight{started: a.clock.Now(), overtaken: map[Hash]bool{}, overtakenOrgs: map[ids.ID]bool{}}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flights[f] = struct{}{}
	return f
}

// query looks hashes up under a flight and notes whether the database is there. The flight stays registered: land it
// under the same lock that publishes the answer.
func (a *Authenticator) query(ctx context.Context, hashes []Hash) (*flight, map[Hash]Record, error) {
	f := a.takeOff()
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	records, err := a.source.Lookup(bounded, hashes)
	if err != nil {
		if ctx.Err() == nil && !a.away.Swap(true) {
			slog.Warn("keys: the database does not answer; known keys stay valid while the gateway's epoch does", "cause", err)
		}
		return f, nil, err
	}
	if a.away.Swap(false) {
		slog.Info("keys: the database answers again")
	}
	found := make(map[Hash]Record, len(records))
	for _, r := range records {
		found[r.Hash] = r
	}
	return f, found, nil
}

// load waits for the key to be looked up. A nil entry without an error says that there is no such key.
func (a *Authenticator) load(ctx context.Context, h Hash) (*entry, error) {
	c, err := a.join(h)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.entry, c.err
	case <-ctx.Done():
		return nil, cannotCheck(ctx.Err())
	}
}

// join finds the lookup of h, or asks for one.
func (a *Authenticator) join(h Hash) (*call, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.waiting[h]; c != nil {
		return c, nil
	}
	if a.stopped {
		return nil, cannotCheck(errors.New("keys: the authenticator has stopped"))
	}
	if len(a.waiting) >= maxWaiting {
		return nil, cannotCheck(errors.New("keys: too many unknown keys at once"))
	}
	c := &call{done: make(chan struct{})}
	a.waiting[h] = c
	a.queue = append(a.queue, h)
	a.nudge()
	return c, nil
}

func (a *Authenticator) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// loadLoop answers those who wait until ctx ends; then they get an error.
func (a *Authenticator) loadLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			a.refuseAll(ctx.Err())
			return
		case <-a.wake:
			for batch := a.nextBatch(); len(batch) > 0 && ctx.Err() == nil; batch = a.nextBatch() {
				a.loadBatch(ctx, batch)
			}
		}
	}
}

func (a *Authenticator) nextBatch() []Hash {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.queue), maxBatch)
	batch := a.queue[:n:n]
	a.queue = a.queue[n:]
	return batch
}

func (a *Authenticator) loadBatch(ctx context.Context, batch []Hash) {
	f, found, err := a.query(ctx, batch)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.flights, f)
	for _, h := range batch {
		c := a.waiting[h]
		r, exists := found[h]
		switch {
		case err != nil:
			c.err = cannotCheck(err)
		case f.stale(h, r.Principal.Org):
			if c.reloads++; c.reloads <= maxReloads {
				a.queue = append(a.queue, h)
				a.nudge()
				continue
			}
			c.err = cannotCheck(errors.New("keys: notices kept overtaking the lookup"))
		case exists:
			c.entry = a.publish(r, f)
		default:
			a.absent.add(h, f.started.Add(absentTTL))
		}
		delete(a.waiting, h)
		close(c.done)
	}
}

// publish puts a record in the cache. The lock must be held.
func (a *Authenticator) publish(r Record, f *flight) *entry {
	e := &entry{Record: r, loaded: f.started}
	if !r.LastUsed.IsZero() {
		e.stored.Store(r.LastUsed.UnixNano())
	}
	if old := a.entries[r.Hash]; old != nil {
		e.used.Store(old.used.Load())
		e.stored.Store(max(e.stored.Load(), old.stored.Load()))
	}
	a.entries[r.Hash] = e
	return e
}

func (a *Authenticator) refuseAll(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for h, c := range a.waiting {
		c.err = cannotCheck(cause)
		delete(a.waiting, h)
		close(c.done)
	}
	a.queue, a.stopped = nil, true
}
