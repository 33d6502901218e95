package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Consequence is what it would mean to take a host out of service.
type Consequence struct {
	Units []Affected // that have something on the host
	GPUs  int        // of the host that work for units
	Free  int        // GPUs elsewhere that nobody uses and that can be used
	Moves []plan.Move
	Unmet []plan.Unmet // of the current plan's demands, without the host
}

// Affected is a unit on a host.
type Affected struct {
	ID    ids.ID
	Name  string
	Model string
	State string
	Last  bool // no other unit of its model serves
}

// Consequence tells it, of the hosts and the plan as they are now.
func (s *Service) Consequence(ctx context.Context, by tenants.Actor, id ids.ID) (out Consequence, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		w, err := s.world(ctx, query)
		if err != nil {
			return err
		}
		if w.hosts[id] == nil {
			return noHost(pgx.ErrNoRows)
		}
		out, err = w.without(id, s.limits)
		return err
	})
	return out, err
}

// without is the fleet less one host.
func (w *world) without(id ids.ID, l Limits) (out Consequence, err error) {
	m := w.count()
	for _, u := range w.units {
		on := 0
		for _, g := range u.groups {
			for i := range g.rows {
				if *g.rows[i].HostID == id && g.state() != Planned && g.state() != Stopped {
					on += max(len(g.rows[i].Gpus), 1)
					out.GPUs += len(g.rows[i].Gpus)
				}
			}
		}
		if on > 0 {
			out.Units = append(out.Units, Affected{u.id, u.name, u.row.ModelName, u.row.State, w.serves(u) && m.serving[u.model] == 1})
		}
	}
	for i := range w.others {
		if row := &w.others[i]; *row.HostID == id {
			out.GPUs += len(w.hosts[id].takenBy(row))
			out.Units = append(out.Units, Affected{ID: row.ID, Name: row.Name, Model: row.ModelName, State: row.Wanted, Last: m.serving[row.ModelID] == 1})
		}
	}
	for _, h := range w.order {
		if h.ID != id && !h.lost && !h.Cordoned && !h.Away {
			out.Free += h.free()
		}
	}
	if w.plan == nil {
		return out, nil
	}
	hosts := w.planHosts(l, false)
	for i := range hosts {
		if hosts[i].ID == id {
			hosts[i].Cordoned, hosts[i].Leaving = true, true
		}
	}
	made, err := plan.Make(hosts, w.planDemands(w.plan.demands), w.parent(), w.options(""))
	if err == nil {
		out.Moves, out.Unmet = made.Moves, made.Unmet
	}
	return out, err
}

// free counts the GPUs that nobody uses and that can be used.
func (h *host) free() (n int) {
	for gpu := range h.known {
		if h.held[gpu] == "" && h.broken([]int{gpu}) == "" {
			n++
		}
	}
	return n
}

// Cordon keeps new work off a host; what runs there stays.
func (s *Service) Cordon(ctx context.Context, by tenants.Actor, id ids.ID, reason string) error {
	return s.cordon(ctx, by, id, "host.cordon", true, false, reason)
}

// Drain takes a host out of service: nothing new, and what runs there moves away by a new plan of the same demands.
func (s *Service) Drain(ctx context.Context, by tenants.Actor, id ids.ID, reason string) error {
	return s.cordon(ctx, by, id, "host.drain", true, true, reason)
}

// Uncordon takes a host back into service, drained or not.
func (s *Service) Uncordon(ctx context.Context, by tenants.Actor, id ids.ID) error {
	return s.cordon(ctx, by, id, "host.uncordon", false, false, "")
}

// hostState is what the audit log keeps of it.
type hostState struct {
	Cordoned, Draining bool
	Reason             string
}

func (s *Service) cordon(ctx context.Context, by tenants.Actor, id ids.ID, action string, cordoned, draining bool, reason string) error {
	if len(reason) > MaxReason {
		return fault.New(fault.Invalid, "A reason has at most %d bytes.", MaxReason).WithParam("reason")
	}
	return s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		h, err := query.LockHost(ctx, id)
		if err != nil {
			return audit.Change{}, noHost(err)
		}
		was, now := hostState{h.Cordoned, h.Draining, h.CordonReason}, hostState{cordoned, draining, reason}
		if was == now {
			return audit.Change{}, nil
		}
		who := by.Name()
		if !cordoned {
			who = ""
		}
		err = query.CordonHost(ctx, q.CordonHostParams{ID: id, Cordoned: cordoned, Draining: draining, Reason: reason, By: who})
		return audit.Change{Action: action, Target: targetHost(id), Before: was, After: now}, err
	})
}

// Facts are what an operator says of a host.
type Facts struct {
	Provider string
	Region   string
	Network  string // hosts of one reach each other's fabric addresses; "" = provider and region
	Failure  string // failure domain; "" = the host itself
	Kind     string // of capacity
	GPUHour  int64  // price of one GPU for an hour, in nano units of money
}

