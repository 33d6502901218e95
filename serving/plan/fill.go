package plan

import (
	"cmp"
	"slices"
)

// fill finds slots in a cell for some replicas of a pool, on the hosts that they fill best; nil = they do not fit. only, when
// it is not negative, is the one slot that may be used.
func (b *board) fill(w *want, i, c, count int, ok func(int) bool, only int) []seat {
	n := &w.needs[i]
	cl := &b.cells[c]
	if cl.room() < count*n.gpus {
		return nil
	}
	each, hosts := split(n.gpus, cl.host)
	fits := make([]int, 0, len(cl.slots))
	for _, s := range cl.slots {
		b.tmp[s] = b.slots[s].free
		if b.slots[s].open && b.tmp[s] >= each && w.ok[b.slots[s].host] && (only < 0 || only == s) && (ok == nil || ok(s)) {
			fits = append(fits, s)
		}
	}
	seats := make([]seat, 0, count)
	own := b.own[:len(b.own):len(b.own)]
	for range count {
		if len(fits) < hosts {
			return nil
		}
		st := seat{need: i, cell: c, slots: make([]int, 0, hosts), each: each}
		for len(st.slots) < hosts {
			best := 0
			for k := range fits {
				if b.better(w, fits[k], fits[best], own) {
					best = k
				}
			}
			st.slots = append(st.slots, fits[best])
			if w.crowd != nil {
				own = appendNew(own, b.fails[b.slots[fits[best]].host])
			}
			fits = slices.Delete(fits, best, best+1)
		}
		for _, s := range st.slots {
			if b.tmp[s] -= each; b.tmp[s] >= each {
				fits = append(fits, s)
			}
		}
		seats = append(seats, st)
	}
	return seats
}

// better tells whether a slot suits a shard better than another: in a failure domain with fewer units of the demand, fuller,
// started, earlier.
func (b *board) better(w *want, x, y int, own []int) bool {
	if w.crowd != nil {
		cx, cy := w.crowded(b.fails[b.slots[x].host], own), w.crowded(b.fails[b.slots[y].host], own)
		if cx != cy {
			return cx < cy
		}
	}
	return cmp.Or(cmp.Compare(b.tmp[x], b.tmp[y]), cmp.Compare(min(b.slots[y].used, 1), min(b.slots[x].used, 1)), cmp.Compare(x, y)) < 0
}

// divided adds the place of a pool over as few domains as hold it, in equal parts: 24 replicas over domains that hold 18
// are 12 and 12, not 18 and 6, so that no part waits for a larger one.
// When several choices are tried, every domain is once the first.
func (b *board) divided(w *want, i, net int, ok func(int) bool, several bool, all []choice) []choice {
	n := &w.needs[i]
	for v := range b.nets {
		if net >= 0 && net != v {
			continue
		}
		for parts := 2; parts <= n.count; parts++ {
			seats := b.parts(w, i, v, parts, ok, -1)
			if seats == nil {
				continue
			}
			all = append(all, b.priced(w, seats))
			for c := 0; several && c < len(b.cells) && c < maxFirsts; c++ {
				if more := b.parts(w, i, v, parts, ok, c); more != nil {
					all = append(all, b.priced(w, more))
				}
			}
			break
		}
	}
	return all
}

// parts seats a pool in so many domains of a network; the larger parts first. first is the domain of the first, -1 = the best.
func (b *board) parts(w *want, i, net, parts int, ok func(int) bool, first int) []seat {
	n := &w.needs[i]
	var seats []seat
	used := map[int]bool{}
	for p := range parts {
		size := n.count / parts
		if p < n.count%parts {
			size++
		}
		var best *choice
		for c := range b.cells {
			b.steps++
			cl := &b.cells[c]
			if cl.net != net || used[c] || p == 0 && first >= 0 && c != first || cl.room() < size*n.gpus || cl.size < n.domain {
				continue
			}
			if got := b.fill(w, i, c, size, ok, -1); got != nil {
				if ch := b.priced(w, got); best == nil || ch.compare(best) < 0 {
					best = &ch
				}
			}
		}
		if best == nil {
			return nil
		}
		used[best.seats[0].cell] = true
		seats = append(seats, best.seats...)
	}
	return seats
}

// lights places a pool without GPUs, on the hosts of a network that have fewest such replicas.
func (b *board) lights(w *want, i, net int) []choice {
	n := &w.needs[i]
	var fits []int
	for h := range b.hosts {
		if w.ok[h] && (net < 0 || b.netOf(h) == net) {
			fits = append(fits, h)
		}
	}
	if len(fits) == 0 {
		return nil
	}
	var seats []seat
	slices.SortStableFunc(fits, func(x, y int) int { return cmp.Compare(b.light[x], b.light[y]) })
	for r := range n.count {
		h := fits[r%len(fits)]
		if net < 0 { // the first chooses the network
			net = b.netOf(h)
			fits = slices.DeleteFunc(fits, func(o int) bool { return b.netOf(o) != net })
		}
		seats = append(seats, seat{need: i, cell: -1, slots: []int{h}})
	}
	return []choice{{seats: seats}}
}

func (f *fleet) netOf(host int) int { return slices.Index(f.nets, f.hosts[host].network()) }
