package health

import (
	"cmp"
	"slices"
	"time"

	"millrace/agents/host/inventory"
	"millrace/agents/wire"
)

// settle gives the problems that count: bad for long enough, or not yet good for long enough.
func (w *Watch) settle(bad map[key]wire.Problem, now time.Time) []wire.Problem {
	for k, p := range bad {
		s := w.problems[k]
		if s == nil {
			s = &state{}
			w.problems[k] = s
		}
		if s.badFrom.IsZero() {
			s.badFrom = now
		}
		if since := s.last.SinceMS; s.told { // as long as it is told, it began when it began
			p.SinceMS = since
		}
		s.last, s.goodAt = p, time.Time{}
		s.told = s.told || now.Sub(s.badFrom) >= patiences[k.code].bad
	}
	var out []wire.Problem
	for k, s := range w.problems {
		if _, now := bad[k]; !now {
			s.badFrom = time.Time{}
		}
		if s.badFrom.IsZero() && s.goodAt.IsZero() {
			s.goodAt = now
		}
		switch {
		case s.badFrom.IsZero() && (!s.told || now.Sub(s.goodAt) >= patiences[k.code].good):
			delete(w.problems, k)
		case s.told:
			out = append(out, s.last)
		}
	}
	slices.SortFunc(out, func(a, b wire.Problem) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Code, b.Code))
	})
	return out
}

// number gives each GPU the index that it had when it was first seen: when one is gone, the tools count anew, and a plan
// that names the fourth would mean the fifth.
func (w *Watch) number(now []wire.GPU, readings map[int]inventory.Reading) ([]wire.GPU, map[int]inventory.Reading) {
	out, read := slices.Clone(now), map[int]inventory.Reading{}
	used := map[int]bool{}
	w.current = map[int]int{}
	given := make([]bool, len(out))
	for i := range out {
		if old := w.remembered(out[i]); old >= 0 {
			given[i] = true
			w.take(&out[i], w.known[old].Index, readings, read, used)
		}
	}
	for i := range out {
		if given[i] {
			continue
		}
		index := out[i].Index
		for used[index] {
			index++
		}
		w.take(&out[i], index, readings, read, used)
	}
	for _, g := range out {
		w.keep(g)
	}
	return out, read
}

func (w *Watch) take(g *wire.GPU, index int, readings, read map[int]inventory.Reading, used map[int]bool) {
	w.current[index], used[index] = g.Index, true
	read[index] = readings[g.Index]
	g.Index = index
}

// remembered finds a GPU among those seen, -1 = it is new. Without an id there is nothing to know it by.
func (w *Watch) remembered(g wire.GPU) int {
	return slices.IndexFunc(w.known, func(k wire.GPU) bool { return g.UUID != "" && k.UUID == g.UUID })
}

// keep remembers a GPU; another one of the same index has been replaced by it.
func (w *Watch) keep(g wire.GPU) {
	w.known = slices.DeleteFunc(w.known, func(k wire.GPU) bool { return k.Index == g.Index || g.UUID != "" && k.UUID == g.UUID })
	w.known = append(w.known, g)
	slices.SortFunc(w.known, func(a, b wire.GPU) int { return a.Index - b.Index })
}

// missing are the GPUs that were seen and are not there.
func (w *Watch) missing(now []wire.GPU) (out []wire.GPU) {
	for _, k := range w.known {
		if !slices.ContainsFunc(now, func(g wire.GPU) bool { return g.Index == k.Index }) {
			out = append(out, k)
		}
	}
	return out
}

// Device is the number by which the tools now know the GPU of an index; ok is false when it is not there.
func (w *Watch) Device(index int) (number int, ok bool) {
	number, ok = w.current[index]
	return number, ok
}
