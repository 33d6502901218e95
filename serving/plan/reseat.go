package plan

import (
	"cmp"
	"slices"
)

// reseat finds another place for one replica of a unit: on its own domain, whose spares it may use, keeping the GPUs that
// work; else, for a replica of full size, in another domain of the unit's network. It only looks; swap moves.
func (r *roster) reseat(h *held, p, i, expert int) (Replica, bool) {
	old := h.unit.Pools[p].Replicas[i]
	pool, ok := h.want.d.Recipe.Pool(h.unit.Pools[p].Role)
	if !ok {
		return Replica{}, false
	}
	size := shrunkGPUs(pool, expert)
	for _, s := range old.Shards {
		r.leave(h, s)
	}
	defer func() {
		for _, s := range old.Shards {
			r.seatShard(h, s)
		}
	}()
	if size == 0 {
		return r.reseatLight(h, p)
	}
	allowed := r.peersAllow(h, p)
	for _, c := range r.cellsOf(&old) {
		if rep, ok := r.inside(h.want, c, size, &old, allowed); ok {
			rep.Expert = expert
			return rep, true
		}
	}
	if expert != 0 {
		return Replica{}, false
	}
	return r.elsewhere(h, p, allowed)
}

// cellsOf lists the cells of a replica's shards.
func (r *roster) cellsOf(rep *Replica) (cells []int) {
	for _, s := range rep.Shards {
		at, ok := r.b.byID[s.Host]
		if !ok {
			continue
		}
		for _, g := range s.GPUs {
			if slot, ok := r.b.at[at][g]; ok {
				cells = appendNew(cells, r.b.slots[slot].cell)
			}
		}
	}
	return cells
}

// inside seats a replica in a cell, on its old hosts as far as these work; hosts that are not its old ones must be open.
func (r *roster) inside(w *want, c, size int, old *Replica, allowed func(int) bool) (Replica, bool) {
	cl := &r.b.cells[c]
	each, hosts := split(size, cl.host)
	was := func(slot int) int {
		id := r.b.hosts[r.b.slots[slot].host].ID
		return slices.IndexFunc(old.Shards, func(s Shard) bool { return s.Host == id })
	}
	var fits []int
	for _, s := range cl.slots {
		sl := &r.b.slots[s]
		mine := was(s) >= 0 && !r.b.hosts[sl.host].Lost && !r.b.hosts[sl.host].Leaving
		if sl.free >= each && (mine || sl.open && w.ok[sl.host]) && (mine || allowed == nil || allowed(s)) {
			fits = append(fits, s)
		}
	}
	if len(fits) < hosts {
		return Replica{}, false
	}
	slices.SortStableFunc(fits, func(x, y int) int {
		mx, my := was(x) >= 0, was(y) >= 0
		switch {
		case mx && !my:
			return -1
		case my && !mx:
			return 1
		}
		return cmp.Compare(r.b.slots[x].free, r.b.slots[y].free)
	})
	fits = fits[:hosts]
	slices.SortStableFunc(fits, func(x, y int) int { // ranks stay as far as they can
		a, b := was(x), was(y)
		if a < 0 || b < 0 {
			return cmp.Compare(b, a)
		}
		return cmp.Compare(a, b)
	})
	rep := Replica{Domain: cl.name}
	for _, s := range fits {
		var prefer []int
		if at := was(s); at >= 0 {
			prefer = old.Shards[at].GPUs
		}
		rep.Shards = append(rep.Shards, Shard{Host: r.b.hosts[r.b.slots[s].host].ID, GPUs: r.b.pick(s, each, prefer)})
	}
	return rep, true
}

// elsewhere seats one replica in the best other cell of the unit's network.
func (r *roster) elsewhere(h *held, p int, allowed func(int) bool) (Replica, bool) {
	w := h.want
	n := slices.IndexFunc(w.needs, func(n need) bool { return n.role == h.unit.Pools[p].Role })
	net := r.netOfUnit(&h.unit)
	var best *choice
	r.b.own = nil
	for c := range r.b.cells {
		if net >= 0 && r.b.cells[c].net != net || r.b.cells[c].size < w.needs[n].domain {
			continue
		}
		if seats := r.b.fill(w, n, c, 1, allowed, -1); seats != nil {
			if ch := r.b.priced(w, seats); best == nil || ch.compare(best) < 0 {
				best = &ch
			}
		}
	}
	if best == nil {
		return Replica{}, false
	}
	return r.b.replica(&best.seats[0]), true
}

// reseatLight moves a replica without GPUs to another host.
func (r *roster) reseatLight(h *held, p int) (Replica, bool) {
	n := slices.IndexFunc(h.want.needs, func(n need) bool { return n.role == h.unit.Pools[p].Role })
	net := -1
	if len(h.want.needs) > 1 || h.want.needs[n].count > 1 {
		net = r.netOfUnit(&h.unit)
	}
	got := r.b.lights(h.want, n, net)
	if len(got) == 0 {
		return Replica{}, false
	}
	return r.b.replica(&got[0].seats[0]), true
}

// netOfUnit is the network of a unit's hosts, -1 when none is known.
func (r *roster) netOfUnit(u *Unit) int {
	for p := range u.Pools {
		for i := range u.Pools[p].Replicas {
			for _, s := range u.Pools[p].Replicas[i].Shards {
				if at, ok := r.b.byID[s.Host]; ok {
					return r.b.netOf(at)
				}
			}
		}
	}
	return -1
}

// peersAllow tells which slots are linked to the pools that a pool of a unit exchanges caches with.
func (r *roster) peersAllow(h *held, p int) func(int) bool {
	w := h.want
	if w.reach == nil {
		return nil
	}
	var peers []int
	for q := range h.unit.Pools {
		if !linked(h.unit.Pools[p].Role, h.unit.Pools[q].Role) {
			continue
		}
		for i := range h.unit.Pools[q].Replicas {
			if h.broken[[2]int{q, i}] != "" && q > p {
				continue // it moves after this one, and then looks at this one
			}
			for _, s := range h.unit.Pools[q].Replicas[i].Shards {
				if at, ok := r.b.byID[s.Host]; ok {
					peers = append(peers, at)
				}
			}
		}
	}
	return func(slot int) bool {
		return !slices.ContainsFunc(peers, func(at int) bool { return !w.reach.has(r.b.slots[slot].host, at) })
	}
}
