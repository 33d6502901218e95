package route

import (
	"time"

	"millrace/internal/ids"
)

// View is one eligible unit as a policy sees it.
type View struct {
	Unit          ids.ID
	HitTokens     int64 // prompt tokens its cache is believed to hold
	Requests      int   // in flight there, ours and others'
	BookedPrefill int64 // our prompt tokens sent and not yet computed
	BookedKV      int64 // our tokens in its KV cache, now or soon
	QueuedTokens  int64 // prompt tokens waiting, as the engine reports
	KVUsage       float64

	Hand *Hand // of a unit whose engines hand prompts over: then all above is of the one that computes the prompt

	unit *unit
}

// Hand is how a unit of several engines would serve a request.
type Hand struct {
	Unit     ids.ID
	Decode   *View         // the engine that answers; nil = the one that computes the prompt
	Transfer time.Duration // what the hand-over costs
}

// Policy chooses among eligible units (never empty) and returns an index. turn grows by one per request: use it to rotate
// ties. Choose runs under the router's lock: it must be quick and must not call the router.
type Policy interface {
	Choose(req *Request, units []View, turn uint64) int
}

// Cost is the fitted cost model of a recipe: prefill of s new tokens takes A0 + A1*s; a decode step takes
// B0 + B1*batch + B2*tokens in the KV cache.
type Cost struct {
	A0, A1, B0, B1, B2 time.Duration
}

// DefaultCost is a middling GPU server, for units whose recipe has no fit of its own: only ratios matter for routing.
var DefaultCost = Cost{A0: 5 * time.Millisecond, A1: 50 * time.Microsecond, B0: 10 * time.Millisecond, B1: 25 * time.Microsecond, B2: 50 * time.Nanosecond}

// PredictedFinish sends a request where it should finish first: work booked there (counted twice: predictions err, and
// a queue that is avoided is worth more than a hit), its own uncached prefill, and its decode at the batch it would join.
type PredictedFinish struct {
	Cost Cost
}

const (
	bookedWeight   = 2
	decodeHorizon  = 256 // output tokens looked ahead: beyond, load has changed anyway
	nearlyEqualDiv = 50  // predictions within 2 % are a tie
	heldUp         = 8   // running answers that a prefill between them holds up: so many weigh as much as the prefill itself
)

// Choose implements Policy.
func (p PredictedFinish) Choose(req *Request, units []View, turn uint64) int {
	best, bestAt := 0, p.finish(req, &units[0])
	for i := 1; i < len(units); i++ {
		at := p.finish(req, &units[i])
		margin := bestAt / nearlyEqualDiv
		if at < bestAt-margin || at <= bestAt+margin && p.prefer(req, units, i, best, turn) {
			best, bestAt = i, at
		}
	}
	return best
}

func (p PredictedFinish) finish(req *Request, v *View) time.Duration {
	c := p.Cost
	uncached := max(req.PromptTokens-v.HitTokens, 1)
	booked := max(v.BookedPrefill, v.QueuedTokens)
	d := v
	if v.Hand != nil && v.Hand.Decode != nil {
		d = v.Hand.Decode
	}
	step := c.B0 + c.B1*time.Duration(d.Requests+1) + c.B2*time.Duration(d.BookedKV+req.PromptTokens)
	out := min(max(req.OutputTokens, 1), decodeHorizon)
	at := bookedWeight*c.A1*time.Duration(booked) + c.A0 + c.A1*time.Duration(uncached) + step*time.Duration(out)
	switch {
	case v.Hand != nil:
		at += v.Hand.Transfer
	case req.mixed: // this one computes prompts between its answers
		at += c.A1 * time.Duration(uncached) * time.Duration(min(v.Requests, heldUp)) / heldUp
	}
	return at
}

// prefer breaks a tie: more cached tokens, then the session's own unit, then taking turns.
func (p PredictedFinish) prefer(req *Request, units []View, a, b int, turn uint64) bool {
	if units[a].HitTokens != units[b].HitTokens {
		return units[a].HitTokens > units[b].HitTokens
	}
	key := req.Affinity
	if key == 0 {
		key = turn
	}
	return rendezvous(key, units[a].Unit) > rendezvous(key, units[b].Unit)
}

// rendezvous is a stable weight of a unit for a key: the highest wins, and only a lost unit's keys move.
func rendezvous(key uint64, id ids.ID) uint64 {
	h := key ^ 0x9e3779b97f4a7c15
	for _, b := range id {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}
