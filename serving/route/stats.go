package route

import (
	"millrace/agents/wire"
	"millrace/internal/ids"
)

// stats compares what the index predicted with what engines reported: when they part, the index is wrong (another
// template, another salt, lost events) and routing silently loses its hits.
type stats struct {
	requests  int64
	predicted int64 // tokens
	reported  int64 // tokens
	off       int64 // requests whose prediction was off by more than offBy tokens
}

const offBy = 64

func (s *stats) compare(predicted, reported int64) {
	s.requests++
	s.predicted += predicted
	s.reported += reported
	if d := predicted - reported; d > offBy || d < -offBy {
		s.off++
	}
}

// Stats is a reading of the router's self-check and size.
type Stats struct {
	Requests, PredictedTokens, ReportedTokens, Off int64
	Bookings, Blocks, Units                        int
	Transfers                                      int // caches on their way
}

// Stats reads the counters.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	s := Stats{Requests: r.stats.requests, PredictedTokens: r.stats.predicted, ReportedTokens: r.stats.reported, Off: r.stats.off, Units: len(r.units)}
	for _, u := range r.units {
		s.Bookings += len(u.bookings)
		for b := range u.bookings {
			if b.transfers {
				s.Transfers++
			}
		}
	}
	r.mu.Unlock()
	r.index.mu.RLock()
	s.Blocks = len(r.index.exact)
	r.index.mu.RUnlock()
	return s
}

// Ready reports whether an engine may get work, as far as is known.
func (r *Router) Ready(engine ids.ID, attached bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, t := r.view(engine, attached, 0, r.clock.Now())
	return t != never
}

// Unheard counts the engines of which nothing was heard yet. Others that were heard of do not make up for them.
func (r *Router) Unheard(engines []ids.ID) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range engines {
		if u := r.units[id]; u == nil || u.state == "" {
			n++
		}
	}
	return n
}

// Spare is what units say of the room that they have.
type Spare struct {
	Ready   int // units that are ready and were heard of lately
	Waiting int // requests in their queues
}

// Spare sums up the latest reports of units. Those that are not ready, or that nobody heard of lately, have no room.
func (r *Router) Spare(units []ids.ID) (s Spare) {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range units {
		if u := r.units[id]; u != nil && u.state == wire.StateReady && now.Sub(u.heard) < factsFresh {
			s.Ready++
			s.Waiting += u.waiting
		}
	}
	return s
}
