package plan

import (
	"cmp"
	"slices"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/recipe"
)

// want is a demand as the search sees it.
type want struct {
	d      *Demand
	index  int
	weight int64
	gpus   int     // of a unit
	needs  []need  // by pool, the largest first
	ok     []bool  // by host: fit, and open for something new
	reach  *reach  // which hosts have good enough links; nil = nobody asks
	crowd  []int64 // by failure domain: units that touch it; nil = nobody asks
}

// need is a pool of a unit.
type need struct {
	role   string
	gpus   int // of a replica
	count  int // of replicas
	domain int // least size of the domain in GPUs
}

// split is how a replica is spread over hosts that have so many GPUs: as few hosts as give each the same number.
func split(gpus, host int) (each, hosts int) {
	if gpus <= host {
		return gpus, 1
	}
	for each = host; each > 1; each-- {
		if gpus%each == 0 {
			break
		}
	}
	return max(each, 1), gpus / max(each, 1)
}

// newWants reads demands, the weightiest first.
func newWants(f *fleet, demands []Demand) ([]*want, error) {
	wants := make([]*want, 0, len(demands))
	seen := map[[2]ids.ID]bool{}
	for i := range demands {
		d := &demands[i]
		key := [2]ids.ID{d.Model, d.Release}
		switch {
		case d.Recipe == nil:
			return nil, fault.New(fault.Invalid, "The demand of %s has no recipe.", d.Name)
		case d.Units < 0:
			return nil, fault.New(fault.Invalid, "The demand of %s is for %d units.", d.Name, d.Units)
		case seen[key]:
			return nil, fault.New(fault.Invalid, "%s wants the same release twice: join the demands.", d.Name)
		}
		seen[key] = true
		wants = append(wants, newWant(f, d))
	}
	slices.SortStableFunc(wants, func(a, b *want) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.gpus, a.gpus), natural(a.d.Name, b.d.Name), slices.Compare(a.d.Model[:], b.d.Model[:]), slices.Compare(a.d.Release[:], b.d.Release[:]))
	})
	for i, w := range wants {
		w.index = i
	}
	f.tellApart(wants)
	return wants, nil
}

func newWant(f *fleet, d *Demand) *want {
	w := &want{d: d, weight: int64(max(d.Weight, 1)), ok: make([]bool, len(f.hosts))}
	for i := range d.Recipe.Pools {
		p := &d.Recipe.Pools[i]
		n := need{role: p.Role, gpus: p.GPUs, count: max(p.Replicas, 1), domain: p.Domain}
		w.gpus += n.gpus * n.count
		w.needs = append(w.needs, n)
	}
	slices.SortStableFunc(w.needs, func(a, b need) int {
		return cmp.Or(cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.count, a.count))
	})
	for i := range f.hosts {
		w.ok[i] = d.refuses(&f.hosts[i]) == nil
	}
	if t := d.Recipe.Transfer; t != nil && t.MinGbps > 0 {
		w.reach = f.reachAt(t.MinGbps)
	}
	if d.Spread {
		w.crowd = make([]int64, f.nfails)
	}
	return w
}

// tellApart makes cells differ where a demand looks at more than what they are made of.
func (f *fleet) tellApart(wants []*want) {
	spread := slices.ContainsFunc(wants, func(w *want) bool { return w.crowd != nil })
	linked := slices.ContainsFunc(wants, func(w *want) bool { return w.reach != nil })
	for i := range f.cells {
		c := &f.cells[i]
		if linked {
			c.like = mix(uint64(i))
		}
		if spread {
			for _, s := range c.slots {
				c.like = mix(c.like ^ uint64(f.fails[f.slots[s].host]))
			}
		}
	}
}

// linked tells whether two roles hand a cache to each other.
func linked(a, b string) bool {
	return a == recipe.Prefill && b == recipe.Decode || a == recipe.Decode && b == recipe.Prefill
}

// crowded is how many units of the demand a failure domain has that one more would meet; none where it is there already.
func (w *want) crowded(failure int, own []int) int64 {
	if slices.Contains(own, failure) {
		return 0
	}
	return w.crowd[failure]
}
