package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// slot is a host's part of a cell.
type slot struct {
	host  int   // index in fleet.hosts
	cell  int   // index in fleet.cells
	gpus  []int // usable and not in use, ascending
	total int   // GPUs, those that cannot be used among them
	free  int   // as many as gpus has; the search counts with it
	used  int   // GPUs in use
	open  bool  // may get something new
}

// cell is a scale-up domain as far as its GPUs are of one kind: one network, architecture and kind of capacity. A replica is
// in one cell.
type cell struct {
	name  string // of the domain
	label string // for people
	net   int
	kind  int64
	slots []int
	size  int    // GPUs, those that cannot be used among them
	host  int    // GPUs of the largest slot
	limit int    // GPUs that may be in use: size less spares
	free  int    // of open slots
	used  int    // GPUs in use
	made  uint64 // cells with the same value are made of the same
	like  uint64 // and differ in nothing else that one of the demands looks at
}

// room is how many GPUs of a cell may still be given out. GPUs that cannot be used count as spares.
func (c *cell) room() int { return max(0, min(c.free, c.limit-c.used)) }

// fleet is what the planner counts with.
type fleet struct {
	hosts  []Host // by name and id
	byID   map[ids.ID]int
	slots  []slot
	cells  []cell
	at     []map[int]int // host -> GPU index -> slot, of GPUs in a known domain
	nets   []string
	fails  []int // host -> failure domain
	nfails int
	light  []int // host -> shards without a GPU

	reaches map[float64]*reach // by Gbit/s, as demands ask
}

var kinds = map[string]int64{Reserved: 0, "": 0, OnDemand: 1, Spot: 2}

// newFleet reads hosts in an order that does not depend on the caller's.
func newFleet(hosts []Host, o Options) *fleet {
	f := &fleet{hosts: slices.Clone(hosts), byID: make(map[ids.ID]int, len(hosts))}
	slices.SortFunc(f.hosts, func(a, b Host) int {
		return cmp.Or(natural(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
	f.at, f.fails, f.light = make([]map[int]int, len(hosts)), make([]int, len(hosts)), make([]int, len(hosts))
	nets, fails, cells := interner{}, interner{}, map[string]int{}
	for i := range f.hosts {
		h := &f.hosts[i]
		f.byID[h.ID] = i
		f.fails[i] = fails.of(cmp.Or(h.Failure, "host:"+h.ID.String()))
		f.addGPUs(i, nets.of(h.network()), cells)
	}
	f.nets, f.nfails = nets.names, len(fails.names)
	for i := range f.cells {
		c := &f.cells[i]
		c.limit = c.size
		if o.Spares > 0 && c.size >= max(o.SparesFrom, 1) {
			c.limit = max(0, c.size-o.Spares)
		}
		c.made = f.likeness(c)
		c.like = c.made
	}
	return f
}

func (h *Host) network() string { return cmp.Or(h.Network, h.Provider+"/"+h.Region) }

func (h *Host) open() bool { return !h.Cordoned && !h.Lost && !h.Leaving }

// addGPUs puts a host's GPUs into the slots of its cells.
func (f *fleet) addGPUs(i, net int, cells map[string]int) {
	h := &f.hosts[i]
	mine := map[int]int{} // cell -> slot
	f.at[i] = make(map[int]int, len(h.GPUs))
	for g := range h.GPUs {
		gpu := &h.GPUs[g]
		if gpu.Domain == wire.DomainUnknown {
			continue
		}
		key := strconv.Itoa(net) + "\x00" + cmp.Or(gpu.Domain, h.ID.String()) + "\x00" + gpu.Arch + "\x00" + h.Kind
		c, ok := cells[key]
		if !ok {
			c = len(f.cells)
			cells[key] = c
			f.cells = append(f.cells, cell{name: cmp.Or(gpu.Domain, h.ID.String()), label: cmp.Or(gpu.Domain, h.Name), net: net, kind: kinds[h.Kind]})
		}
		s, ok := mine[c]
		if !ok {
			s = len(f.slots)
			mine[c] = s
			f.slots = append(f.slots, slot{host: i, cell: c, open: h.open()})
			f.cells[c].slots = append(f.cells[c].slots, s)
		}
		f.at[i][gpu.Index] = s
		f.slots[s].total++
		f.cells[c].size++
		f.cells[c].host = max(f.cells[c].host, f.slots[s].total)
		switch {
		case slices.Contains(h.Taken, gpu.Index):
			f.slots[s].used++
			f.cells[c].used++
		case gpu.Fault == "" && !h.Lost:
			f.giveBack(s, gpu.Index)
		}
	}
}

// take puts a GPU into use.
func (f *fleet) take(s, gpu int) {
	sl := &f.slots[s]
	sl.used++
	f.cells[sl.cell].used++
	if i, ok := slices.BinarySearch(sl.gpus, gpu); ok {
		sl.gpus = slices.Delete(sl.gpus, i, i+1)
		f.addFree(s, -1)
	}
}

// release takes a GPU out of use; one that works can be given out again.
func (f *fleet) release(s, gpu int) {
	sl := &f.slots[s]
	sl.used--
	f.cells[sl.cell].used--
	h := &f.hosts[sl.host]
	if g := h.gpu(gpu); g != nil && g.Fault == "" && !h.Lost {
		f.giveBack(s, gpu)
	}
}

func (f *fleet) giveBack(s, gpu int) {
	sl := &f.slots[s]
	i, _ := slices.BinarySearch(sl.gpus, gpu)
	sl.gpus = slices.Insert(sl.gpus, i, gpu)
	f.addFree(s, 1)
}

func (f *fleet) addFree(s, n int) {
	f.slots[s].free += n
	if f.slots[s].open {
		f.cells[f.slots[s].cell].free += n
	}
}

func (h *Host) gpu(index int) *wire.GPU {
	if index >= 0 && index < len(h.GPUs) && h.GPUs[index].Index == index {
		return &h.GPUs[index]
	}
	for i := range h.GPUs {
		if h.GPUs[i].Index == index {
			return &h.GPUs[i]
		}
	}
	return nil
}

// likeness hashes what demands may ask of a cell. What changes during a search is left out.
func (f *fleet) likeness(c *cell) uint64 {
	d := newHash()
	fmt.Fprint(d, c.net, c.kind, c.size, c.limit, len(c.slots))
	for _, s := range c.slots {
		h := &f.hosts[f.slots[s].host]
		fmt.Fprint(d, "|", h.Region, h.Toolchain, h.open(), f.slots[s].total)
		for i := range h.GPUs {
			fmt.Fprint(d, h.GPUs[i].Arch, h.GPUs[i].MemoryBytes>>30, " ")
		}
	}
	return d.Sum64()
}

// interner numbers names by their first appearance.
type interner struct {
	index map[string]int
	names []string
}

func (n *interner) of(name string) int {
	if i, ok := n.index[name]; ok {
		return i
	}
	if n.index == nil {
		n.index = map[string]int{}
	}
	n.index[name] = len(n.names)
	n.names = append(n.names, name)
	return len(n.names) - 1
}
