package sim

import (
	"context"
	"time"
)

// offer is a prompt's cache that a prefill engine keeps for a peer, from the moment that either side names it. All of it is
// guarded by the scheduler's lock.
type offer struct {
	owned  bool          // the prefill itself has come; else only the peer that wants it
	asked  int           // peers that wait for it
	held   []int32       // blocks, once computed
	until  time.Time     // the end of the lease on them
	begun  bool          // the transfer has begun
	ready  chan struct{} // closed when it was computed, or is gone
	ended  chan struct{} // closed when it is gone: taken over, expired or dropped
	tokens int
}

// offers are an engine's, by key.
type offers struct {
	byKey map[string]*offer
	lease time.Duration
}

func (q *scheduler) named(key string) *offer {
	o := q.offers.byKey[key]
	if o == nil {
		o = &offer{ready: make(chan struct{}), ended: make(chan struct{})}
		q.offers.byKey[key] = o
	}
	return o
}

// offerFor announces a cache that is about to be computed; nil when one of that name is there already.
func (q *scheduler) offerFor(key string) *offer {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire()
	o := q.named(key)
	if o.owned {
		return nil
	}
	o.owned = true
	return o
}

// keep lends a sequence's blocks instead of freeing them. The lock is held.
func (q *scheduler) keep(s *sequence) {
	o := s.lend
	o.held, o.tokens, o.until = s.held, s.prompt, q.now().Add(q.offers.lease)
	close(o.ready)
}

// forget frees what an offer keeps. The lock is held.
func (q *scheduler) forget(key string, o *offer) {
	if q.offers.byKey[key] != o {
		return
	}
	delete(q.offers.byKey, key)
	q.cache.release(o.held)
	o.held = nil
	if !isClosed(o.ready) {
		close(o.ready)
	}
	close(o.ended)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// withdraw drops an offer unless its transfer has begun or its cache was computed and lent: then the lease frees it.
func (q *scheduler) withdraw(key string, o *offer, evenLent bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if o.begun || isClosed(o.ready) && !evenLent {
		return
	}
	q.forget(key, o)
}

// expire frees what nobody fetched in time. The lock is held.
func (q *scheduler) expire() {
	now := q.now()
	for key, o := range q.offers.byKey {
		if isClosed(o.ready) && !o.begun && now.After(o.until) {
			q.stats.expired.Add(1)
			q.forget(key, o)
		}
	}
}

// handOver waits for an offer and gives it away: true when the whole cache went over. wait says that its prefill may come yet.
func (q *scheduler) handOver(ctx context.Context, key string, wait bool, takes func() bool) bool {
	q.mu.Lock()
	q.expire()
	o := q.offers.byKey[key]
	if o == nil && !wait || o != nil && o.begun {
		q.mu.Unlock()
		return false
	}
	o = q.named(key)
	o.asked++
	q.mu.Unlock()
	select {
	case <-o.ready:
	case <-ctx.Done():
	}
	q.mu.Lock()
	o.asked--
	if !isClosed(o.ready) {
		if !o.owned && o.asked == 0 {
			q.forget(key, o)
		}
		q.mu.Unlock()
		return false
	}
	if q.offers.byKey[key] != o || o.begun {
		q.mu.Unlock()
		return false
	}
	o.begun = true
	q.mu.Unlock()
	whole := takes()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stats.transfers.Add(1)
	q.forget(key, o)
	return whole
}

// lent counts what is kept for peers: names in use, and blocks.
func (q *scheduler) lent() (names, blocks int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire()
	for _, o := range q.offers.byKey {
		blocks += len(o.held)
	}
	return len(q.offers.byKey), blocks
}

// forgetAll drops every offer: the engine has died.
func (q *scheduler) forgetAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, o := range q.offers.byKey {
		q.forget(key, o)
	}
}
