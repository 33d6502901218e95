// Package domain puts the control API on the real domain where the ports and the domain's own types do not match: usage
// and requests, the fleet, the installation's state and reconcile.
//
// It owns the translation and nothing else: every call carries the caller's Actor, and the domain function checks it.
// Invariants: a group or host is named as the API names things everywhere; what is not known is left empty, never guessed.
package domain

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/api/control"
	"millrace/billing/ledger"
	"millrace/billing/rate"
	"millrace/billing/reconcile"
	"millrace/billing/report"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Fleet is hosts and units as they are now: *hub.Hub.
type Fleet interface {
	Live() hub.Live
	JoinToken(ctx context.Context, host string, by tenants.Actor) (string, error)
}

// Lag is how far the rater is behind: *report.Lag.
type Lag interface {
	Now() (lag time.Duration, known bool)
}

// Deps is what the ports stand on. All of it must be set.
type Deps struct {
	DB      *db.DB
	Bus     *bus.Bus // of the usage log
	Report  *report.Service
	Fleet   Fleet
	Lag     Lag
	Clock   clock.Clock
	Version string
}

// Ports are the API's on the domain.
type Ports struct {
	Fleet  control.Fleet
	Books  control.Books
	System control.System
}

// New makes the ports.
func New(d Deps) Ports { return Ports{Fleet: fleet{&d}, Books: books{&d}, System: system{&d}} }

type (
	fleet  struct{ d *Deps }
	books  struct{ d *Deps }
	system struct{ d *Deps }
)

// lostAfter is how long ago an agent may have been heard of: hubs mark linked hosts every 5 s.
const lostAfter = 15 * time.Second

