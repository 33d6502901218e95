package route

import (
	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine/kvevent"
)

// AnyRank leaves the choice of a data-parallel rank to the engine.
const AnyRank = -1

// rankWork is this gateway's own work at one rank of an engine.
type rankWork struct {
	requests, then int // now, and when the last report came: these are part of what it says
	prefill, kv    int64
}

// rankHits is how many prompt tokens each rank of an engine is believed to hold, by engine; nil when no candidate has ranks.
type rankHits map[ids.ID][]int64

// ranked finds the candidates that are engines with several ranks.
func (r *Router) ranked(req *Request) map[ids.ID][]wire.RankLoad {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all map[ids.ID][]wire.RankLoad
	for i := range req.Candidates {
		id := req.Candidates[i].Unit
		if u := r.units[id]; u != nil && len(u.ranks) > 1 {
			if all == nil {
				all = map[ids.ID][]wire.RankLoad{}
			}
			all[id] = u.ranks
		}
	}
	return all
}

// matchRanks asks the index rank by rank, and gives each of those candidates the hit of its best one.
func (r *Router) matchRanks(req *Request, hits []int64) rankHits {
	ranked := r.ranked(req)
	if ranked == nil || req.Approximate {
		return nil
	}
	all := make(rankHits, len(ranked))
	for i := range req.Candidates {
		id := req.Candidates[i].Unit
		ranks := ranked[id]
		if ranks == nil {
			continue
		}
		hits[i] = 0
		for _, rank := range ranks {
			n := r.index.matchRank(req, id, rank.Rank)
			all[id] = append(all[id], n)
			hits[i] = max(hits[i], n)
		}
	}
	return all
}

// matchRank is how many prompt tokens one rank of an engine holds from the start, on whichever of its hosts it is: a rank is
// on one, so all their slots may be looked at as one.
func (x *indexes) matchRank(req *Request, id ids.ID, rank int) int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	slots, n := x.shards[id], 0
	if s, ok := x.slot[id]; ok {
		slots |= 1 << s
	}
	for slots != 0 && n < len(req.Hashes) && x.exact[kvevent.OfRank(req.Hashes[n], rank)]&slots != 0 {
		n++
	}
	return int64(n) * int64(req.BlockSize)
}

// chooseRank picks the rank of the chosen engine as the policy picks an engine, and gives its own hit. Engines choose by how
// many requests each rank has, and so let turns of one conversation lose their prefixes.
func (r *Router) chooseRank(req *Request, v *View, hits rankHits) (rank int, hit int64) {
	u, held := v.unit, hits[v.Unit]
	if len(u.ranks) < 2 || len(held) != len(u.ranks) {
		return AnyRank, v.HitTokens
	}
	views := make([]View, len(u.ranks))
	for i, l := range u.ranks {
		w := u.work[l.Rank]
		views[i] = View{Unit: v.Unit, HitTokens: held[i], Requests: w.requests + max(l.Running+l.Waiting-w.then, 0), BookedPrefill: w.prefill, BookedKV: w.kv,
			QueuedTokens: l.QueuedTokens, KVUsage: l.KVUsage, unit: u}
	}
	at := r.policy.Choose(req, views, r.turn)
	return u.ranks[at].Rank, held[at]
}

// observeRanks takes in what a report says of ranks. One that is gone has nothing any more.
func (u *unit) observeRanks(l *wire.Load) {
	u.ranks = l.Ranks
	if len(l.Ranks) == 0 {
		u.work = nil
		return
	}
	work := make(map[int]rankWork, len(l.Ranks))
	for _, rank := range l.Ranks {
		w := u.work[rank.Rank]
		w.then = w.requests
		work[rank.Rank] = w
	}
	u.work = work
}

// atRank changes this gateway's own work at a rank.
func (u *unit) atRank(rank, requests int, prefill, kv int64) {
	if w, known := u.work[rank]; known {
		w.requests, w.prefill, w.kv = max(w.requests+requests, 0), max(w.prefill+prefill, 0), max(w.kv+kv, 0)
		u.work[rank] = w
	}
}
