package route

import (
	"slices"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// unit is what this gateway knows of one unit: the last report and its own bookings. Guarded by Router.mu.
type unit struct {
	state    string // wire.State…; "" = nothing heard
	engine   ids.ID
	running  int
	waiting  int
	queued   int64
	kvUsage  float64
	heard    time.Time
	ownThen  int // own bookings when the report arrived: they are part of running and waiting
	bookings map[*Booking]struct{}
	prefill  int64 // own booked prompt tokens not yet computed
	kv       int64 // own booked tokens in the KV cache
	incoming int   // caches on their way to it or from it
	failures int
	ranks    []wire.RankLoad // data-parallel ranks, when there are several
	work     map[int]rankWork
	ejected  time.Time // not before this time, unless nothing else is left
}

// observe takes a report and says whether the engine process is another one than before (its cache is empty).
func (u *unit) observe(l *wire.Load, now time.Time) (restarted bool) {
	restarted = l.Engine != ids.Nil && u.engine != ids.Nil && u.engine != l.Engine
	if l.Engine != ids.Nil {
		u.engine = l.Engine
	}
	if l.State == wire.StateReady && u.state != wire.StateReady || restarted {
		u.failures, u.ejected = 0, time.Time{}
	}
	u.state, u.running, u.waiting, u.queued, u.kvUsage = l.State, l.Running, l.Waiting, l.QueuedTokens, l.KVUsage
	u.heard, u.ownThen = now, len(u.bookings)
	u.observeRanks(l)
	return restarted
}

func (u *unit) book(b *Booking) {
	u.bookings[b] = struct{}{}
	u.prefill += b.prefill
	u.kv += b.total
	u.atRank(b.Rank, 1, b.prefill, b.total)
}

// failed ejects the unit for a doubling while: passive health, for engines and networks that die between reports.
func (u *unit) failed(now time.Time) {
	wait := min(ejectFirst<<min(u.failures, 10), ejectMax)
	u.failures++
	u.ejected = now.Add(wait)
}

// requests estimates how many requests the unit works on: own bookings exactly, others' from the last report.
func (u *unit) requests() int {
	return len(u.bookings) + max(u.running+u.waiting-u.ownThen, 0)
}

// eligible lists the candidates that may serve: ready and reachable ones first; when there are none, those whose facts
// are only stale or that were ejected, since a doubtful unit beats none. A unit known not to be ready is never listed.
// full says that there are units, but that no more prompts can be handed over in them now.
func (r *Router) eligible(req *Request, hits []int64, handed *partHits, now time.Time) (list []View, full bool) {
	good := make([]View, 0, len(req.Candidates))
	var doubtful []View
	for i := range req.Candidates {
		c := &req.Candidates[i]
		if slices.Contains(req.Exclude, c.Unit) {
			continue
		}
		var v View
		var trust trust
		if handed != nil && len(c.Decode) > 0 {
			var busy bool
			v, trust, busy = r.pair(req, c, handed, now)
			full = full || busy
		} else {
			v, trust = r.view(c.Unit, c.Attached, hits[i], now)
		}
		switch trust {
		case doubt:
			doubtful = append(doubtful, v)
		case sure:
			good = append(good, v)
		}
	}
	if len(good) == 0 {
		return doubtful, full
	}
	return good, full
}

// trust is how sure it is that an engine would serve.
type trust uint8

const (
	never trust = iota
	doubt
	sure
)

// view is one engine as a policy sees it.
func (r *Router) view(id ids.ID, attached bool, hit int64, now time.Time) (View, trust) {
	u := r.unitOf(id)
	u.expire(now)
	v := View{Unit: id, HitTokens: hit, Requests: u.requests(), BookedPrefill: u.prefill, BookedKV: u.kv,
		QueuedTokens: u.queued, KVUsage: u.kvUsage, unit: u}
	known := u.state != ""
	fresh := known && now.Sub(u.heard) < factsFresh
	switch {
	case known && u.state != wire.StateReady, !known && !attached:
		return v, never
	case now.Before(u.ejected), known && !fresh && !attached:
		return v, doubt
	}
	return v, sure
}

func (u *unit) expire(now time.Time) {
	for b := range u.bookings {
		if now.Sub(b.made) <= bookingExpiry {
			return // nearly always the first one looked at: the set is small and young
		}
		b.end()
	}
}
