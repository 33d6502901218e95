package plan

import (
	"cmp"
	"fmt"
	"slices"

	"millrace/agents/wire"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Check looks whether a plan keeps the rules on these hosts, without knowing how it came about. What was added must keep all
// of them; what stays must be able to go on. A frozen plan is checked for what it is: no GPU twice.
func (p *Plan) Check(hosts []Host, demands []Demand, o Options) error {
	k := &checker{plan: p, o: &o, hosts: map[ids.ID]*Host{}, used: map[gpuKey]ids.ID{}, domains: map[string]*domainSum{}, moved: map[ids.ID]string{}}
	for i := range hosts {
		k.hosts[hosts[i].ID] = &hosts[i]
	}
	for _, m := range p.Moves {
		if m.Kind == MoveAdd || m.Kind == MoveRepair {
			k.moved[m.Unit] = m.Kind
		}
	}
	k.sums(hosts)
	units := map[ids.ID]*Unit{}
	for i := range p.Units {
		u := &p.Units[i]
		if units[u.ID] != nil {
			k.fail("unit %s is there twice", u.ID)
		}
		units[u.ID] = u
		k.unit(u, demands)
	}
	if p.Frozen == "" {
		k.counts(units, demands)
		k.spares()
	}
	return k.err
}

type gpuKey struct {
	host ids.ID
	gpu  int
}

// domainSum is what is in a scale-up domain.
type domainSum struct {
	size, used      int
	added, repaired bool
}

type checker struct {
	plan    *Plan
	o       *Options
	hosts   map[ids.ID]*Host
	used    map[gpuKey]ids.ID
	domains map[string]*domainSum
	moved   map[ids.ID]string
	err     error
}

// fail keeps the first thing that is wrong.
func (k *checker) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fault.New(fault.Conflict, "The plan does not keep the rules: %s.", fmt.Sprintf(format, args...)).WithCode("bad_plan")
	}
}

// domainOf names what joins the GPUs of a replica: one domain, network, kind of capacity and architecture.
func domainOf(h *Host, g *wire.GPU) string {
	return h.network() + "\x00" + cmp.Or(g.Domain, h.ID.String()) + "\x00" + g.Arch + "\x00" + h.Kind
}

func (k *checker) sums(hosts []Host) {
	for i := range hosts {
		h := &hosts[i]
		for j := range h.GPUs {
			name := domainOf(h, &h.GPUs[j])
			if k.domains[name] == nil {
				k.domains[name] = &domainSum{}
			}
			k.domains[name].size++
			if slices.Contains(h.Taken, h.GPUs[j].Index) {
				k.domains[name].used++
			}
		}
	}
}

func (k *checker) unit(u *Unit, demands []Demand) {
	d := slices.IndexFunc(demands, func(d Demand) bool { return d.Model == u.Model && d.Release == u.Release })
	networks := map[string]bool{}
	for p := range u.Pools {
		for i := range u.Pools[p].Replicas {
			rep := &u.Pools[p].Replicas[i]
			k.shards(u, rep, networks)
			if k.err == nil && k.moved[u.ID] != "" && d >= 0 {
				k.replica(u, &u.Pools[p], rep, &demands[d])
			}
		}
	}
	if k.err != nil || k.moved[u.ID] == "" || k.plan.Frozen != "" {
		return
	}
	if d < 0 {
		k.fail("unit %s is new, and nothing asks for its release", u.ID)
		return
	}
	if len(networks) > 1 {
		k.fail("unit %s is in %d networks", u.ID, len(networks))
	}
	k.gang(u, &demands[d])
	k.links(u, &demands[d])
}

// shards checks what every unit must keep: GPUs that are there, work, and are nobody else's.
func (k *checker) shards(u *Unit, rep *Replica, networks map[string]bool) {
	for _, s := range rep.Shards {
		h := k.hosts[s.Host]
		for _, g := range s.GPUs {
			if other, taken := k.used[gpuKey{s.Host, g}]; taken {
				k.fail("GPU %d of host %s is in units %s and %s", g, s.Host, other, u.ID)
			}
			k.used[gpuKey{s.Host, g}] = u.ID
		}
		if k.plan.Frozen != "" {
			continue
		}
		if h == nil || h.Lost {
			k.fail("unit %s is on host %s, which is lost or gone", u.ID, s.Host)
			return
		}
		networks[h.network()] = true
		if k.moved[u.ID] == MoveAdd && !h.open() {
			k.fail("unit %s was put on host %s, which gets nothing new", u.ID, h.Name)
		}
		for _, g := range s.GPUs {
			k.gpu(u, h, g)
		}
	}
}

func (k *checker) gpu(u *Unit, h *Host, index int) {
	g := h.gpu(index)
	switch {
	case g == nil || g.Fault != "":
		k.fail("unit %s is on GPU %d of host %s, which does not work", u.ID, index, h.Name)
		return
	case slices.Contains(h.Taken, index):
		k.fail("unit %s is on GPU %d of host %s, which is used by what is not planned", u.ID, index, h.Name)
	case k.moved[u.ID] == MoveAdd && g.Domain == wire.DomainUnknown:
		k.fail("unit %s was put on host %s, whose topology is unknown", u.ID, h.Name)
	}
	d := k.domains[domainOf(h, g)]
	d.used++
	d.added = d.added || k.moved[u.ID] == MoveAdd
	d.repaired = d.repaired || k.moved[u.ID] == MoveRepair
}
