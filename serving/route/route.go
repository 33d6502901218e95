// Package route decides which unit serves a request: the one predicted to finish it first, given what its prefix cache
// holds, what its engine reports and what this gateway has already sent there.
//
// It owns the prefix index (fed by engines' KV events), the bookings of this gateway and the units' live state. It does
// not own the catalogue (which units exist), the engines' connections, or any money: losing everything here costs cache
// hits, never a charge.
//
// Words. Hash: one 64-bit chain hash per prompt block (engine/kvevent.ChainHashes), salted per organization, so no
// organization can match another's blocks. Hit: the longest run of blocks from the start that a unit holds. Booking: work
// this gateway has sent and not seen the end of; it has an owner (the request) and an expiry.
//
// Invariants: a unit whose state is known and not ready gets nothing; stale facts lower trust, they never reject the last
// unit; every booking ends exactly once; removing blocks is idempotent; a policy sees only eligible units.
package route

import (
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Limits and times of routing.
const (
	factsFresh    = 3 * time.Second // older load reports count less
	bookingExpiry = 2 * time.Hour   // above the longest request: a lost booking cannot weigh for ever
	ejectFirst    = time.Second     // after the first failure to reach a unit; doubles to ejectMax
	ejectMax      = 15 * time.Second
)

// Candidate is a unit that could serve the request.
type Candidate struct {
	Unit     ids.ID
	Attached bool // an engine without an agent: it may serve before any fact about it arrives

	// Of a unit whose engines hand prompts over; Unit then has no state of its own.
	Prefill, Decode []ids.ID
	Alone           int64 // prompt tokens up to which a decode engine does without prefill; 0 = never
	Whole           bool  // this request is not handed over: a decode engine does all of it
}

// Request is what routing may know of a request.
type Request struct {
	Model        ids.ID
	Candidates   []Candidate
	Hashes       []uint64 // chain hashes of the prompt's blocks; nil when unknown
	Approximate  bool     // Hashes come from prompt bytes, not tokens: matched against own past routing only
	BlockSize    int      // tokens per hash
	PromptTokens int64    // counted, or bounded
	OutputTokens int64    // expected
	Affinity     uint64   // hash of a session hint within the org; 0 = none
	mixed        bool     // some of the candidates hand prompts over
	Exclude      []ids.ID // units and engines of units that already failed this request
}

// Outcome says how a booking ended.
type Outcome uint8

// The outcomes. Only Failed counts against the unit.
const (
	OK Outcome = iota
	Failed
	Cancelled
)

// Router is safe for concurrent use.
type Router struct {
	clock  clock.Clock
	policy Policy

	mu    sync.Mutex
	units map[ids.ID]*unit
	turn  uint64 // rotates ties

	index *indexes
	stats stats

	freed chan struct{} // closed when a transfer has ended; nil = nobody waits
}

// New makes a router with the given policy; nil means PredictedFinish with the default cost model.
func New(c clock.Clock, p Policy) *Router {
	if p == nil {
		p = PredictedFinish{Cost: DefaultCost}
	}
	return &Router{clock: c, policy: p, units: map[ids.ID]*unit{}, index: newIndexes()}
}

// Booking is work sent to a unit. Done must be called exactly once; further calls do nothing.
type Booking struct {
	Unit      ids.ID
	Engine    ids.ID   // the unit, or the part of it that answers
	Prefill   *Booking // of the part that computes the prompt; nil = the same engine does
	Rank      int      // the engine's data-parallel rank that shall compute it; AnyRank = the engine's choice
	HitTokens int64    // predicted cached prompt tokens

	router        *Router
	unit          *unit
	prefill       int64 // uncached prompt tokens still to compute
	total         int64 // prompt + expected output: tokens that will sit in the KV cache
	made          time.Time
	prefilled     bool
	done          bool
	model         ids.ID
	exactPredicts bool
	transfers     bool // the prompt's cache is on its way here, or will be
}

// Pick chooses a unit and books the work. It fails with Unavailable when no candidate can serve.
func (r *Router) Pick(req Request) (*Booking, error) {
	hits := r.index.match(&req)
	ranks := r.matchRanks(&req, hits)
	handed := r.partHits(&req)
	req.mixed = handed != nil
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	views, full := r.eligible(&req, hits, handed, now)
	if len(views) == 0 && full {
		return nil, errFull()
	}
	if len(views) == 0 {
		return nil, fault.New(fault.Unavailable, "No engine is ready for this model right now. Please retry shortly.").
			WithCode("no_engine_ready").WithRetryAfter(2 * time.Second)
	}
	r.turn++
	v := &views[r.policy.Choose(&req, views, r.turn)]
	if v.Hand != nil {
		return r.bookPair(&req, v, handed, now), nil
	}
	rank, hit := r.chooseRank(&req, v, ranks)
	hit = min(hit, max(req.PromptTokens-1, 0))
	b := &Booking{Unit: v.Unit, Engine: v.Unit, Rank: rank, HitTokens: hit, router: r, unit: v.unit, model: req.Model, made: now,
		prefill: max(req.PromptTokens-hit, 0), total: req.PromptTokens + req.OutputTokens,
		exactPredicts: len(req.Hashes) > 0 && !req.Approximate}
	v.unit.book(b)
	if req.Approximate {
		r.index.learn(req.Model, v.Unit, req.Hashes)
	}
	return b, nil
}

// FirstToken frees the prefill part of the booking.
func (b *Booking) FirstToken() {
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if !b.done && !b.prefilled {
		b.prefilled = true
		b.unit.prefill -= b.prefill
		b.unit.atRank(b.Rank, 0, -b.prefill, 0)
	}
	b.arrived()
}

// Done ends the booking. cached is what the engine said it read from its cache, -1 when unknown.
func (b *Booking) Done(outcome Outcome, cached int64) {
	r := b.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.done {
		return
	}
	b.end()
	switch outcome {
	case Failed:
		b.unit.failed(r.clock.Now())
	case OK:
		b.unit.failures = 0
	}
	if b.exactPredicts && cached >= 0 && outcome == OK {
		r.stats.compare(b.HitTokens, cached)
	}
}

func (b *Booking) end() {
	b.done = true
	if !b.prefilled {
		b.unit.prefill -= b.prefill
		b.unit.atRank(b.Rank, 0, -b.prefill, 0)
	}
	b.unit.atRank(b.Rank, -1, 0, -b.total)
	b.unit.kv -= b.total
	delete(b.unit.bookings, b)
	b.arrived()
}

// Apply takes in one fact from an agent or a prober.
func (r *Router) Apply(f wire.Fact) (needSnapshot bool) {
	if f.Load != nil {
		r.mu.Lock()
		u := r.unitOf(f.Load.Unit)
		restarted := u.observe(f.Load, r.clock.Now())
		r.mu.Unlock()
		if restarted {
			r.index.forget(f.Load.Unit, f.Load.Engine)
		}
	}
	if f.KV != nil {
		return !r.index.apply(f.KV)
	}
	return false
}

// Forget drops a unit that is gone from the catalogue.
func (r *Router) Forget(id ids.ID) {
	r.mu.Lock()
	delete(r.units, id)
	r.mu.Unlock()
	r.index.forget(id, ids.Nil)
}

func (r *Router) unitOf(id ids.ID) *unit {
	u := r.units[id]
	if u == nil {
		u = &unit{bookings: map[*Booking]struct{}{}}
		r.units[id] = u
	}
	return u
}
