package fleet

import (
	"fmt"
	"slices"

	"millrace/serving/plan"
)

// match sets what the plan wants of every unit and group that has rows.
func (w *world) match() {
	if w.plan == nil {
		return
	}
	for i := range w.plan.body.Units {
		want := &w.plan.body.Units[i]
		u := w.byID[want.ID]
		if u == nil {
			continue
		}
		u.want = want
		for j := range want.Pools {
			u.matchPool(&want.Pools[j])
		}
	}
}

// matchPool pairs a pool's replicas with groups: those of the same shape first, so that a replica that went away is not taken for
// one that stays.
func (u *unit) matchPool(p *plan.Pool) {
	var left []*plan.Replica
	for i := range p.Replicas {
		want := &p.Replicas[i]
		j := slices.IndexFunc(u.groups, func(g *group) bool { return g.role == p.Role && g.want == nil && g.has(want) })
		if j < 0 {
			left = append(left, want)
			continue
		}
		u.groups[j].want = want
	}
	for _, want := range left {
		j := slices.IndexFunc(u.groups, func(g *group) bool { return g.role == p.Role && g.want == nil })
		if j < 0 {
			u.missing = append(u.missing, lacking{p.Role, want})
			continue
		}
		u.groups[j].want = want
	}
}

// lacking is a replica of the plan without rows.
type lacking struct {
	role string
	want *plan.Replica
}

// has reports whether the rows are of the wanted shape.
func (g *group) has(want *plan.Replica) bool {
	return len(g.rows) == len(want.Shards) && int(g.rows[0].Expert) == want.Expert && !slices.ContainsFunc(g.rows, func(row fleetRow) bool {
		return int(row.Shard) >= len(want.Shards) || *row.HostID != want.Shards[row.Shard].Host || !sameGPUs(gpusOf(&row), want.Shards[row.Shard].GPUs)
	})
}

func sameGPUs(a, b []int) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// homeless reports whether a host that the plan puts a replica on was removed: only another plan helps.
func (w *world) homeless(want *plan.Replica) bool {
	return slices.ContainsFunc(want.Shards, func(s plan.Shard) bool { return w.hosts[s.Host] == nil })
}

// reshape says how the plan's shape differs; "" = it does not.
func (w *world) reshape(g *group) string {
	switch {
	case g.want == nil:
		return "the plan does without this replica"
	case g.has(g.want), w.homeless(g.want):
		return ""
	}
	was, now := 0, 0
	for i := range g.rows {
		was += len(g.rows[i].Gpus)
	}
	for _, s := range g.want.Shards {
		now += len(s.GPUs)
	}
	switch {
	case now < was:
		return fmt.Sprintf("continues on %d of its %d GPUs", now, was)
	case now > was:
		return fmt.Sprintf("grows from %d to %d GPUs", was, now)
	}
	for _, s := range g.want.Shards {
		if h := w.hosts[s.Host]; h != nil && !slices.ContainsFunc(g.rows, func(row fleetRow) bool { return *row.HostID == s.Host }) {
			return "moves to host " + h.Name
		}
	}
	return "is given other GPUs"
}
