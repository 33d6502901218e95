package route

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
}

// Stats reads the counters.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	s := Stats{Requests: r.stats.requests, PredictedTokens: r.stats.predicted, ReportedTokens: r.stats.reported, Off: r.stats.off, Units: len(r.units)}
	for _, u := range r.units {
		s.Bookings += len(u.bookings)
	}
	r.mu.Unlock()
	r.index.mu.RLock()
	s.Blocks = len(r.index.exact)
	r.index.mu.RUnlock()
	return s
}
