package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/fleet"
	"millrace/tenants"
	"millrace/web/admin"
	"millrace/web/ui"
)

// What an operator wants of a unit, as the catalogue keeps it.
const (
	wantServing  = "serving"
	wantDraining = "draining"
)

const (
	// lostAfter is how long ago an agent may have been heard of: hubs mark linked hosts every 5 s.
	lostAfter = 15 * time.Second
	// trafficSince is the window of a unit's cache hits and latencies.
	trafficSince = 5 * time.Minute
)

func linked(h q.PageHostsRow) bool {
	return h.SeenMs >= 0 && time.Duration(h.SeenMs)*time.Millisecond < lostAfter
}

// machines is the fleet in one read.
type machines struct {
	hosts    []q.PageHostsRow
	observed map[ids.ID]wire.Observed // by host
	units    []catalogue.UnitInfo
	releases map[ids.ID]q.PageUnitReleasesRow
	live     map[ids.ID]hub.LiveUnit
}

func (b business) machines(ctx context.Context, by tenants.Actor) (m machines, err error) {
	if m.units, err = b.Catalogue.List(ctx, by); err != nil { // asks the actor
		return m, err
	}
	m.live = b.Fleet.Live().Units
	m.observed, m.releases = map[ids.ID]wire.Observed{}, map[ids.ID]q.PageUnitReleasesRow{}
	err = b.asSystem(ctx, func(r *q.Queries) error {
		if m.hosts, err = r.PageHosts(ctx); err != nil {
			return err
		}
		rows, err := r.PageUnitReleases(ctx)
		for _, row := range rows {
			m.releases[row.ID] = row
		}
		return err
	})
	for _, h := range m.hosts {
		var o wire.Observed
		if bad := json.Unmarshal(h.Observed, &o); bad != nil {
			slog.WarnContext(ctx, "web: a host's observed state cannot be read", "host", h.Name, "cause", bad)
		}
		m.observed[h.ID] = o
	}
	return m, err
}

// Hosts are the machines that run agents.
func (b business) Hosts(ctx context.Context) ([]admin.Host, error) {
	m, err := b.machines(ctx, operator(ctx))
	out := make([]admin.Host, len(m.hosts))
	for i, h := range m.hosts {
		out[i] = m.host(h, b.Clock.Now())
	}
	return out, err
}

// Host is one of them.
func (b business) Host(ctx context.Context, id ids.ID) (admin.Host, error) {
	list, err := b.Hosts(ctx)
	if i := slices.IndexFunc(list, func(h admin.Host) bool { return h.ID == id }); i >= 0 {
		return list[i], err
	}
	if err != nil {
		return admin.Host{}, err
	}
	return admin.Host{}, fault.New(fault.NotFound, "There is no such host.").WithCode("host_not_found")
}

func (m *machines) host(h q.PageHostsRow, now time.Time) admin.Host {
	o := m.observed[h.ID]
	out := admin.Host{ID: h.ID, Name: h.Name, Group: h.Domain, State: admin.HostConnected, Joined: h.JoinedAt, Agent: h.AgentVersion, Memory: o.MemoryBytes, Simulated: o.Simulated}
	if out.Group == "" {
		out.Group = h.Provider + " · " + h.Region
	}
	if h.DataUrl != wire.DataByLink {
		out.Address = h.DataUrl
	}
	if h.SeenMs >= 0 {
		out.LastSeen = now.Add(-time.Duration(h.SeenMs) * time.Millisecond)
	}
	switch {
	case h.SeenMs < 0:
		out.State, out.Note = admin.HostLost, "its agent has not connected yet"
	case !linked(h):
		out.State, out.Note = admin.HostLost, "its agent is not connected: its units get no new work"
	case h.Cordoned:
		out.State = admin.HostDraining
	}
	if o.CPUs > 0 {
		out.CPU = fmt.Sprintf("%d CPUs", o.CPUs)
	}
	m.hardware(&out, &o)
	for _, g := range o.GPUs {
		out.GPUs = append(out.GPUs, admin.GPU{Index: g.Index, Name: g.Model, State: ui.GPUFree})
	}
	for _, u := range m.units {
		if u.HostID != h.ID {
			continue
		}
		out.Units = append(out.Units, u.Name)
		if slot := int(m.releases[u.ID].Slot); slot < len(out.GPUs) { // an engine runs on the accelerator of its slot
			out.GPUs[slot].Unit, out.GPUs[slot].State = u.Name, gpuState(m.stateOf(u))
		}
	}
	return out
}

