package plan

import (
	"cmp"
	"fmt"
	"slices"

	"millrace/internal/ids"
)

// sorted is what becomes of the units of one demand.
type sorted struct {
	well    []*held // stay
	leaving []*held // stay until another has taken over
	broken  []*held // are repaired, replaced or shrunk
}

// settle decides which units of the current plan stay, before anything new is placed.
func (r *roster) settle() []sorted {
	r.endings()
	all := make([]sorted, len(r.b.wants))
	for _, w := range r.b.wants {
		all[w.index] = r.choose(w)
	}
	for _, h := range r.units {
		switch {
		case h.gone != "":
		case !r.wanted(h.unit.Model):
			r.drop(h, "nothing asks for "+h.unit.Name+" any more")
		case h.want == nil && len(h.broken) > 0:
			r.drop(h, h.why()+", and its release is not wanted any more")
		}
	}
	return all
}

// wanted tells whether any units of a model are.
func (r *roster) wanted(model ids.ID) bool {
	return slices.ContainsFunc(r.b.wants, func(w *want) bool { return w.d.Model == model && w.d.Units > 0 })
}

// endings looks at units that are to end: one that broke goes, one whose heir is not there any more stays, and so does one
// whose release is wanted again in place of its heir's.
func (r *roster) endings() {
	byID := map[ids.ID]*held{}
	for _, h := range r.units {
		byID[h.unit.ID] = h
	}
	for _, h := range r.units {
		if h.unit.Ends == "" {
			continue
		}
		heir := byID[h.unit.Heir]
		switch {
		case len(h.broken) > 0:
			r.drop(h, h.why()+"; it was to end anyway")
		case heir == nil, len(heir.broken) > 0 && heir.want == nil, h.want != nil && heir.want == nil:
			h.unit.Ends, h.unit.Heir = "", ids.Nil
		}
	}
}

// choose picks the units of a demand that stay: those that are well before those that leave before those that are broken,
// on the capacity that is promised longest, the oldest.
func (r *roster) choose(w *want) (s sorted) {
	var mine []*held
	for _, h := range r.units {
		if h.want == w && h.gone == "" && h.unit.Ends == "" {
			mine = append(mine, h)
		}
	}
	rank := func(h *held) int {
		switch {
		case len(h.broken) > 0:
			return 3
		case h.leaving != "":
			return 2
		case h.shrunk:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(mine, func(x, y *held) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.kind, y.kind), cmp.Compare(x.order, y.order))
	})
	for i, h := range mine {
		switch {
		case i >= w.d.Units && rank(h) < 2:
			r.drop(h, fmt.Sprintf("%s wants %s, and this one is the least worth keeping", w.d.Name, units(w.d.Units)))
		case i >= w.d.Units:
			r.drop(h, fmt.Sprintf("%s, and %s wants %s", h.why(), w.d.Name, units(w.d.Units)))
		case rank(h) == 3:
			s.broken = append(s.broken, h)
		case rank(h) == 2:
			s.leaving = append(s.leaving, h)
		default:
			s.well = append(s.well, h)
		}
	}
	return s
}

func units(n int) string {
	if n == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", n)
}

func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

// countCrowd adds the failure domains of units that stay to their demand's crowd.
func (r *roster) countCrowd(hs []*held) {
	for _, h := range hs {
		if h.want == nil || h.want.crowd == nil {
			continue
		}
		for _, f := range r.failures(&h.unit) {
			h.want.crowd[f]++
		}
	}
}

func (r *roster) failures(u *Unit) []int {
	var list []int
	for p := range u.Pools {
		for i := range u.Pools[p].Replicas {
			for _, s := range u.Pools[p].Replicas[i].Shards {
				if at, ok := r.b.byID[s.Host]; ok {
					list = appendNew(list, r.b.fails[at])
				}
			}
		}
	}
	return list
}
