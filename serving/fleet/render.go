package fleet

import (
	"encoding/json"
	"slices"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/recipe"
)

// Ports of units in the fabric: every row of a host has engine.PortsPerShard of them, by its slot.
const (
	firstPort = 23000
	maxSlots  = (32768 - firstPort) / engine.PortsPerShard // what is above, hosts give to anybody
)

// render gives the engines of a group's rows, as agents are told.
func (w *world) render(u *unit, g *group, out map[ids.ID][]byte) error {
	r := w.recipes[u.release]
	if r == nil {
		return fault.New(fault.Invalid, "The recipe of this unit's release cannot be read.")
	}
	first, err := w.fabric(&g.rows[0])
	if err != nil {
		return err
	}
	for i := range g.rows {
		row := &g.rows[i]
		here, err := w.fabric(row)
		if err != nil {
			return err
		}
		spec, err := r.Render(g.role, recipe.Place{Unit: row.ID.String(), Head: ids.Format(ids.Unit, g.rows[0].ID), Rank: i, Hosts: len(g.rows), GPUs: gpusOf(row), Host: here, First: first,
			Local: u.onOneHost(), Apart: u.apart(), Expert: int(row.Expert)})
		if err != nil {
			return err
		}
		if out[row.ID], err = json.Marshal(spec); err != nil {
			return err
		}
	}
	return nil
}

// fabric is how peers reach a row's host.
func (w *world) fabric(row *fleetRow) (recipe.Fabric, error) {
	h := w.hosts[*row.HostID]
	switch {
	case h == nil:
		return recipe.Fabric{}, fault.New(fault.Invalid, "The unit's host was removed.")
	case row.Slot >= maxSlots:
		return recipe.Fabric{}, fault.New(fault.Invalid, "Host %s has more than %d engines.", h.Name, maxSlots)
	}
	return recipe.FabricOf(&h.seen.Inventory, gpusOf(row), firstPort+int(row.Slot)*engine.PortsPerShard), nil
}

// onOneHost reports whether all of the unit is on one host.
func (u *unit) onOneHost() bool {
	var at []ids.ID
	for _, g := range u.groups {
		for i := range g.rows {
			if g.rows[i].HostID != nil && !slices.Contains(at, *g.rows[i].HostID) {
				at = append(at, *g.rows[i].HostID)
			}
		}
	}
	return len(at) == 1
}

// apart reports whether prefill and decode are in different scale-up domains.
func (u *unit) apart() bool {
	if u.want == nil {
		return false
	}
	domains := map[string][]string{}
	for _, p := range u.want.Pools {
		for _, r := range p.Replicas {
			domains[p.Role] = append(domains[p.Role], r.Domain)
		}
	}
	for _, d := range domains[recipe.Prefill] {
		if slices.ContainsFunc(domains[recipe.Decode], func(o string) bool { return o != d }) {
			return true
		}
	}
	return false
}
