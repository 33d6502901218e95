package plan

import (
	"fmt"
	"slices"

	"millrace/internal/ids"
)

// held is a unit of the current plan.
type held struct {
	unit    Unit
	want    *want             // of its release; nil = not wanted any more
	broken  map[[2]int]string // by pool and replica: why it cannot serve
	leaving string            // why its hosts should be left
	shrunk  bool
	kind    int64 // the dearest of its hosts
	order   int   // in the current plan
	gone    string
}

// roster is the current plan's units and what becomes of them.
type roster struct {
	b     *board
	units []*held
	inUse map[[2]int]ids.ID // host and GPU index -> unit
	texts map[ids.ID]string // reasons for moves
}

// newRoster seats what the current plan has, and looks what is wrong with it.
func newRoster(b *board, current *Plan) *roster {
	r := &roster{b: b, inUse: map[[2]int]ids.ID{}, texts: map[ids.ID]string{}}
	if current == nil {
		return r
	}
	byRelease := map[[2]ids.ID]*want{}
	for _, w := range b.wants {
		byRelease[[2]ids.ID{w.d.Model, w.d.Release}] = w
	}
	for i := range current.Units {
		h := &held{unit: current.Units[i].clone(), order: i, broken: map[[2]int]string{}}
		h.want = byRelease[[2]ids.ID{h.unit.Model, h.unit.Release}]
		r.seat(h)
		r.units = append(r.units, h)
	}
	return r
}

// seat takes a unit's GPUs and notes what is wrong with them.
func (r *roster) seat(h *held) {
	h.each(func(p, i int, rep *Replica) {
		h.shrunk = h.shrunk || rep.Expert != 0
		for _, s := range rep.Shards {
			if why := r.seatShard(h, s); why != "" && h.broken[[2]int{p, i}] == "" {
				h.broken[[2]int{p, i}] = why
			}
		}
	})
}

// seatShard tells why a shard cannot serve; "" = it can.
func (r *roster) seatShard(h *held, s Shard) (why string) {
	at, known := r.b.byID[s.Host]
	if !known {
		return "its host is gone"
	}
	host := &r.b.hosts[at]
	h.kind = max(h.kind, kinds[host.Kind])
	if host.Lost {
		why = "host " + host.Name + " is lost"
	} else if host.Leaving {
		h.leaving = "host " + host.Name + " is leaving"
	}
	if len(s.GPUs) == 0 {
		r.b.light[at]++
	}
	for _, g := range s.GPUs {
		gpu := host.gpu(g)
		key := [2]int{at, g}
		switch {
		case gpu == nil:
			why = fmt.Sprintf("GPU %d of host %s is not there", g, host.Name)
		case gpu.Fault != "":
			why = fmt.Sprintf("GPU %d of host %s: %s", g, host.Name, gpu.Fault)
		case slices.Contains(host.Taken, g), r.inUse[key] != ids.Nil:
			why = fmt.Sprintf("GPU %d of host %s is used by something else", g, host.Name)
			continue
		}
		r.inUse[key] = h.unit.ID
		if slot, ok := r.b.at[at][g]; ok {
			r.b.take(slot, g)
		}
	}
	return why
}

// leave gives a shard's GPUs back.
func (r *roster) leave(h *held, s Shard) {
	at, known := r.b.byID[s.Host]
	if !known {
		return
	}
	if len(s.GPUs) == 0 {
		r.b.light[at]--
	}
	for _, g := range s.GPUs {
		key := [2]int{at, g}
		if r.inUse[key] != h.unit.ID {
			continue
		}
		delete(r.inUse, key)
		if slot, ok := r.b.at[at][g]; ok {
			r.b.release(slot, g)
		}
	}
}

// drop takes a unit out of the plan.
func (r *roster) drop(h *held, why string) {
	h.gone = why
	r.texts[h.unit.ID] = why
	h.each(func(_, _ int, rep *Replica) {
		for _, s := range rep.Shards {
			r.leave(h, s)
		}
	})
}

// each calls f for every replica.
func (h *held) each(f func(pool, replica int, rep *Replica)) {
	for p := range h.unit.Pools {
		for i := range h.unit.Pools[p].Replicas {
			f(p, i, &h.unit.Pools[p].Replicas[i])
		}
	}
}

// why tells what is wrong with a unit, the first of it.
func (h *held) why() string {
	for p := range h.unit.Pools {
		for i := range h.unit.Pools[p].Replicas {
			if why := h.broken[[2]int{p, i}]; why != "" {
				return why
			}
		}
	}
	return h.leaving
}

func (u *Unit) clone() Unit {
	c := *u
	c.Pools = slices.Clone(u.Pools)
	for p := range c.Pools {
		c.Pools[p].Replicas = slices.Clone(c.Pools[p].Replicas)
		for i := range c.Pools[p].Replicas {
			rep := &c.Pools[p].Replicas[i]
			rep.Shards = slices.Clone(rep.Shards)
			for s := range rep.Shards {
				rep.Shards[s].GPUs = slices.Clone(rep.Shards[s].GPUs)
			}
		}
	}
	return c
}
