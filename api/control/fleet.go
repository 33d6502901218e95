package control

import (
	"time"

	"millrace/internal/ids"
	"millrace/serving/catalogue"
)

// Unit is the smallest thing that serves a model, and its state as the process that answers sees it now.
type Unit struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Model         string    `json:"model"`
	ModelID       string    `json:"model_id"`
	Engine        string    `json:"engine"`
	EngineLabel   string    `json:"engine_label"`
	Attached      bool      `json:"attached"`
	URL           string    `json:"url,omitempty"`
	HasKey        bool      `json:"has_key"`
	HostID        string    `json:"host_id,omitempty"`
	UpstreamModel string    `json:"upstream_model"`
	Wanted        string    `json:"wanted"`
	State         string    `json:"state"`
	Message       string    `json:"message,omitempty"`
	Eligible      bool      `json:"eligible"`
	Running       int       `json:"running"`
	Waiting       int       `json:"waiting"`
	KVUsage       float64   `json:"kv_usage"`
	CreatedAt     time.Time `json:"created_at"`
}

const stateUnknown = "unknown"

func unitOf(u catalogue.UnitInfo, now UnitState) Unit {
	if now.State == "" {
		now.State = stateUnknown
	}
	return Unit{ID: ids.Format(ids.Unit, u.ID), Name: u.Name, Model: u.Model, ModelID: ids.Format(ids.Model, u.ModelID), Engine: string(u.Engine),
		EngineLabel: u.Label, Attached: u.Attached, URL: u.URL, HasKey: u.HasKey, HostID: format(ids.Host, u.HostID), UpstreamModel: u.UpstreamModel,
		Wanted: u.Wanted, State: now.State, Message: now.Message, Eligible: now.Eligible, Running: now.Running, Waiting: now.Waiting,
		KVUsage: now.KVUsage, CreatedAt: u.Created}
}

func (a *api) listUnits(c *call, _ none) (Page[Unit], error) {
	units, err := a.Catalogue.List(c, c.actor)
	if err != nil {
		return Page[Unit]{}, err
	}
	states := a.Fleet.UnitStates()
	return all(units, func(u catalogue.UnitInfo) Unit { return unitOf(u, states[u.ID]) }), nil
}

// NewUnit attaches an engine or provider that someone already runs.
type NewUnit struct {
	Name          string `json:"name"`
	URL           string `json:"url"`
	Engine        string `json:"engine"`
	Model         string `json:"model"`
	UpstreamModel string `json:"upstream_model,omitempty"`
	Key           string `json:"key,omitempty"`
	Replace       bool   `json:"replace,omitempty"`
}

// AttachedUnit says which unit it became.
type AttachedUnit struct {
	ID string `json:"id"`
}

func (a *api) attachUnit(c *call, in NewUnit) (AttachedUnit, error) {
	id, err := a.Catalogue.Attach(c, catalogue.AttachInput{Name: in.Name, URL: in.URL, Engine: in.Engine, PublicModel: in.Model,
		UpstreamModel: in.UpstreamModel, Key: in.Key, Replace: in.Replace}, c.actor)
	return AttachedUnit{ID: format(ids.Unit, id)}, err
}

func (a *api) detachUnit(c *call) (none, error) {
	id, err := c.id("unit", ids.Unit)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Catalogue.Detach(c, id, c.actor)
}

// Host is a machine with an agent.
type Host struct {
	ID           string     `json:"id"`
	Name         string     `json:"name"`
	Provider     string     `json:"provider"`
	Region       string     `json:"region"`
	CapacityKind string     `json:"capacity_kind"`
	GPUHour      Amount     `json:"gpu_hour"`
	AgentVersion string     `json:"agent_version"`
	GPUs         int        `json:"gpus"`
	Simulated    bool       `json:"simulated"`
	Cordoned     bool       `json:"cordoned"`
	Connected    bool       `json:"connected"`
	JoinedAt     time.Time  `json:"joined_at"`
	SeenAt       *time.Time `json:"seen_at,omitempty"`
}

func (a *api) listHosts(c *call, _ none) (Page[Host], error) {
	hosts, err := a.Fleet.Hosts(c, c.actor)
	return all(hosts, func(h HostInfo) Host {
		return Host{ID: ids.Format(ids.Host, h.ID), Name: h.Name, Provider: h.Provider, Region: h.Region, CapacityKind: h.CapacityKind,
			GPUHour: amount(h.GPUHour), AgentVersion: h.AgentVersion, GPUs: h.GPUs, Simulated: h.Simulated, Cordoned: h.Cordoned,
			Connected: h.Connected, JoinedAt: h.JoinedAt, SeenAt: optionalTime(h.SeenAt)}
	}), err
}

// HostName names a host that is to join.
type HostName struct {
	Name string `json:"name"`
}

// JoinToken lets one host in, once.
type JoinToken struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (a *api) createJoinToken(c *call, in HostName) (JoinToken, error) {
	token, expires, err := a.Fleet.CreateJoinToken(c, c.actor, in.Name)
	return JoinToken{Token: token, ExpiresAt: expires}, err
}
