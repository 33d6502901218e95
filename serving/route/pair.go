package route

import (
	"slices"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Hand-overs.
const (
	// maxTransfers is how many prompts may be on their way from an engine, or to one: above that engines wait for each other
	// for minutes instead of refusing.
	maxTransfers = 64
	// A hand-over costs a round trip and the bytes of the cache: about 200 KB a token over 50 GB/s.
	transferFixed    = 4 * time.Millisecond
	transferPerToken = 4 * time.Microsecond
)

// full is the code of the fault that says that a place will be free soon.
const full = "transfers_full"

func errFull() error {
	return fault.New(fault.Unavailable, "The model's engines are busy. Please retry shortly.").WithCode(full).WithRetryAfter(time.Second)
}

// Full reports whether Pick failed only because too many prompts are being handed over: Freed tells when to try again.
func Full(err error) bool {
	return err != nil && fault.Of(err).Code == full
}

// Freed gives a channel that is closed when the next hand-over has ended.
func (r *Router) Freed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed == nil {
		r.freed = make(chan struct{})
	}
	return r.freed
}

// partHits is how many prompt tokens each prefill and decode engine is believed to hold, and their ranks.
type partHits struct {
	hits  map[ids.ID]int64
	ranks rankHits
}

// partHits asks the index for the engines of candidates in parts; nil when there are none.
func (r *Router) partHits(req *Request) *partHits {
	parts := *req
	parts.Candidates = nil
	for i := range req.Candidates {
		for _, list := range [...][]ids.ID{req.Candidates[i].Prefill, req.Candidates[i].Decode} {
			for _, id := range list {
				parts.Candidates = append(parts.Candidates, Candidate{Unit: id})
			}
		}
	}
	if parts.Candidates == nil {
		return nil
	}
	hits := r.index.match(&parts)
	h := &partHits{hits: make(map[ids.ID]int64, len(hits)), ranks: r.matchRanks(&parts, hits)}
	for i, n := range hits {
		h.hits[parts.Candidates[i].Unit] = n
	}
	return h
}

// pair chooses the two engines of a unit: the one that will have computed the prompt first, and the one whose steps take
// least. busy says that only hand-overs under way stand against it.
func (r *Router) pair(req *Request, c *Candidate, h *partHits, now time.Time) (v View, t trust, busy bool) {
	whole, each := c.Whole, *req
	each.mixed = false
	decodes, dt, full := r.engines(req, c, c.Decode, h, now, !whole)
	if len(decodes) == 0 {
		return v, never, full
	}
	prefills, pt, pfull := r.engines(req, c, c.Prefill, h, now, true)
	if len(prefills) == 0 && !pfull && req.PromptTokens <= c.Alone {
		whole = true
	}
	if whole {
		v = decodes[r.policy.Choose(&each, decodes, r.turn)]
		v.Hand = &Hand{Unit: c.Unit}
		return v, dt, false
	}
	if len(prefills) == 0 {
		return v, never, pfull
	}
	first := each
	first.OutputTokens = 1
	v = prefills[r.policy.Choose(&first, prefills, r.turn)]
	for i := range decodes { // the prompt comes with its cache
		decodes[i].HitTokens, decodes[i].BookedPrefill, decodes[i].QueuedTokens = req.PromptTokens, 0, 0
	}
	v.Hand = &Hand{Unit: c.Unit, Decode: &decodes[r.policy.Choose(&each, decodes, r.turn)],
		Transfer: transferFixed + transferPerToken*time.Duration(req.PromptTokens)}
	return v, min(pt, dt), false
}

// engines gives the views of a role's engines that may serve, the sure ones, else the doubtful ones.
func (r *Router) engines(req *Request, c *Candidate, list []ids.ID, h *partHits, now time.Time, hands bool) (views []View, t trust, busy bool) {
	for _, id := range list {
		if slices.Contains(req.Exclude, id) {
			continue
		}
		v, how := r.view(id, c.Attached, h.hits[id], now)
		switch {
		case how == never || how < t:
		case hands && v.unit.incoming >= maxTransfers:
			busy = true
		case how > t:
			views, t = append(views[:0], v), how
		default:
			views = append(views, v)
		}
	}
	return views, t, busy && len(views) == 0
}

// bookPair books a unit in parts: both engines, or the one that does all.
func (r *Router) bookPair(req *Request, v *View, h *partHits, now time.Time) *Booking {
	exact := len(req.Hashes) > 0 && !req.Approximate
	rank, hit := r.chooseRank(req, v, h.ranks)
	hit = min(hit, max(req.PromptTokens-1, 0))
	first := &Booking{Unit: v.Hand.Unit, Engine: v.Unit, Rank: rank, HitTokens: hit, router: r, unit: v.unit, model: req.Model, made: now,
		prefill: max(req.PromptTokens-hit, 0), total: req.PromptTokens, exactPredicts: exact}
	if req.Approximate {
		r.index.learn(req.Model, v.Unit, req.Hashes)
	}
	d := v.Hand.Decode
	if d == nil {
		first.total += req.OutputTokens
		v.unit.book(first)
		return first
	}
	b := &Booking{Unit: v.Hand.Unit, Engine: d.Unit, Rank: AnyRank, Prefill: first, HitTokens: hit, router: r, unit: d.unit, model: req.Model, made: now,
		total: req.PromptTokens + req.OutputTokens, transfers: true}
	v.unit.book(first)
	d.unit.book(b)
	v.unit.incoming++
	d.unit.incoming++
	return b
}

// arrived ends a hand-over, once: its prompt has come, or never will. The router's lock is held.
func (b *Booking) arrived() {
	if !b.transfers {
		return
	}
	b.transfers = false
	b.unit.incoming--
	b.Prefill.unit.incoming--
	if r := b.router; r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

// DoesAll says that the engine computes the prompt after all: the one that should have is lost.
func (b *Booking) DoesAll() {
	b.router.mu.Lock()
	defer b.router.mu.Unlock()
	if b.done || b.prefilled || b.Prefill == nil || b.prefill > 0 {
		return
	}
	b.arrived()
	b.prefill = b.Prefill.prefill
	b.unit.prefill += b.prefill
}
