package fleet

import (
	"encoding/json"
	"slices"
	"time"

	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/plan"
)

// unit is the rows of one unit, and the plan's wish for it.
type unit struct {
	id      ids.ID
	name    string
	model   ids.ID
	release ids.ID
	row     q.FleetUnitsRow // the parent, or the only one
	groups  []*group
	want    *plan.Unit // nil = the plan does not want it
	missing []lacking
}

type fleetRow = q.FleetUnitsRow

// group is the rows of one replica. Several rows are of one state: they are only ever changed together.
type group struct {
	role    string
	replica int
	rows    []fleetRow    // by shard
	want    *plan.Replica // nil = the plan does not have it
	parts   []Part
}

func (g *group) state() string { return g.rows[0].State }

func (u *unit) single() bool { return u.row.Parts == 0 }

// addRows groups rows into units, and notes which GPUs are held.
func (w *world) addRows(rows []q.FleetUnitsRow, loads Loads) {
	for i := range rows {
		switch row := &rows[i]; {
		case row.PlanID == nil:
			w.others = append(w.others, *row)
		case row.PartOf == nil:
			u := &unit{id: row.ID, name: row.Name, model: row.ModelID, row: *row}
			if row.ReleaseID != nil {
				u.release = *row.ReleaseID
			}
			w.units = append(w.units, u)
			w.byID[u.id] = u
			if row.Parts == 0 {
				u.groups = []*group{{role: row.Role, rows: []q.FleetUnitsRow{*row}}}
			}
		}
	}
	for i := range rows {
		if row := &rows[i]; row.PartOf != nil && w.byID[*row.PartOf] != nil {
			w.byID[*row.PartOf].addShard(*row)
		}
	}
	for _, u := range w.units {
		for _, g := range u.groups {
			for i := range g.rows {
				g.parts = append(g.parts, w.part(&g.rows[i], loads))
			}
		}
	}
	w.noteHeld(rows)
}

func (u *unit) addShard(row q.FleetUnitsRow) {
	i := slices.IndexFunc(u.groups, func(g *group) bool { return g.role == row.Role && g.replica == int(row.Replica) })
	if i < 0 {
		u.groups = append(u.groups, &group{role: row.Role, replica: int(row.Replica)})
		i = len(u.groups) - 1
	}
	u.groups[i].rows = append(u.groups[i].rows, row)
}

// part is what is known of a row's engine.
func (w *world) part(row *q.FleetUnitsRow, loads Loads) Part {
	p := Part{ID: row.ID, Host: *row.HostID}
	h := w.hosts[*row.HostID]
	if h == nil {
		p.Seen.Gone, p.Seen.Broken = true, "its host was removed"
		return p
	}
	p.Name = h.Name
	p.Seen.Lost, p.Seen.Broken = h.lost, h.broken(gpusOf(row))
	o := h.units[row.ID]
	switch {
	case o == nil:
		p.Seen.Gone = h.ObservedGeneration >= h.Generation && row.Wanted == Stopped
	case o.Generation == row.Generation:
		p.Seen.State, p.Seen.Text = o.State, o.Message
		p.Seen.Gone = o.State == wire.StateStopped && row.Wanted == Stopped
	}
	p.Seen.Idle = row.Shard > 0
	if loads != nil && row.Shard == 0 {
		n, known := loads.Running(row.ID)
		p.Seen.Idle = known && n == 0
	}
	return p
}

// noteHeld marks the GPUs on which engines run or may run.
func (w *world) noteHeld(rows []q.FleetUnitsRow) {
	mine := map[ids.ID]ids.ID{} // row -> host
	for i := range rows {
		row := &rows[i]
		if row.HostID == nil {
			continue
		}
		mine[row.ID] = *row.HostID
		if h := w.hosts[*row.HostID]; h != nil {
			h.slots[row.Slot] = true
		}
		if h := w.hosts[*row.HostID]; h != nil && row.PlanID == nil {
			for _, gpu := range h.takenBy(row) {
				h.held[gpu] = row.Name
			}
		}
	}
	for _, u := range w.units {
		for _, g := range u.groups {
			for i := range g.rows {
				row := &g.rows[i]
				if h := w.hosts[*row.HostID]; h != nil && g.state() != Planned && !g.parts[i].Seen.Gone {
					h.hold(gpusOf(row), u.name)
				}
			}
		}
	}
	for _, h := range w.order {
		for id, o := range h.units {
			h.stray = h.stray || mine[id] != h.ID && o.State != wire.StateStopped
		}
	}
}

func (h *host) hold(gpus []int, by string) {
	for _, g := range gpus {
		h.held[g] = by
	}
}

// takenBy is which GPUs a row that no plan owns uses: those it names, else as many as its engine is spread over, from its slot.
func (h *host) takenBy(row *q.FleetUnitsRow) (out []int) {
	if len(row.Gpus) > 0 {
		return gpusOf(row)
	}
	var spec engine.Spec
	_ = json.Unmarshal(row.Spec, &spec) // what cannot be read takes its slot's GPU
	if len(spec.Devices) > 0 {
		return spec.Devices
	}
	for gpu := int(row.Slot); gpu < int(row.Slot)+max(spec.Parallel.GPUs(), 1); gpu++ {
		if h.known[gpu] != nil {
			out = append(out, gpu)
		}
	}
	return out
}

func gpusOf(row *q.FleetUnitsRow) []int {
	out := make([]int, len(row.Gpus))
	for i, g := range row.Gpus {
		out[i] = int(g)
	}
	return out
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