func (f *Facts) validate() error {
	if f.Provider == "" || f.Region == "" {
		return fault.New(fault.Invalid, "Say the host's provider and region.").WithParam("provider")
	}
	for _, text := range []string{f.Provider, f.Region, f.Network, f.Failure} {
		if len(text) > MaxName {
			return fault.New(fault.Invalid, "Names have at most %d bytes.", MaxName).WithParam("provider")
		}
	}
	if f.Kind != plan.Reserved && f.Kind != plan.OnDemand && f.Kind != plan.Spot {
		return fault.New(fault.Invalid, "%q is no kind of capacity: give reserved, on_demand or spot.", f.Kind).WithParam("capacity_kind")
	}
	if f.GPUHour < 0 {
		return fault.New(fault.Invalid, "A price is not negative.").WithParam("gpu_hour")
	}
	return nil
}

// SetFacts says where a host is and what it is. Prices of whole fleets are the margin's; this one is the host's own.
func (s *Service) SetFacts(ctx context.Context, by tenants.Actor, id ids.ID, f Facts) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	if err := f.validate(); err != nil {
		return err
	}
	return s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		h, err := query.LockHost(ctx, id)
		if err != nil {
			return audit.Change{}, noHost(err)
		}
		was := Facts{h.Provider, h.Region, h.Network, h.FailureDomain, h.CapacityKind, h.GpuHourNano}
		if was == f {
			return audit.Change{}, nil
		}
		err = query.SetHostFacts(ctx, q.SetHostFactsParams{ID: id, Provider: f.Provider, Region: f.Region, CapacityKind: f.Kind, GpuHourNano: f.GPUHour,
			Network: f.Network, FailureDomain: f.Failure})
		return audit.Change{Action: "host.facts", Target: targetHost(id), Before: was, After: f}, err
	})
}

// Window is a maintenance window: an hour before it begins, what is on the host moves away; after it, the host is used again.
type Window struct {
	ID        ids.ID
	Host      ids.ID
	HostName  string
	Starts    time.Time
	Ends      time.Time
	Reason    string
	CreatedBy string
	CreatedAt time.Time
}

// AddWindow plans maintenance of a host.
func (s *Service) AddWindow(ctx context.Context, by tenants.Actor, w Window) (ids.ID, error) {
	switch {
	case !w.Starts.Before(w.Ends) || w.Ends.Sub(w.Starts) > longestWindow:
		return ids.Nil, fault.New(fault.Invalid, "A window ends after it begins, within %d days.", int(longestWindow.Hours()/24)).WithParam("ends_at")
	case !w.Ends.After(s.now()):
		return ids.Nil, fault.New(fault.Invalid, "The window is over.").WithParam("ends_at")
	case len(w.Reason) > MaxReason:
		return ids.Nil, fault.New(fault.Invalid, "A reason has at most %d bytes.", MaxReason).WithParam("reason")
	}
	id := ids.New()
	return id, s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		if _, err := query.LockHost(ctx, w.Host); err != nil {
			return audit.Change{}, noHost(err)
		}
		_, err := query.InsertMaintenance(ctx, q.InsertMaintenanceParams{ID: id, HostID: w.Host, StartsAt: w.Starts.UTC(), EndsAt: w.Ends.UTC(), Reason: w.Reason,
			CreatedBy: by.Name(), Most: maxWindows})
		if errors.Is(err, pgx.ErrNoRows) {
			return audit.Change{}, fault.New(fault.Conflict, "The host has %d windows ahead: cancel one first.", maxWindows).WithCode("too_many_windows")
		}
		return audit.Change{Action: "host.maintenance", Target: targetHost(w.Host), After: map[string]any{"starts_at": w.Starts, "ends_at": w.Ends, "reason": w.Reason}}, err
	})
}

// CancelWindow takes a window back, also one that is open.
func (s *Service) CancelWindow(ctx context.Context, by tenants.Actor, host, id ids.ID) error {
	return s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		was, err := query.CancelMaintenance(ctx, q.CancelMaintenanceParams{ID: id, HostID: host})
		if err != nil {
			return audit.Change{}, missing(err, "maintenance window", "window_not_found")
		}
		return audit.Change{Action: "host.maintenance_cancelled", Target: targetHost(host), Before: was}, nil
	})
}

// Windows lists those that are open or ahead.
func (s *Service) Windows(ctx context.Context, by tenants.Actor) (out []Window, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		out, err = windows(ctx, query)
		return err
	})
	return out, err
}

func windows(ctx context.Context, query *q.Queries) (out []Window, err error) {
	rows, err := query.ListMaintenance(ctx)
	for _, r := range rows {
		out = append(out, Window{ID: r.ID, Host: r.HostID, HostName: r.HostName, Starts: r.StartsAt, Ends: r.EndsAt, Reason: r.Reason, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt})
	}
	return out, err
}
