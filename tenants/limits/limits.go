// Package limits owns how fast a key may be used: requests per minute, tokens per minute, requests at once. It does not
// own what the numbers are (tenants/keys carries them) nor money.
//
// Words. Lease: one admitted request's share of its key's limits. Reserved tokens: an estimate taken at the start, made
// right at the end.
//
// Invariants: a request takes from all its key's limits or from none; a lease is given back exactly once; a key without
// limits costs nothing; memory holds only keys that were used within the last minutes. Limits hold per process: many
// gateways allow as many times as much.
package limits

import (
	"fmt"
	"math/bits"
	"sync"
	"time"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Limits of a key; 0 = none.
type Limits struct {
	RPM         int64 // requests per minute
	TPM         int64 // tokens per minute, prompt and answer together
	Concurrency int64 // requests at once
}

// Sizes and times.
const (
	window       = time.Minute // a full window may be used in one burst
	shards       = 64
	sweepAt      = 1024 // keys in a shard before it is looked over for idle ones
	busyRetry    = time.Second
	maxReserving = 1 << 27 // tokens a request can reserve: with a minute in nanoseconds they fit an int64
)

// Limiter is safe for concurrent use.
type Limiter struct {
	clock  clock.Clock
	shards [shards]shard
}

type shard struct {
	mu    sync.Mutex
	keys  map[ids.ID]*state
	sweep int // keys at which the next look-over is due
}

// state is one key's: two GCRA clocks ("theoretical arrival times": when the bucket will be full again) and a count.
type state struct {
	requests, tokens time.Time
	running          int64
}

// New makes a limiter.
func New(c clock.Clock) *Limiter {
	l := &Limiter{clock: c}
	for i := range l.shards {
		l.shards[i] = shard{keys: map[ids.ID]*state{}, sweep: sweepAt}
	}
	return l
}

// Take admits one request that will need about so many tokens, or fails with a fault of kind Limited that says in words
// when to come again. The lease must be ended by Cancel or Done.
func (l *Limiter) Take(key ids.ID, lim Limits, tokens int64) (Lease, error) {
	if lim == (Limits{}) {
		return Lease{}, nil
	}
	now := l.clock.Now()
	sh := &l.shards[key[len(key)-1]%shards]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.state(key, now)
	if lim.Concurrency > 0 && s.running >= lim.Concurrency {
		return Lease{}, fault.New(fault.Limited, "This key may run %d requests at once and does. Try again when one has ended.", lim.Concurrency).
			WithCode("rate_limit_exceeded").WithRetryAfter(busyRetry)
	}
	lease := Lease{shard: sh, state: s, limits: lim, clock: l.clock}
	if lim.TPM > 0 { // a request larger than the limit waits for a full bucket instead of for ever
		lease.reserved = max(min(tokens, lim.TPM, maxReserving), 0)
	}
	requests, wait := advance(s.requests, now, 1, lim.RPM)
	if wait > 0 {
		return Lease{}, limited("requests", lim.RPM, wait)
	}
	spent, wait := advance(s.tokens, now, lease.reserved, lim.TPM)
	if wait > 0 {
		return Lease{}, limited("tokens", lim.TPM, wait)
	}
	s.requests, s.tokens = requests, spent
	s.running++
	lease.requestsLeft, lease.requestsReset = level(requests, now, lim.RPM)
	lease.tokensLeft, lease.tokensReset = level(spent, now, lim.TPM)
	return lease, nil
}

func limited(what string, limit int64, wait time.Duration) error {
	return fault.New(fault.Limited, "Rate limit reached: this key may use %d %s a minute. Try again in %s.", limit, what, words(wait)).
		WithCode("rate_limit_exceeded").WithRetryAfter(wait)
}

// words says a time as a person would.
func words(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d milliseconds", max(d.Milliseconds(), 1))
	}
	return fmt.Sprintf("%.1f seconds", d.Seconds())
}

// cost is how long n units keep a bucket from being full.
func cost(n, perMinute int64) time.Duration {
	return time.Duration(n) * window / time.Duration(perMinute)
}

// advance gives the bucket's clock after n units, or how long until they fit.
func advance(full, now time.Time, n, perMinute int64) (time.Time, time.Duration) {
	if perMinute <= 0 {
		return full, 0
	}
	if full.Before(now) {
		full = now
	}
	full = full.Add(cost(n, perMinute))
	if wait := full.Sub(now) - window; wait > 0 {
		return full, wait
	}
	return full, 0
}

// level is what is left in a bucket and when it will be full.
func level(full, now time.Time, perMinute int64) (left int64, reset time.Duration) {
	if perMinute <= 0 {
		return 0, 0
	}
	reset = max(full.Sub(now), 0)
	if reset >= window {
		return 0, reset
	}
	high, low := bits.Mul64(uint64(window-reset), uint64(perMinute))
	share, _ := bits.Div64(high, low, uint64(window)) // at most perMinute
	return int64(share), reset
}

func (sh *shard) state(key ids.ID, now time.Time) *state {
	s := sh.keys[key]
	if s != nil {
		return s
	}
	if len(sh.keys) >= sh.sweep {
		for k, old := range sh.keys {
			if old.running == 0 && !old.requests.After(now) && !old.tokens.After(now) {
				delete(sh.keys, k)
			}
		}
		sh.sweep = max(2*len(sh.keys), sweepAt)
	}
	s = &state{}
	sh.keys[key] = s
	return s
}
