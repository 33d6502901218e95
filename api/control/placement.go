package control

import (
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/serving/fleet"
)

// FleetState is what the fleet does, and its placed units.
type FleetState struct {
	Plan     *Plan         `json:"plan,omitempty"`
	Frozen   string        `json:"frozen,omitempty"`
	Executor string        `json:"executor,omitempty"`
	Settings FleetSettings `json:"settings"`
	Units    []PlacedUnit  `json:"units"`
}

// FleetSettings are what the fleet may do by itself, and what it keeps free.
type FleetSettings struct {
	AutoRepair bool `json:"auto_repair"`
	Spares     int  `json:"spares"`
	SparesFrom int  `json:"spares_from"`
	MaxLost    int  `json:"max_lost_percent"`
}

// PlacedUnit is a unit on hosts and its engines.
type PlacedUnit struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	Model    string      `json:"model"`
	Engine   string      `json:"engine"`
	Recipe   string      `json:"recipe,omitempty"`
	State    string      `json:"state"`
	Since    time.Time   `json:"since"`
	Text     string      `json:"text,omitempty"`
	Planned  bool        `json:"planned"`
	Leaving  string      `json:"leaving,omitempty"`
	Degraded string      `json:"degraded,omitempty"`
	Parts    []UnitPart  `json:"parts"`
	Events   []UnitEvent `json:"events,omitempty"`
}

// UnitPart is one engine process of a unit.
type UnitPart struct {
	ID       string `json:"id"`
	Role     string `json:"role"`
	Replica  int    `json:"replica"`
	Shard    int    `json:"shard"`
	Expert   int    `json:"expert,omitempty"`
	HostID   string `json:"host_id"`
	Host     string `json:"host"`
	GPUs     []int  `json:"gpus"`
	State    string `json:"state"`
	Text     string `json:"text,omitempty"`
	Observed string `json:"observed,omitempty"`
	Message  string `json:"message,omitempty"`
	Trouble  string `json:"trouble,omitempty"`
}

// UnitEvent is something that became of a unit.
type UnitEvent struct {
	At    time.Time `json:"at"`
	State string    `json:"state"`
	Text  string    `json:"text"`
}

func (a *api) getFleet(c *call, _ none) (FleetState, error) {
	o, err := a.Placement.Overview(c, c.actor)
	if err != nil {
		return FleetState{}, err
	}
	out := FleetState{Frozen: o.Frozen, Executor: o.Executor, Units: []PlacedUnit{},
		Settings: FleetSettings{o.Settings.AutoRepair, o.Settings.Spares, o.Settings.SparesFrom, o.Settings.MaxLost}}
	if o.Plan.ID != ids.Nil {
		p := planOf(o.Plan)
		out.Plan = &p
	}
	for i := range o.Units {
		out.Units = append(out.Units, placedOf(&o.Units[i]))
	}
	return out, nil
}

func placedOf(u *fleet.UnitView) PlacedUnit {
	out := PlacedUnit{ID: ids.Format(ids.Unit, u.ID), Name: u.Name, Model: u.Model, Engine: u.Engine, Recipe: u.Recipe, State: u.State, Since: u.Since, Text: u.Text,
		Planned: u.Planned, Leaving: u.Leaving, Degraded: u.Degraded, Parts: []UnitPart{}}
	for _, p := range u.Parts {
		out.Parts = append(out.Parts, UnitPart{ID: ids.Format(ids.Unit, p.ID), Role: p.Role, Replica: p.Replica, Shard: p.Shard, Expert: p.Expert,
			HostID: ids.Format(ids.Host, p.Host), Host: p.HostName, GPUs: append([]int{}, p.GPUs...), State: p.State, Text: p.Text, Observed: p.Observed,
			Message: p.Message, Trouble: p.Trouble})
	}
	return out
}

func (a *api) getPlacedUnit(c *call, _ none) (PlacedUnit, error) {
	id, err := c.id("placed", ids.Unit)
	if err != nil {
		return PlacedUnit{}, err
	}
	u, events, err := a.Placement.Unit(c, c.actor, id)
	if err != nil {
		return PlacedUnit{}, err
	}
	out := placedOf(&u)
	for _, e := range events {
		out.Events = append(out.Events, UnitEvent(e))
	}
	return out, nil
}

func (a *api) setFleetSettings(c *call, in FleetSettings) (FleetSettings, error) {
	return in, a.Placement.SetSettings(c, c.actor, fleet.Settings{AutoRepair: in.AutoRepair, Spares: in.Spares, SparesFrom: in.SparesFrom, MaxLost: in.MaxLost})
}

// Reason says why.
type Reason struct {
	Reason string `json:"reason"`
}

