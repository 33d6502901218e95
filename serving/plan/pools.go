package plan

import "slices"

// pools lists places for one pool of a unit whose earlier pools are seated: in one domain, and over several where one has
// not the room or is dearer. net is the unit's network, -1 = any. Of cells that are alike the first is enough; when several
// choices are tried, others may tell cells apart later.
func (b *board) pools(w *want, i int, seats []seat, net int, several bool) queue {
	n := &w.needs[i]
	if n.gpus == 0 {
		return b.lights(w, i, net)
	}
	ok := b.allowed(w, n, seats)
	b.own = nil
	if w.crowd != nil {
		b.own = b.touched(seats)
	}
	var all []choice
	seen := map[uint64]bool{}
	for c := range b.cells {
		b.steps++
		cl := &b.cells[c]
		if net >= 0 && cl.net != net || cl.room() < n.gpus || cl.size < n.domain {
			continue
		}
		if same := several || w.reach == nil && w.crowd == nil; same && ok == nil {
			key := b.stateAs(c, b.cells[c].made)
			if several {
				key = b.state(c)
			}
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		all = b.within(w, i, c, ok, several, all)
	}
	if n.count > 1 {
		all = b.divided(w, i, net, ok, several, all)
	}
	return newQueue(all)
}

// within adds the places of a pool in one cell.
func (b *board) within(w *want, i, c int, ok func(int) bool, several bool, all []choice) []choice {
	n := &w.needs[i]
	if !several || n.count > 1 || n.gpus > b.cells[c].host || len(b.cells[c].slots) == 1 {
		if seats := b.fill(w, i, c, n.count, ok, -1); seats != nil {
			all = append(all, b.priced(w, seats))
		}
		if several && b.spread && len(b.cells[c].slots) > 1 {
			all = b.avoiding(w, i, c, ok, all)
		}
		return all
	}
	var tried []int // of one shard, every amount that is free on a host is another place
	for _, s := range b.cells[c].slots {
		free := b.slots[s].free*2 + min(b.slots[s].used, 1)
		if b.slots[s].free < n.gpus || w.crowd == nil && slices.Contains(tried, free) {
			continue
		}
		if seats := b.fill(w, i, c, 1, ok, s); seats != nil {
			tried = append(tried, free)
			all = append(all, b.priced(w, seats))
		}
	}
	return all
}

// avoiding adds the places of a pool in one cell that leave out one of its failure domains: a demand that spreads may need it.
func (b *board) avoiding(w *want, i, c int, ok func(int) bool, all []choice) []choice {
	var fails []int
	for _, s := range b.cells[c].slots {
		fails = appendNew(fails, b.fails[b.slots[s].host])
	}
	for _, f := range fails[:min(len(fails), maxAvoided)] {
		but := func(s int) bool { return b.fails[b.slots[s].host] != f && (ok == nil || ok(s)) }
		if seats := b.fill(w, i, c, w.needs[i].count, but, -1); seats != nil {
			all = append(all, b.priced(w, seats))
		}
	}
	return all
}