func gpuState(s admin.UnitState) ui.GPUState {
	switch s {
	case admin.UnitDraining:
		return ui.GPUDraining
	case admin.UnitFailed:
		return ui.GPUFailed
	case admin.UnitStopped:
		return ui.GPUFree
	}
	return ui.GPUUnit
}

// unitStates are what agents and probers tell, in the page's words.
var unitStates = map[string]admin.UnitState{wire.StateStarting: admin.UnitStarting, wire.StateReady: admin.UnitServing, wire.StateDraining: admin.UnitDraining,
	wire.StateStopped: admin.UnitStopped, wire.StateFaulted: admin.UnitFailed, wire.StateUnknown: admin.UnitFailed}

// plannedStates are those of units that a plan owns, in the page's words.
var plannedStates = map[string]admin.UnitState{fleet.Planned: admin.UnitStopped, fleet.Starting: admin.UnitStarting, fleet.Ready: admin.UnitStarting,
	fleet.Draining: admin.UnitDraining, fleet.Stopped: admin.UnitStopped, fleet.Faulted: admin.UnitFailed}

func (m *machines) stateOf(u catalogue.UnitInfo) admin.UnitState {
	live, heard := m.live[u.ID]
	switch {
	case u.Planned && u.State != fleet.Serving:
		return plannedStates[u.State]
	case u.Parts > 0:
		return admin.UnitServing
	case u.Wanted == wantDraining:
		return admin.UnitDraining
	case u.Wanted != wantServing:
		return admin.UnitStopped
	case !heard:
		return admin.UnitStarting
	}
	return unitStates[live.Load.State]
}

// Units are what serves.
func (b business) Units(ctx context.Context) ([]admin.Unit, error) {
	by := operator(ctx)
	m, err := b.machines(ctx, by)
	if err != nil {
		return nil, err
	}
	traffic, err := b.Report.UnitTraffic(ctx, by, b.Clock.Now().Add(-trafficSince))
	out := make([]admin.Unit, len(m.units))
	for i, u := range m.units {
		x := m.unit(u)
		t := traffic[u.ID]
		x.Prompt, x.Cached, x.FirstTok, x.Errors, x.Requests = t.Prompt, t.Cached, ui.Quantiles(t.First), t.Errors, t.Requests
		out[i] = x
	}
	return out, err
}

// Unit is one of them.
func (b business) Unit(ctx context.Context, id ids.ID) (admin.Unit, error) {
	list, err := b.Units(ctx)
	if i := slices.IndexFunc(list, func(u admin.Unit) bool { return u.ID == id }); i >= 0 {
		return list[i], err
	}
	if err != nil {
		return admin.Unit{}, err
	}
	return admin.Unit{}, fault.New(fault.NotFound, "There is no such unit.").WithCode("unit_not_found")
}

const perMille = 1000

func (m *machines) unit(u catalogue.UnitInfo) admin.Unit {
	live, heard := m.live[u.ID]
	out := admin.Unit{ID: u.ID, Name: u.Name, Engine: u.Label, Simulated: simulated(u.Engine), Model: u.Model, State: m.stateOf(u), Since: u.Created,
		Running: int64(live.Load.Running), Waiting: int64(live.Load.Waiting), KVUsed: int64(live.Load.KVUsage * perMille)}
	if out.Simulated {
		out.Engine = "vLLM's dialect" // the page says that it is simulated
	}
	if u.Attached {
		out.Attached = u.URL
	} else {
		if u.Host != "" {
			out.Hosts = []string{u.Host}
		}
		if r, ok := m.releases[u.ID]; ok {
			out.Release = fmt.Sprintf("release %d", r.Number)
		}
	}
	for _, o := range m.observed[u.HostID].Units {
		if o.Unit == u.ID {
			out.Note = o.Message
			if o.StartedMS > 0 {
				out.Since = milli(o.StartedMS)
			}
		}
	}
	switch {
	case u.Planned && u.State != fleet.Serving:
		out.Note = u.StateText
	case u.Parts > 0:
	case u.Wanted == wantServing && !heard:
		out.Note = "nothing was heard of it yet"
	case heard && live.Load.State == wire.StateUnknown:
		out.Note = "its host is not connected"
	}
	return out
}
