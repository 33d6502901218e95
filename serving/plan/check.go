package plan

import (
	"cmp"
	"fmt"
	"slices"

	"millrace/agents/wire"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/recipe"
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

// replica checks one that was placed: its size, equal shards, one domain that is large enough, hosts that are fit.
func (k *checker) replica(u *Unit, pool *Pool, rep *Replica, d *Demand) {
	if k.plan.Frozen != "" {
		return
	}
	want, ok := d.Recipe.Pool(pool.Role)
	if !ok || len(rep.Shards) == 0 {
		k.fail("unit %s has a pool %s that its recipe does not know, or a replica without shards", u.ID, pool.Role)
		return
	}
	gpus, size := 0, shrunkGPUs(want, rep.Expert)
	domains, hosts := map[string]bool{}, map[ids.ID]bool{}
	for _, s := range rep.Shards {
		h := k.hosts[s.Host]
		gpus += len(s.GPUs)
		hosts[s.Host] = true
		if len(s.GPUs) != len(rep.Shards[0].GPUs) {
			k.fail("a replica of unit %s has shards of different sizes", u.ID)
		}
		if k.moved[u.ID] == MoveAdd && d.unfit(h) != nil {
			k.fail("host %s does not suit unit %s", h.Name, u.ID)
		}
		for _, g := range s.GPUs {
			domains[domainOf(h, h.gpu(g))] = true
		}
	}
	if gpus != size || rep.Expert != 0 && k.moved[u.ID] == MoveAdd || len(hosts) != len(rep.Shards) {
		k.fail("a replica of unit %s has %d GPUs on %d hosts, not %d", u.ID, gpus, len(hosts), size)
	}
	if k.moved[u.ID] == MoveAdd && len(domains) > 1 {
		k.fail("a replica of unit %s is in %d domains", u.ID, len(domains))
	}
	for name := range domains {
		if k.moved[u.ID] == MoveAdd && k.domains[name].size < want.Domain {
			k.fail("a replica of unit %s is in a domain of %d GPUs, not %d", u.ID, k.domains[name].size, want.Domain)
		}
	}
}

// gang checks that a unit is whole.
func (k *checker) gang(u *Unit, d *Demand) {
	if len(u.Pools) != len(d.Recipe.Pools) {
		k.fail("unit %s has %d pools, its recipe %d", u.ID, len(u.Pools), len(d.Recipe.Pools))
	}
	for i := range u.Pools {
		if want, ok := d.Recipe.Pool(u.Pools[i].Role); ok && len(u.Pools[i].Replicas) != max(want.Replicas, 1) {
			k.fail("unit %s has %d replicas of %s, its recipe %d", u.ID, len(u.Pools[i].Replicas), want.Role, want.Replicas)
		}
	}
}

// links checks that prefill and decode of a new unit reach each other.
func (k *checker) links(u *Unit, d *Demand) {
	t := d.Recipe.Transfer
	if t == nil || t.MinGbps <= 0 || k.moved[u.ID] != MoveAdd {
		return
	}
	for _, a := range hostsOf(u, recipe.Prefill) {
		for _, b := range hostsOf(u, recipe.Decode) {
			there, ok1 := k.hosts[a].Links[b]
			back, ok2 := k.hosts[b].Links[a]
			if a != b && (!ok1 && !ok2 || ok1 && there < t.MinGbps || ok2 && back < t.MinGbps) {
				k.fail("the link between hosts %s and %s of unit %s is not measured, or slow", k.hosts[a].Name, k.hosts[b].Name, u.ID)
			}
		}
	}
}

func hostsOf(u *Unit, role string) (list []ids.ID) {
	for i := range u.Pools {
		if u.Pools[i].Role != role {
			continue
		}
		for _, r := range u.Pools[i].Replicas {
			for _, s := range r.Shards {
				list = appendNew(list, s.Host)
			}
		}
	}
	return list
}

// counts checks that every demand is met or refused, and that what ends has an heir.
func (k *checker) counts(units map[ids.ID]*Unit, demands []Demand) {
	models := map[ids.ID]bool{}
	for i := range demands {
		d := &demands[i]
		models[d.Model] = models[d.Model] || d.Units > 0
		n := 0
		for _, u := range units {
			if u.Model == d.Model && u.Release == d.Release && u.Ends == "" {
				n++
			}
		}
		unmet := 0
		for _, u := range k.plan.Unmet {
			if u.Model == d.Model && u.Release == d.Release {
				unmet += u.Units
			}
		}
		if n > d.Units || n+unmet < d.Units {
			k.fail("%s wants %d units, has %d, and %d are refused", d.Name, d.Units, n, unmet)
		}
	}
	for _, u := range k.plan.Units {
		if u.Ends != "" && (units[u.Heir] == nil || u.Heir == u.ID || units[u.Heir].Model != u.Model) {
			k.fail("unit %s ends, and its heir is not there", u.ID)
		}
		if !models[u.Model] {
			k.fail("unit %s stays, and nothing asks for its model", u.ID)
		}
	}
}

// spares checks the domains that got something new.
func (k *checker) spares() {
	for name, d := range k.domains {
		limit := d.size - k.o.Spares
		if k.o.Spares > 0 && d.size >= max(k.o.SparesFrom, 1) && d.added && !d.repaired && d.used > max(0, limit) {
			k.fail("domain %q has %d of %d GPUs in use and keeps no %d spares", name, d.used, d.size, k.o.Spares)
		}
	}
}
