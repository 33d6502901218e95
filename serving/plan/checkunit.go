package plan

import (
	"millrace/internal/ids"
	"millrace/serving/recipe"
)

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