// Hosts lists the hosts that are not removed.
func (f fleet) Hosts(ctx context.Context, by tenants.Actor) ([]control.HostInfo, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	var rows []q.PageHostsRow
	err := f.d.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		rows, err = q.New(tx).PageHosts(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([]control.HostInfo, len(rows))
	for i, r := range rows {
		var seen wire.Observed
		if err := json.Unmarshal(r.Observed, &seen); err != nil {
			return nil, fmt.Errorf("control: what host %s observes: %w", r.Name, err)
		}
		ago := time.Duration(r.SeenMs) * time.Millisecond
		out[i] = control.HostInfo{ID: r.ID, Name: r.Name, Provider: r.Provider, Region: r.Region, CapacityKind: r.CapacityKind, GPUHour: money.Nano(r.GpuHourNano),
			AgentVersion: r.AgentVersion, GPUs: len(seen.GPUs), Simulated: seen.Simulated, Cordoned: r.Cordoned, Connected: ago >= 0 && ago < lostAfter, JoinedAt: r.JoinedAt}
		if ago >= 0 {
			out[i].SeenAt = f.d.Clock.Now().UTC().Add(-ago)
		}
	}
	return out, nil
}

// CreateJoinToken makes a one-time token for a host of this name.
func (f fleet) CreateJoinToken(ctx context.Context, by tenants.Actor, host string) (string, time.Time, error) {
	token, err := f.d.Fleet.JoinToken(ctx, host, by)
	return token, f.d.Clock.Now().UTC().Add(hub.TokenLife), err
}

// UnitStates is what hubs tell of units.
func (f fleet) UnitStates() map[ids.ID]control.UnitState {
	live := f.d.Fleet.Live().Units
	out := make(map[ids.ID]control.UnitState, len(live))
	for id, u := range live {
		out[id] = control.UnitState{State: u.Load.State, Running: u.Load.Running, Waiting: u.Load.Waiting, KVUsage: u.Load.KVUsage, Eligible: u.Load.State == wire.StateReady}
	}
	return out
}

// groups are the API's groups in the domain's words, with the prefix of their ids.
var groups = map[string]struct{ by, prefix string }{
	"none": {report.ByNothing, ""}, "model": {report.ByModel, ids.Model}, "project": {report.ByProject, ids.Project}, "key": {report.ByKey, ids.Key}, "org": {report.ByOrg, ids.Org},
}

// Usage reads rollups.
func (b books) Usage(ctx context.Context, by tenants.Actor, in control.UsageQuery) ([]control.UsageCell, error) {
	group, known := groups[in.Group]
	if !known {
		return nil, fault.New(fault.Invalid, "There is no group %q.", in.Group).WithParam("group_by")
	}
	cells, err := b.d.Report.Usage(ctx, by, report.Query{From: in.From, To: in.To, Zone: in.Zone, Step: in.Step, Group: group.by, Org: in.Org})
	out := make([]control.UsageCell, len(cells))
	for i, c := range cells {
		out[i] = control.UsageCell{Start: c.Start, Label: c.Label, Requests: c.Requests, Errors: c.Errors, Tokens: c.Usage, Charged: c.Charged, Overrun: c.Overrun}
		if group.prefix != "" {
			out[i].Group = ids.Format(group.prefix, c.Group)
		}
	}
	return out, err
}

// Request is one request that was rated or set aside.
func (b books) Request(ctx context.Context, by tenants.Actor, org, id ids.ID) (control.RequestInfo, error) {
	r, v, err := b.d.Report.Request(ctx, by, org, id)
	if err != nil {
		return control.RequestInfo{}, err
	}
	return control.RequestInfo{Event: r.Event, Model: r.Model, Prices: v.PricesOf(&r.Event), Charged: r.Charged, Overrun: r.Overrun, Saved: r.Saved, Repriced: r.Repriced, Txn: r.Txn, Aside: r.Quarantined}, nil
}

// Quarantine lists what waits for a decision.
func (b books) Quarantine(ctx context.Context, by tenants.Actor, before ids.ID, limit int) ([]report.Quarantined, error) {
	return b.d.Report.Quarantine(ctx, by, before, limit)
}

// Quarantined is one event in quarantine.
func (b books) Quarantined(ctx context.Context, by tenants.Actor, id ids.ID) (report.Quarantined, error) {
	return b.d.Report.Quarantined(ctx, by, id)
}

// Redrive books one after all.
func (b books) Redrive(ctx context.Context, by tenants.Actor, id ids.ID) error {
	return rate.NewDesk(b.d.DB, b.d.Clock).Redrive(ctx, by, id)
}

// Dismiss decides that one is never charged.
func (b books) Dismiss(ctx context.Context, by tenants.Actor, id ids.ID, why string) error {
	return rate.NewDesk(b.d.DB, b.d.Clock).Dismiss(ctx, by, id, why)
}

// Statement is the organization's ledger.
func (b books) Statement(ctx context.Context, by tenants.Actor, org ids.ID, from, to time.Time) (*ledger.AccountStatement, error) {
	return b.d.Report.Statement(ctx, by, org, from, to)
}

// Status is how the installation is. A lag that no rater has told is 0.
func (s system) Status(ctx context.Context) (control.StatusInfo, error) {
	epochs, err := s.d.Report.OpenEpochs(ctx, tenants.System()) // the API has checked its caller
	out := control.StatusInfo{Version: s.d.Version, OpenEpochs: make([]control.EpochInfo, len(epochs))}
	out.RaterLag, _ = s.d.Lag.Now()
	for i, e := range epochs {
		out.OpenEpochs[i] = control.EpochInfo{ID: e.ID, Process: e.Process, StartedAt: e.StartedAt, HeartbeatAt: e.HeartbeatAt, Outstanding: e.Outstanding}
	}
	return out, err
}

// Reconcile compares everything up to now and keeps the report.
func (s system) Reconcile(ctx context.Context, by tenants.Actor) (control.ReconcileInfo, error) {
	if err := by.RequireOperator(); err != nil {
		return control.ReconcileInfo{}, err
	}
	r, err := reconcile.Run(ctx, reconcile.Config{DB: s.d.DB, Bus: s.d.Bus, Clock: s.d.Clock})
	if err != nil {
		return control.ReconcileInfo{}, err
	}
	text, err := json.Marshal(r)
	return control.ReconcileInfo{At: r.At, Watermark: r.Watermark, Unexplained: r.Unexplained, Report: text}, err
}
