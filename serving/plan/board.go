package plan

import "slices"

// seat is where a replica goes.
type seat struct {
	need  int   // index in want.needs
	cell  int   // -1 for a replica without GPUs
	slots []int // by rank; of a replica without GPUs: its host
	each  int   // GPUs on each
}

// board is the fleet with what was placed on it so far, and what that costs.
type board struct {
	*fleet
	wants  []*want
	score  Score
	hash   uint64 // sum over cells: the same for boards that differ in equal cells only
	steps  int    // cells looked at
	tmp    []int  // by slot, scratch
	spread bool   // some demand looks at failure domains
	own    []int  // failure domains that the unit which is being placed touches already
}

func newBoard(f *fleet, wants []*want) *board {
	b := &board{fleet: f, wants: wants, tmp: make([]int, len(f.slots))}
	b.spread = slices.ContainsFunc(wants, func(w *want) bool { return w.crowd != nil })
	for c := range f.cells {
		b.hash += b.state(c)
	}
	return b
}

// state hashes what is free and used of a cell.
func (f *fleet) state(c int) uint64 { return f.stateAs(c, f.cells[c].like) }

// stateAs is state with another likeness.
func (f *fleet) stateAs(c int, like uint64) uint64 {
	cl := &f.cells[c]
	x := mix(like ^ uint64(cl.used)<<32 ^ uint64(cl.free))
	if len(cl.slots) > 1 {
		var sum uint64
		for _, s := range cl.slots {
			sum += mix(uint64(f.slots[s].free)<<32 ^ uint64(f.slots[s].used))
		}
		x = mix(x ^ sum)
	}
	return x
}

// stranded is the GPUs that are free though their domain, or in a larger one their host, was started.
func (f *fleet) stranded(c int) int64 {
	if f.cells[c].used == 0 {
		return 0
	}
	return int64(f.cells[c].room())
}

func (f *fleet) strandedSlot(s int) int64 {
	if f.slots[s].used == 0 || len(f.cells[f.slots[s].cell].slots) == 1 {
		return 0
	}
	return int64(f.slots[s].free)
}

// put seats a replica and adds to the score; with sign -1 it takes it away again.
func (b *board) put(st *seat, sign int) {
	if st.cell < 0 {
		b.light[st.slots[0]] += sign
		return
	}
	c := &b.cells[st.cell]
	b.hash -= b.state(st.cell)
	before := b.stranded(st.cell)
	for _, s := range st.slots {
		before += b.strandedSlot(s)
		b.slots[s].free -= sign * st.each
		b.slots[s].used += sign * st.each
		if b.slots[s].open {
			c.free -= sign * st.each
		}
		c.used += sign * st.each
	}
	after := b.stranded(st.cell)
	for _, s := range st.slots {
		after += b.strandedSlot(s)
	}
	b.score.Stranded += after - before
	b.score.Kind += int64(sign*st.each*len(st.slots)) * c.kind
	b.hash += b.state(st.cell)
}

// place seats a whole unit.
func (b *board) place(w *want, seats []seat) {
	for i := range seats {
		b.put(&seats[i], 1)
	}
	b.score.Scatter += scatter(seats)
	if w.crowd != nil {
		for _, f := range b.touched(seats) {
			b.score.Crowd += w.crowd[f]
			w.crowd[f]++
			b.hash += mix(uint64(w.index)<<40 ^ uint64(f)<<16 ^ uint64(w.crowd[f]))
		}
	}
}

// unplace takes it away.
func (b *board) unplace(w *want, seats []seat) {
	for i := len(seats) - 1; i >= 0; i-- {
		b.put(&seats[i], -1)
	}
	b.score.Scatter -= scatter(seats)
	if w.crowd != nil {
		for _, f := range b.touched(seats) {
			b.hash -= mix(uint64(w.index)<<40 ^ uint64(f)<<16 ^ uint64(w.crowd[f]))
			w.crowd[f]--
			b.score.Crowd -= w.crowd[f]
		}
	}
}

// touched lists the failure domains of a unit, each once.
func (b *board) touched(seats []seat) []int {
	var list []int
	for i := range seats {
		for _, s := range seats[i].slots {
			h := s
			if seats[i].cell >= 0 {
				h = b.slots[s].host
			}
			list = appendNew(list, b.fails[h])
		}
	}
	return list
}

// scatter counts the domains of each pool beyond its first.
func scatter(seats []seat) int64 {
	n := int64(0)
	for i := 1; i < len(seats); i++ {
		if seats[i].need != seats[i-1].need {
			continue
		}
		n++
		for j := i - 1; j >= 0 && seats[j].need == seats[i].need; j-- {
			if seats[j].cell == seats[i].cell {
				n--
				break
			}
		}
	}
	return n
}

func appendNew[T comparable](list []T, x T) []T {
	for _, y := range list {
		if x == y {
			return list
		}
	}
	return append(list, x)
}

// Less compares scores, the first term first.
func (s Score) Less(t Score) bool {
	a, b := s.terms(), t.terms()
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

func (s Score) terms() [5]int64 {
	return [5]int64{s.Unplaced, s.Kind, s.Scatter, s.Crowd, s.Stranded}
}

func (s Score) minus(t Score) Score {
	return Score{s.Unplaced - t.Unplaced, s.Kind - t.Kind, s.Scatter - t.Scatter, s.Crowd - t.Crowd, s.Stranded - t.Stranded}
}
