package plan

import (
	"fmt"
	"slices"

	"millrace/internal/ids"
	"millrace/serving/recipe"
)

// mend puts a broken unit right where it can be: each broken replica on what is left of its domain with its spares, else in
// another domain, else, when smaller is set, on what is left with an EP size that the recipe allows. The rest of the unit is
// not touched. It changes nothing when one of the replicas finds no place.
func (r *roster) mend(h *held, smaller bool) bool {
	before := h.unit.clone()
	var text string
	for p := range h.unit.Pools {
		role := h.unit.Pools[p].Role
		for i := range h.unit.Pools[p].Replicas {
			why := h.broken[[2]int{p, i}]
			if why == "" {
				continue
			}
			rep, ok := r.reseat(h, p, i, 0)
			said := fmt.Sprintf("%s: replica %d of %s is placed anew", why, i, role)
			if !ok && smaller {
				rep, ok = r.smaller(h, p, i)
				said = fmt.Sprintf("%s: replica %d of %s goes on with an EP size of %d, for all of it finds no room", why, i, role, rep.Expert)
			}
			if !ok {
				r.restore(h, &before)
				return false
			}
			text += said + ", " + r.whereText(&rep) + ". "
			r.swap(h, p, i, rep)
		}
	}
	r.noteRepair(h, text)
	return true
}

// smaller finds the largest allowed size that what is left of a replica's domain holds.
func (r *roster) smaller(h *held, p, i int) (Replica, bool) {
	pool, ok := h.want.d.Recipe.Pool(h.unit.Pools[p].Role)
	if !ok {
		return Replica{}, false
	}
	for _, e := range pool.ExpertTo {
		if now := h.unit.Pools[p].Replicas[i].Expert; now != 0 && e >= now || shrunkGPUs(pool, e) == 0 {
			continue
		}
		if rep, ok := r.reseat(h, p, i, e); ok {
			return rep, true
		}
	}
	return Replica{}, false
}

// shrunkGPUs is how many GPUs a replica takes with a smaller EP size; 0 = it cannot be shrunk to that.
func shrunkGPUs(p *recipe.Pool, expert int) int {
	q := p.Parallel
	if expert == 0 {
		return p.GPUs
	}
	if q.Expert == 0 || !slices.Contains(p.ExpertTo, expert) || q.Expert%expert != 0 {
		return 0
	}
	by := q.Expert / expert
	if q.Data > 1 && q.Data%by == 0 || q.Tensor > 1 && q.Tensor%by == 0 {
		return p.GPUs / by
	}
	return 0
}

// grow brings a unit that was made smaller back to its size, where its domain has the GPUs again.
func (r *roster) grow(h *held) {
	var text string
	for p := range h.unit.Pools {
		for i := range h.unit.Pools[p].Replicas {
			old := h.unit.Pools[p].Replicas[i]
			if old.Expert == 0 {
				continue
			}
			rep, ok := r.reseat(h, p, i, 0)
			if !ok || rep.Domain != old.Domain {
				continue // elsewhere would interrupt it for longer than it gains
			}
			r.swap(h, p, i, rep)
			text += fmt.Sprintf("Replica %d of %s is whole again, %s. ", i, h.unit.Pools[p].Role, r.whereText(&rep))
		}
	}
	if text != "" {
		r.noteRepair(h, text)
	}
}

func (r *roster) noteRepair(h *held, text string) {
	text = text[:len(text)-1]
	h.unit.Why, r.texts[h.unit.ID] = text, text
	h.shrunk = false
	for p := range h.unit.Pools {
		for i := range h.unit.Pools[p].Replicas {
			h.shrunk = h.shrunk || h.unit.Pools[p].Replicas[i].Expert != 0
		}
	}
	clear(h.broken)
}

// swap replaces a replica in the books and in the unit.
func (r *roster) swap(h *held, p, i int, rep Replica) {
	for _, s := range h.unit.Pools[p].Replicas[i].Shards {
		r.leave(h, s)
	}
	r.enter(h.unit.ID, rep.Shards)
	h.unit.Pools[p].Replicas[i] = rep
}

// enter takes GPUs that were found free.
func (r *roster) enter(unit ids.ID, shards []Shard) {
	for _, s := range shards {
		at := r.b.byID[s.Host]
		if len(s.GPUs) == 0 {
			r.b.light[at]++
		}
		for _, g := range s.GPUs {
			r.inUse[[2]int{at, g}] = unit
			r.b.take(r.b.at[at][g], g)
		}
	}
}

// restore puts a unit back as it was.
func (r *roster) restore(h *held, before *Unit) {
	for p := range before.Pools {
		for i := range before.Pools[p].Replicas {
			was, is := &before.Pools[p].Replicas[i], &h.unit.Pools[p].Replicas[i]
			if equalReplica(was, is) {
				continue
			}
			for _, s := range is.Shards {
				r.leave(h, s)
			}
			for _, s := range was.Shards {
				r.seatShard(h, s)
			}
		}
	}
	h.unit = *before
}
