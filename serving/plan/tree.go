package plan

// tree is branch and bound over units in a fixed order: every unit is tried on its cheapest places and without a place.
type tree struct {
	*board
	order []int
	rest  []ahead // by position in the order: what is still to be placed
	best  solution
	units []placed
	seen  map[node]Score
	limit int // of steps
	done  bool
}

// ahead sums up the units from a position on.
type ahead struct{ gpus, weight int64 }

// node is what the rest of the search depends on.
type node struct {
	at   int
	full uint64 // wants of which a unit had no place
	hash uint64
}

func (t *tree) run(order []int) {
	t.order, t.seen = order, map[node]Score{}
	t.rest = make([]ahead, len(order)+1)
	for i := len(order) - 1; i >= 0; i-- {
		w := t.wants[order[i]]
		t.rest[i] = ahead{t.rest[i+1].gpus + int64(w.gpus), t.rest[i+1].weight + w.weight}
	}
	t.done = t.visit(0, 0)
}

// visit searches below a node; false = the steps were used up.
func (t *tree) visit(at int, full uint64) bool {
	if at == len(t.order) {
		if t.score.Less(t.best.score) {
			t.best = solution{units: append([]placed(nil), t.units...), score: t.score}
		}
		return true
	}
	if t.steps >= t.limit {
		return false
	}
	if !t.bound(at).Less(t.best.score) {
		return true
	}
	key := node{at, full, t.hash}
	if old, ok := t.seen[key]; ok && !t.score.Less(old) {
		return true
	}
	t.seen[key] = t.score
	i := t.order[at]
	w := t.wants[i]
	whole := true
	bit := uint64(1) << (i % 64)
	if full&bit == 0 || len(t.wants) > 64 {
		for _, c := range t.choices(w, maxChoices) {
			t.place(w, c.seats)
			t.units = append(t.units, placed{i, c.seats})
			more := t.visit(at+1, full)
			t.units = t.units[:len(t.units)-1]
			t.unplace(w, c.seats)
			if whole = whole && more; !more && t.steps >= t.limit {
				return false
			}
		}
	}
	t.score.Unplaced += w.weight
	more := t.visit(at+1, full|bit)
	t.score.Unplaced -= w.weight
	return whole && more
}

// bound is less than or equal to every score below a node. Units without a place: as many as the room cannot hold, lightest
// by GPU first. GPUs of dearer kinds: what the room of cheaper ones cannot hold of what must be placed. Stranded GPUs: every
// GPU placed fills at most one of a domain and one of a host.
func (t *tree) bound(at int) Score {
	s := t.score
	var room [3]int64
	for c := range t.cells {
		room[t.cells[c].kind] += int64(t.cells[c].room())
	}
	rest := t.rest[at]
	over := rest.gpus - room[0] - room[1] - room[2]
	s.Stranded -= 2 * rest.gpus
	if over > 0 {
		s.Unplaced += t.least(at, over)
		return s
	}
	if t.best.score.Unplaced == s.Unplaced { // all the rest must be placed to be as good
		s.Kind += max(0, rest.gpus-room[0]) + max(0, rest.gpus-room[0]-room[1])
	}
	return s
}

// least is the least weight that must be left out to save so many GPUs.
func (t *tree) least(at int, over int64) int64 {
	weight, gpus := int64(0), int64(1)
	for _, i := range t.order[at:] { // the least weight by GPU of all is a bound
		w := t.wants[i]
		if g := int64(max(w.gpus, 1)); gpus == 1 && weight == 0 || w.weight*gpus < weight*g {
			weight, gpus = w.weight, g
		}
	}
	return (over*weight + gpus - 1) / gpus
}
