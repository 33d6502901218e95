package plan

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"millrace/internal/ids"
)

// pick chooses GPUs of a slot: those preferred, else of one NUMA node where one has enough, the one that fits best.
func (f *fleet) pick(s, n int, prefer []int) []int {
	free := f.slots[s].gpus
	var got []int
	for _, g := range prefer {
		if len(got) < n && slices.Contains(free, g) {
			got = append(got, g)
		}
	}
	if len(prefer) == 0 && n < len(free) {
		free = f.oneNode(s, n)
	}
	for _, g := range free {
		if len(got) < n && !slices.Contains(got, g) {
			got = append(got, g)
		}
	}
	slices.Sort(got)
	return got
}

// oneNode is the free GPUs of the fullest NUMA node that has n of them; all when none has.
func (f *fleet) oneNode(s, n int) []int {
	h := &f.hosts[f.slots[s].host]
	nodes := map[int][]int{}
	var order []int
	for _, g := range f.slots[s].gpus {
		node := h.gpu(g).NUMA
		nodes[node] = append(nodes[node], g)
		order = appendNew(order, node)
	}
	best := f.slots[s].gpus
	for _, node := range order {
		if have := nodes[node]; len(have) >= n && len(have) < len(best) {
			best = have
		}
	}
	return best
}

// replica gives a seat its GPUs.
func (f *fleet) replica(st *seat) Replica {
	if st.cell < 0 {
		id := f.hosts[st.slots[0]].ID
		return Replica{Domain: id.String(), Shards: []Shard{{Host: id, GPUs: []int{}}}}
	}
	rep := Replica{Domain: f.cells[st.cell].name}
	for _, s := range st.slots {
		rep.Shards = append(rep.Shards, Shard{Host: f.hosts[f.slots[s].host].ID, GPUs: f.pick(s, st.each, nil)})
	}
	return rep
}

// build makes a unit of its seats and takes their GPUs.
func (r *roster) build(w *want, seats []seat, id ids.ID, why string) Unit {
	u := Unit{ID: id, Model: w.d.Model, Release: w.d.Release, Name: w.d.Name, Why: why}
	for i := range w.d.Recipe.Pools {
		pool := Pool{Role: w.d.Recipe.Pools[i].Role}
		for j := range seats {
			if w.needs[seats[j].need].role != pool.Role {
				continue
			}
			rep := r.b.replica(&seats[j])
			r.enter(id, rep.Shards)
			pool.Replicas = append(pool.Replicas, rep)
		}
		u.Pools = append(u.Pools, pool)
	}
	return u
}

// newID derives a unit's id: the same input gives the same, and no two plans of a chain share one.
func newID(o *Options, d *Demand, n int, parent string) ids.ID {
	if o.ID != nil {
		return o.ID(d, n)
	}
	name := binary.BigEndian.AppendUint64(slices.Concat(d.Model[:], d.Release[:]), uint64(n))
	return uuid.NewSHA1(unitSpace, append(name, parent+"\x00"+o.Seed...))
}

var unitSpace = uuid.MustParse("6d696c6c-7261-5365-8000-756e69747300")

// whereText says on which hosts a replica is: "on h1 and h2".
func (r *roster) whereText(rep *Replica) string {
	var names []string
	for _, s := range rep.Shards {
		names = appendNew(names, r.b.hosts[r.b.byID[s.Host]].Name)
	}
	return "on " + short(names)
}

// short lists names, the first few of many.
func short(names []string) string {
	if len(names) > maxNames+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	if len(names) > 1 {
		return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	}
	return strings.Join(names, "")
}