func (a *api) cordonHost(c *call, in Reason) (none, error) {
	id, err := c.id("host", ids.Host)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Placement.Cordon(c, c.actor, id, in.Reason)
}

func (a *api) drainHost(c *call, in Reason) (none, error) {
	id, err := c.id("host", ids.Host)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Placement.Drain(c, c.actor, id, in.Reason)
}

func (a *api) uncordonHost(c *call) (none, error) {
	id, err := c.id("host", ids.Host)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Placement.Uncordon(c, c.actor, id)
}

// DrainConsequence is what it would mean to take a host out of service.
type DrainConsequence struct {
	Units    []AffectedUnit `json:"units"`
	GPUsUsed int            `json:"gpus_used"`
	GPUsFree int            `json:"gpus_free_elsewhere"`
	Moves    []PlanMove     `json:"moves"`
	Unmet    []PlanUnmet    `json:"unmet"`
}

// AffectedUnit is a unit with something on a host. last: no other unit of its model serves.
type AffectedUnit struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Model string `json:"model"`
	State string `json:"state"`
	Last  bool   `json:"last"`
}

func (a *api) drainConsequence(c *call, _ none) (DrainConsequence, error) {
	id, err := c.id("host", ids.Host)
	if err != nil {
		return DrainConsequence{}, err
	}
	q, err := a.Placement.Consequence(c, c.actor, id)
	if err != nil {
		return DrainConsequence{}, err
	}
	out := DrainConsequence{Units: []AffectedUnit{}, GPUsUsed: q.GPUs, GPUsFree: q.Free, Moves: movesOf(q.Moves), Unmet: unmetOf(q.Unmet)}
	for _, u := range q.Units {
		out.Units = append(out.Units, AffectedUnit{ids.Format(ids.Unit, u.ID), u.Name, u.Model, u.State, u.Last})
	}
	return out, nil
}

// HostFacts are what an operator says of a host.
type HostFacts struct {
	Provider string `json:"provider"`
	Region   string `json:"region"`
	Network  string `json:"network,omitempty"`
	Failure  string `json:"failure_domain,omitempty"`
	Kind     string `json:"capacity_kind"`
	GPUHour  string `json:"gpu_hour_usd,omitempty"`
}

func (a *api) setHostFacts(c *call, in HostFacts) (none, error) {
	id, err := c.id("host", ids.Host)
	if err != nil {
		return none{}, err
	}
	var price money.Nano
	if in.GPUHour != "" {
		if price, err = parseUSD("gpu_hour_usd", in.GPUHour); err != nil {
			return none{}, err
		}
	}
	return none{}, a.Placement.SetFacts(c, c.actor, id, fleet.Facts{Provider: in.Provider, Region: in.Region, Network: in.Network, Failure: in.Failure, Kind: in.Kind, GPUHour: int64(price)})
}

// MaintenanceWindow is time in which a host is not there.
type MaintenanceWindow struct {
	ID        string    `json:"id"`
	HostID    string    `json:"host_id"`
	Host      string    `json:"host"`
	StartsAt  time.Time `json:"starts_at"`
	EndsAt    time.Time `json:"ends_at"`
	Reason    string    `json:"reason"`
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
}

func (a *api) listMaintenance(c *call, _ none) (Page[MaintenanceWindow], error) {
	list, err := a.Placement.Windows(c, c.actor)
	return all(list, func(w fleet.Window) MaintenanceWindow {
		return MaintenanceWindow{ID: ids.Format(ids.Window, w.ID), HostID: ids.Format(ids.Host, w.Host), Host: w.HostName, StartsAt: w.Starts, EndsAt: w.Ends,
			Reason: w.Reason, CreatedBy: w.CreatedBy, CreatedAt: w.CreatedAt}
	}), err
}

// NewWindow plans maintenance.
type NewWindow struct {
	StartsAt time.Time `json:"starts_at"`
	EndsAt   time.Time `json:"ends_at"`
	Reason   string    `json:"reason"`
}

// WindowID names a window that was planned.
type WindowID struct {
	ID string `json:"id"`
}

func (a *api) addMaintenance(c *call, in NewWindow) (WindowID, error) {
	host, err := c.id("host", ids.Host)
	if err != nil {
		return WindowID{}, err
	}
	id, err := a.Placement.AddWindow(c, c.actor, fleet.Window{Host: host, Starts: in.StartsAt, Ends: in.EndsAt, Reason: in.Reason})
	return WindowID{format(ids.Window, id)}, err
}

func (a *api) cancelMaintenance(c *call) (none, error) {
	host, err := c.id("host", ids.Host)
	if err != nil {
		return none{}, err
	}
	id, err := c.id("window", ids.Window)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Placement.CancelWindow(c, c.actor, host, id)
}
