package plan

import (
	"cmp"
	"slices"
)

// placed is where the search puts new units: one entry a unit, in the order of placing.
type placed struct {
	want  int
	seats []seat
}

// solution is what the search found.
type solution struct {
	units []placed
	score Score
}

// search finds places for the units that are missing of each want. The first pass is greedy: the weightiest demand first,
// of its units each to the cheapest place. Other orders are tried, the best one is improved by branch and bound, and then
// part by part, until the steps are used up or nothing is left to gain.
func (b *board) search(missing []int, steps int) solution {
	total := 0
	for _, m := range missing {
		total += m
	}
	if total == 0 {
		return solution{score: b.score}
	}
	var best solution
	var bestOrder []int
	for i, order := range b.orders(missing) {
		if i > 0 && b.steps > steps/2 {
			break
		}
		if s := b.greedy(order); i == 0 || s.score.Less(best.score) {
			best, bestOrder = s, order
		}
	}
	if total <= maxSearched {
		t := &tree{board: b, best: best, limit: b.steps + max(0, steps-b.steps)/2}
		t.run(bestOrder)
		best = t.best
		if !t.done {
			best = b.improve(best, missing, steps)
		}
	}
	return best
}

// orders gives the orders in which units are placed greedily. An order lists wants, each as often as it misses a unit.
func (b *board) orders(missing []int) [][]int {
	by := func(less func(x, y *want) int) []int {
		ws := slices.Clone(b.wants)
		slices.SortStableFunc(ws, less)
		var order []int
		for _, w := range ws {
			for range missing[w.index] {
				order = append(order, w.index)
			}
		}
		return order
	}
	return [][]int{
		by(func(x, y *want) int { return 0 }), // weight, then size
		by(func(x, y *want) int { return cmp.Compare(y.gpus, x.gpus) }),
		by(func(x, y *want) int { // weight by GPU
			return cmp.Compare(y.weight*int64(max(x.gpus, 1)), x.weight*int64(max(y.gpus, 1)))
		}),
	}
}

// greedy places unit by unit where it costs least, and takes them all away again.
func (b *board) greedy(order []int) solution {
	before := b.score
	var s solution
	full := make([]bool, len(b.wants)) // the next of the same want will not fit either
	for _, i := range order {
		w := b.wants[i]
		var got []choice
		if !full[i] {
			got = b.choices(w, 1)
		}
		if len(got) == 0 {
			full[i] = true
			b.score.Unplaced += w.weight
			continue
		}
		b.place(w, got[0].seats)
		s.units = append(s.units, placed{i, got[0].seats})
	}
	s.score = b.score
	b.clear(s.units)
	b.score = before
	return s
}

func (b *board) clear(units []placed) {
	for i := len(units) - 1; i >= 0; i-- {
		b.unplace(b.wants[units[i].want], units[i].seats)
	}
}

// improve solves parts of a solution anew: the units that touch a few cells, together with those that have no place.
func (b *board) improve(best solution, missing []int, steps int) solution {
	start := b.score
	var cells []int
	for i := range best.units {
		for j := range best.units[i].seats {
			if c := best.units[i].seats[j].cell; c >= 0 {
				cells = appendNew(cells, c)
			}
		}
	}
	slices.Sort(cells)
	for width := 2; width <= 4; width++ {
		for at := 0; at < len(cells) && b.steps < steps; at++ {
			part := map[int]bool{}
			for k := range width {
				part[cells[(at+k*(1+at%3))%len(cells)]] = true
			}
			best = b.partly(best, missing, part, steps)
		}
	}
	b.score = start
	return best
}

// partly solves the part of a solution anew that touches some cells.
func (b *board) partly(best solution, missing []int, part map[int]bool, steps int) solution {
	start := b.score
	var kept, freed []placed
	left := slices.Clone(missing)
	for _, u := range best.units {
		if slices.ContainsFunc(u.seats, func(s seat) bool { return part[s.cell] }) {
			freed = append(freed, u)
			continue
		}
		kept = append(kept, u)
		left[u.want]--
	}
	for _, u := range kept {
		b.place(b.wants[u.want], u.seats)
	}
	var order []int
	for i, w := range b.wants {
		unplaced := left[i]
		for _, u := range freed {
			if u.want == i {
				unplaced--
			}
		}
		again := min(left[i], left[i]-unplaced+maxAgain)
		b.score.Unplaced += int64(left[i]-again) * w.weight
		for range again {
			order = append(order, i)
		}
	}
	t := &tree{board: b, best: solution{units: freed, score: best.score}, limit: min(steps, b.steps+partSteps)}
	t.run(order)
	b.clear(kept)
	b.score = start
	if t.best.score.Less(best.score) {
		return solution{units: append(kept, t.best.units...), score: t.best.score}
	}
	return best
}

const (
	maxAgain  = 2     // units of a demand without a place that each part tries again
	partSteps = 3_000 // cells looked at for one part
)
