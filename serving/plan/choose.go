package plan

import (
	"cmp"
	"slices"
)

// choice is a place for a whole unit, or for one pool of it.
type choice struct {
	seats []seat
	delta Score
	left  int // room that stays in its domains: the best fit leaves least
	order int // of its first cell
}

func (a *choice) compare(b *choice) int {
	x, y := a.delta.terms(), b.delta.terms()
	for i := range x {
		if x[i] != y[i] {
			return cmp.Compare(x[i], y[i])
		}
	}
	return cmp.Or(cmp.Compare(a.left, b.left), cmp.Compare(a.order, b.order))
}

// choices lists places for a unit, the cheapest first. Of places that are alike only the first is listed.
func (b *board) choices(w *want, most int) []choice {
	first := b.pools(w, 0, nil, -1, most > 1)
	var all []choice
	if len(w.needs) == 1 {
		for len(first) > 0 && len(all) < most {
			all = append(all, first.pop())
		}
		return all
	}
	for len(first) > 0 {
		before, next := b.score, first.pop()
		net := b.putPool(&next)
		rest, ok := b.rest(w, 1, next.seats, net)
		b.unputPool(&next)
		if !ok {
			continue
		}
		for _, seats := range rest {
			b.place(w, seats)
			all = append(all, choice{seats: seats, delta: b.score.minus(before), left: next.left, order: next.order})
			b.unplace(w, seats)
		}
		if len(all) >= max(most, greedyTries) {
			break
		}
	}
	slices.SortStableFunc(all, func(x, y choice) int { return x.compare(&y) })
	return all[:min(most, len(all))]
}

// greedyTries is how many places of the first pool are completed before the best is taken; restTries how many of a later pool.
const (
	greedyTries = 6
	restTries   = 3
	maxAvoided  = 6 // failure domains of a cell that are left out in turn
)

// putPool seats a pool; unputPool takes it away. They do not count crowds, which are a whole unit's.
func (b *board) putPool(c *choice) (net int) {
	net = -1
	for i := range c.seats {
		b.put(&c.seats[i], 1)
		if c.seats[i].cell >= 0 {
			net = b.cells[c.seats[i].cell].net
		}
	}
	return net
}

func (b *board) unputPool(c *choice) {
	for i := len(c.seats) - 1; i >= 0; i-- {
		b.put(&c.seats[i], -1)
	}
}

// rest completes a unit whose first pools are seated, in some of the cheapest ways.
func (b *board) rest(w *want, i int, seats []seat, net int) ([][]seat, bool) {
	if i == len(w.needs) {
		return [][]seat{slices.Clone(seats)}, true
	}
	var all [][]seat
	next := b.pools(w, i, seats, net, true)
	for len(next) > 0 {
		ch := next.pop()
		n := b.putPool(&ch)
		if net >= 0 {
			n = net
		}
		more, ok := b.rest(w, i+1, append(slices.Clone(seats), ch.seats...), n)
		b.unputPool(&ch)
		if ok {
			all = append(all, more...)
		}
		if len(all) >= restTries {
			break
		}
	}
	return all, len(all) > 0
}

// priced seats a pool for a moment to see what that costs.
func (b *board) priced(w *want, seats []seat) choice {
	before := b.score
	for i := range seats {
		b.put(&seats[i], 1)
	}
	ch := choice{seats: seats, delta: b.score.minus(before), order: seats[0].cell}
	ch.delta.Scatter = scatter(seats)
	if w.crowd != nil {
		for _, f := range b.touched(seats) {
			if !slices.Contains(b.own, f) {
				ch.delta.Crowd += w.crowd[f]
			}
		}
	}
	last := -1
	for i := range seats {
		if seats[i].cell != last {
			last = seats[i].cell
			ch.left += b.cells[last].room()
		}
	}
	b.unputPool(&ch)
	return ch
}

// allowed tells which slots are linked well enough to what the unit's other pools hold; nil = all.
func (b *board) allowed(w *want, n *need, seats []seat) func(slot int) bool {
	if w.reach == nil {
		return nil
	}
	var peers []int
	for i := range seats {
		if linked(n.role, w.needs[seats[i].need].role) {
			for _, s := range seats[i].slots {
				peers = append(peers, b.slots[s].host)
			}
		}
	}
	if peers == nil {
		return nil
	}
	return func(slot int) bool {
		for _, p := range peers {
			if !w.reach.has(b.slots[slot].host, p) {
				return false
			}
		}
		return true
	}
}
