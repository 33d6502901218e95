package fleet

import (
	"context"
	"fmt"
	"slices"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/serving/recipe"
)

// shards is how many engine processes a unit has.
func shards(u *plan.Unit) (n int) {
	for _, p := range u.Pools {
		for _, r := range p.Replicas {
			n += len(r.Shards)
		}
	}
	return n
}

// create makes the rows of a unit, in the state planned: nothing runs yet. One whose hosts are not all there is left to a repair.
func (e *Executor) create(ctx context.Context, w *world, want *plan.Unit) (bool, error) {
	r := w.recipes[want.Release]
	if r == nil || !w.onHosts(want) {
		return false, nil
	}
	alone := shards(want) == 1 && want.Pools[0].Replicas[0].Expert == 0
	err := e.proved(ctx, w, func(query *q.Queries) error {
		top := q.InsertFleetUnitParams{ID: want.ID, Name: rowName(want), ModelID: want.Model, ReleaseID: want.Release, Engine: r.Engine,
			UpstreamModel: r.Model.Name, Role: recipe.Whole, PlanID: w.plan.id, StateText: want.Why, Gpus: []int32{}}
		if alone {
			w.place(&top, &want.Pools[0].Replicas[0], 0)
			return putUnit(ctx, query, top)
		}
		top.Parts = int32(shards(want))
		if err := putUnit(ctx, query, top); err != nil {
			return err
		}
		for i := range want.Pools {
			for n := range want.Pools[i].Replicas {
				if err := w.insertReplica(ctx, query, top, want.Pools[i].Role, n, &want.Pools[i].Replicas[n]); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return err == nil, err
}

// rowName is a unit's name among all: what the plan calls it, and the end of its id.
func rowName(u *plan.Unit) string {
	id := u.ID.String()
	return u.Name + "-" + id[len(id)-6:]
}

func putUnit(ctx context.Context, query *q.Queries, top q.InsertFleetUnitParams) error {
	if err := moved(query.InsertFleetUnit(ctx, top)); err != nil {
		return err
	}
	return query.InsertUnitEvent(ctx, q.InsertUnitEventParams{ID: ids.New(), UnitID: top.ID, State: Planned, Text: top.StateText})
}

// complete makes the rows of replicas that the plan has and the unit does not.
func (e *Executor) complete(ctx context.Context, w *world, u *unit) (bool, error) {
	r := w.recipes[u.release]
	if r == nil || u.single() || !w.onHosts(u.want) {
		return false, nil
	}
	err := e.proved(ctx, w, func(query *q.Queries) error {
		top := q.InsertFleetUnitParams{ID: u.id, Name: u.name, ModelID: u.model, ReleaseID: u.release, Engine: r.Engine, UpstreamModel: r.Model.Name,
			PlanID: w.plan.id}
		taken := map[string]int{} // by role, numbers given out here
		for _, l := range u.missing {
			n := u.freeNumber(l.role, taken[l.role])
			taken[l.role] = n + 1
			if err := w.insertReplica(ctx, query, top, l.role, n, l.want); err != nil {
				return err
			}
		}
		return nil
	})
	return err == nil, err
}

// freeNumber is the least number from one on that no replica of the role has.
func (u *unit) freeNumber(role string, from int) int {
	n := from
	for slices.ContainsFunc(u.groups, func(g *group) bool { return g.role == role && g.replica == n }) {
		n++
	}
	return n
}

func (w *world) insertReplica(ctx context.Context, query *q.Queries, top q.InsertFleetUnitParams, role string, n int, want *plan.Replica) error {
	for shard := range want.Shards {
		if err := w.insertShard(ctx, query, top, role, n, want, shard, ""); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) insertShard(ctx context.Context, query *q.Queries, top q.InsertFleetUnitParams, role string, n int, want *plan.Replica, shard int, why string) error {
	row := top
	row.ID, row.PartOf, row.Parts, row.Role, row.Replica, row.Shard, row.StateText = ids.New(), &top.ID, 0, role, int32(n), int32(shard), why
	row.Name = fmt.Sprintf("%s/%s-%d.%d", top.Name, role, n, shard)
	w.place(&row, want, shard)
	return moved(query.InsertFleetUnit(ctx, row))
}

// place says where a row goes. Its slot decides about its ports in the fabric, so no two rows of an
// address share one: simulated hosts may all be one machine.
func (w *world) place(row *q.InsertFleetUnitParams, want *plan.Replica, shard int) {
	s := want.Shards[shard]
	row.HostID, row.Gpus, row.Expert, row.Slot = &s.Host, indexes(s.GPUs), int32(want.Expert), w.freeSlot(s.Host)
}

func indexes(gpus []int) []int32 {
	out := make([]int32, len(gpus))
	for i, g := range gpus {
		out[i] = int32(g)
	}
	return out
}

// freeSlot is the least slot of a host's address that no row has, taken from now on.
func (w *world) freeSlot(id ids.ID) int32 {
	h := w.hosts[id]
	for n := int32(0); ; n++ {
		if !h.slots[n] {
			h.slots[n] = true
			return n
		}
	}
}

// onHosts reports whether every host that the plan puts the unit on is one of ours.
func (w *world) onHosts(want *plan.Unit) bool {
	for _, p := range want.Pools {
		for _, r := range p.Replicas {
			for _, s := range r.Shards {
				if w.hosts[s.Host] == nil {
					return false
				}
			}
		}
	}
	return true
}

// giveShape gives a group whose engines are gone the plan's shape. A shard that stays on its host keeps its row; others get new
// ones, since what an agent tells of a row is of one host.
func (w *world) giveShape(ctx context.Context, query *q.Queries, u *unit, g *group, c Change) error {
	if u.single() {
		row, s := &g.rows[0], g.want.Shards[0]
		slot := row.Slot
		if *row.HostID != s.Host {
			slot = w.freeSlot(s.Host)
		}
		return moved(query.ReshapeFleetUnit(ctx, q.ReshapeFleetUnitParams{ID: row.ID, HostID: s.Host, Slot: slot, Gpus: indexes(s.GPUs), Expert: int32(g.want.Expert),
			StateText: c.Text, OldState: row.State, OldGeneration: row.Generation}))
	}
	top := q.InsertFleetUnitParams{ID: u.id, Name: u.name, ModelID: u.model, ReleaseID: u.release, Engine: u.row.Engine, UpstreamModel: u.row.UpstreamModel, PlanID: w.plan.id}
	kept := map[int]bool{}
	for i := range g.rows {
		row := &g.rows[i]
		if n := int(row.Shard); n < len(g.want.Shards) && g.want.Shards[n].Host == *row.HostID {
			kept[n] = true
			s := g.want.Shards[n]
			if err := moved(query.ReshapeFleetUnit(ctx, q.ReshapeFleetUnitParams{ID: row.ID, HostID: s.Host, Slot: row.Slot, Gpus: indexes(s.GPUs), Expert: int32(g.want.Expert),
				StateText: c.Text, OldState: row.State, OldGeneration: row.Generation})); err != nil {
				return err
			}
			continue
		}
		if err := moved(query.RemoveFleetUnit(ctx, q.RemoveFleetUnitParams{ID: row.ID, OldGeneration: row.Generation})); err != nil {
			return err
		}
	}
	for n := range g.want.Shards {
		if !kept[n] {
			if err := w.insertShard(ctx, query, top, g.role, g.replica, g.want, n, c.Text); err != nil {
				return err
			}
		}
	}
	return nil
}
