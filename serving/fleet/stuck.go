package fleet

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/ids"
	"millrace/serving/plan"
)

// stuck finds units that the plan has given up, or given other GPUs, and that are now the last of their models that serve, while
// others wait for their GPUs: a unit was hurt, replaced in the plan, and is well again before anything was done. Such a unit is
// not stopped for another one; it is planned with as it is, and what waits for its GPUs is placed anew.
func (w *world) stuck() (why string, keep []plan.Unit, anew []ids.ID) {
	m := w.count()
	for _, u := range w.units {
		if !w.serves(u) || !w.clings(u, m) {
			continue
		}
		waits := w.waitFor(u)
		if len(waits) == 0 {
			continue
		}
		if u.want != nil {
			waits = append(waits, u.id)
		}
		why = fmt.Sprintf("%s is the last unit of %s that serves, and others wait for its GPUs", u.name, u.row.ModelName)
		keep = append(keep, w.asPlanned(u))
		anew = append(anew, waits...)
	}
	return why, keep, anew
}

// clings reports whether a unit that serves can be neither taken away nor restarted as the plan wants it.
func (w *world) clings(u *unit, m models) bool {
	switch {
	case u.want == nil:
		return !w.mayLeave(u, m) && !w.replaced(u)
	case u.want.Ends != "":
		return false
	}
	return slices.ContainsFunc(u.groups, func(g *group) bool { return g.serves() && w.reshape(g) != "" && !w.mayMove(u, g, m) })
}

// replaced reports whether another unit of the model comes up.
func (w *world) replaced(u *unit) bool {
	return slices.ContainsFunc(w.units, func(o *unit) bool {
		return o.model == u.model && o.want != nil && o.want.Ends == "" && o.row.State != Planned && o.row.State != Faulted
	})
}

// waitFor lists the units of the plan that want GPUs on which the unit runs.
func (w *world) waitFor(u *unit) (out []ids.ID) {
	for i := range w.plan.body.Units {
		o := &w.plan.body.Units[i]
		wants := func(s plan.Shard) bool { return u.runsOn(s.Host, s.GPUs) }
		if o.ID != u.id && anyShard(o, wants) {
			out = append(out, o.ID)
		}
	}
	return out
}

func anyShard(u *plan.Unit, is func(plan.Shard) bool) bool {
	for _, p := range u.Pools {
		for _, r := range p.Replicas {
			if slices.ContainsFunc(r.Shards, is) {
				return true
			}
		}
	}
	return false
}

func (u *unit) runsOn(host ids.ID, gpus []int) bool {
	for _, g := range u.groups {
		for i := range g.rows {
			if *g.rows[i].HostID == host && slices.ContainsFunc(gpusOf(&g.rows[i]), func(gpu int) bool { return slices.Contains(gpus, gpu) }) {
				return true
			}
		}
	}
	return false
}

// asPlanned is a unit as a plan would have it, by its rows.
func (w *world) asPlanned(u *unit) plan.Unit {
	id := u.id.String()
	out := plan.Unit{ID: u.id, Model: u.model, Release: u.release, Name: strings.TrimSuffix(u.name, "-"+id[len(id)-6:]), Why: "It serves already."}
	for _, g := range u.groups {
		i := slices.IndexFunc(out.Pools, func(p plan.Pool) bool { return p.Role == g.role })
		if i < 0 {
			out.Pools = append(out.Pools, plan.Pool{Role: g.role})
			i = len(out.Pools) - 1
		}
		r := plan.Replica{Expert: int(g.rows[0].Expert), Domain: w.domainOf(&g.rows[0])}
		for j := range g.rows {
			r.Shards = append(r.Shards, plan.Shard{Host: *g.rows[j].HostID, GPUs: gpusOf(&g.rows[j])})
		}
		out.Pools[i].Replicas = append(out.Pools[i].Replicas, r)
	}
	return out
}

// domainOf is the scale-up domain of a row's GPUs.
func (w *world) domainOf(row *fleetRow) string {
	h := w.hosts[*row.HostID]
	if h != nil && len(row.Gpus) > 0 {
		if g := h.known[int(row.Gpus[0])]; g != nil && g.Domain != "" {
			return g.Domain
		}
		if h.Domain != "" {
			return h.Domain
		}
	}
	return row.HostID.String()
}
