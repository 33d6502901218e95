package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Overview is the whole fleet in one state of the database.
type Overview struct {
	Plan     PlanInfo // the current one; the zero value = none was ever committed
	Frozen   string   // why nothing moves; "" = it may
	Executor string   // who carries the plan out; "" = nobody just now
	Settings Settings
	Hosts    []HostView // by name
	Units    []UnitView // of plans and others that are placed
	Windows  []Window
}

// HostView is a machine.
type HostView struct {
	ID           ids.ID
	Name         string
	Facts        Facts
	Domain       string // scale-up domain that an operator gave; GPUs may name others
	Connected    bool   // its agent is heard of
	Joined       time.Time
	Seen         time.Duration // ago; negative = never
	AgentVersion string
	Simulated    bool
	Cordoned     bool
	Draining     bool
	Away         bool // a maintenance window is open, or begins soon
	Reason       string
	CordonedBy   string
	CordonedAt   time.Time
	Observed     wire.Observed
	GPUs         []GPUView
}

// GPUView is a GPU and who uses it.
type GPUView struct {
	wire.GPU
	Broken string // why it cannot be used; "" = it can
	Unit   ids.ID // Nil = none
	Name   string // of the unit
	Role   string
	State  string // of the unit's group
}

// UnitView is a unit and its engines.
type UnitView struct {
	ID       ids.ID
	Name     string
	Model    string
	ModelID  ids.ID
	Engine   string
	Recipe   string // name; "" = none is known
	State    string
	Since    time.Time
	Text     string // why it is in this state
	Planned  bool   // a plan owns it
	Leaving  string // why it goes; "" = it stays
	Degraded string // why it serves with less than its whole; "" = it does not
	Parts    []PartView
}

// PartView is one engine process.
type PartView struct {
	ID       ids.ID
	Role     string
	Replica  int
	Shard    int
	Expert   int // EP size; 0 = the recipe's
	Host     ids.ID
	HostName string
	GPUs     []int
	State    string
	Text     string
	Tries    int
	Observed string // as its agent tells; "" = nothing of what is wanted
	Message  string // of the agent
	Trouble  string // of its hardware or host; "" = none
}

// Overview gives the fleet.
func (s *Service) Overview(ctx context.Context, by tenants.Actor) (out Overview, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		w, err := s.world(ctx, query)
		if err != nil {
			return err
		}
		out.Frozen, out.Settings = w.frozen(), settingsOf(w.settings)
		if out.Windows, err = windows(ctx, query); err != nil {
			return err
		}
		lease, err := query.GetLease(ctx, leaseName)
		if err == nil && lease.Held {
			out.Executor = lease.Holder
		} else if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if w.plan != nil {
			r, err := query.GetPlan(ctx, w.plan.id)
			if err != nil {
				return err
			}
			out.Plan = PlanInfo{ID: r.ID, Number: r.Number, Parent: r.ParentNumber, Cause: r.Cause, Note: r.Note, State: r.State, CreatedBy: r.CreatedBy,
				CreatedAt: r.CreatedAt, CommittedBy: textOf(r.CommittedBy), CommittedAt: timeOf(r.CommittedAt), Units: len(w.plan.body.Units),
				Moves: len(w.plan.body.Moves), Unmet: len(w.plan.body.Unmet)}
		}
		for _, u := range w.units {
			out.Units = append(out.Units, w.unitView(u))
		}
		for i := range w.others {
			out.Units = append(out.Units, w.otherView(&w.others[i]))
		}
		uses := w.uses()
		for _, h := range w.order {
			out.Hosts = append(out.Hosts, h.view(uses[h.ID]))
		}
		return nil
	})
	return out, err
}

// use is what some GPUs of a host do.
type use struct {
	gpus              []int
	unit              ids.ID
	name, role, state string
}

// uses is who uses what, by host.
func (w *world) uses() map[ids.ID][]use {
	out := make(map[ids.ID][]use, len(w.hosts))
	for _, u := range w.units {
		for _, g := range u.groups {
			for i := range g.rows {
				at := *g.rows[i].HostID
				out[at] = append(out[at], use{gpusOf(&g.rows[i]), u.id, u.name, g.role, g.state()})
			}
		}
	}
	for i := range w.others {
		row := &w.others[i]
		if h := w.hosts[*row.HostID]; h != nil {
			out[h.ID] = append(out[h.ID], use{h.takenBy(row), row.ID, row.Name, row.Role, row.Wanted})
		}
	}
	return out
}

func (h *host) view(uses []use) HostView {
	v := HostView{ID: h.ID, Name: h.Name, Facts: Facts{h.Provider, h.Region, h.Network, h.FailureDomain, h.CapacityKind, h.GpuHourNano}, Domain: h.Domain,
		Connected: !h.lost, Joined: h.JoinedAt, Seen: millis(h.SeenMs), AgentVersion: h.AgentVersion, Simulated: h.seen.Simulated, Cordoned: h.Cordoned,
		Draining: h.Draining, Away: h.Away, Reason: h.CordonReason, CordonedBy: h.CordonedBy, CordonedAt: timeOf(h.CordonedAt), Observed: h.seen}
	if h.SeenMs < 0 {
		v.Seen = -1
	}
	for _, g := range h.seen.GPUs {
		v.GPUs = append(v.GPUs, GPUView{GPU: g, Broken: h.broken([]int{g.Index})})
	}
	for _, u := range uses {
		for i := range v.GPUs {
			if g := &v.GPUs[i]; slices.Contains(u.gpus, g.Index) && (g.Unit == ids.Nil || u.state != Planned) {
				g.Unit, g.Name, g.Role, g.State = u.unit, u.name, u.role, u.state
			}
		}
	}
	return v
}

func (w *world) unitView(u *unit) UnitView {
	v := UnitView{ID: u.id, Name: u.name, Model: u.row.ModelName, ModelID: u.model, Engine: u.row.Engine, State: u.row.State, Since: u.row.StateAt,
		Text: u.row.StateText, Planned: true}
	if r := w.recipes[u.release]; r != nil {
		v.Recipe = r.Name
	}
	switch {
	case u.want == nil:
		v.Leaving = "the plan no longer wants it"
	case u.want.Ends != "":
		v.Leaving = u.want.Ends
	}
	for _, g := range u.groups {
		if u.row.State == Serving && v.Degraded == "" && v.Leaving == "" {
			v.Degraded = w.lacks(g)
		}
		for i := range g.rows {
			v.Parts = append(v.Parts, w.partView(&g.rows[i], &g.parts[i]))
		}
	}
	return v
}

// lacks says what a group of a serving unit does not do; "" = it does all.
func (w *world) lacks(g *group) string {
	if g.state() != Serving {
		text := g.role + " is " + g.state()
		if why := g.rows[0].StateText; why != "" {
			text += ": " + why
		}
		return text
	}
	for _, p := range g.parts {
		if p.Seen.Lost {
			return "host " + p.Name + " is not heard of"
		}
	}
	if g.rows[0].Expert > 0 {
		return g.role + " runs on fewer GPUs than its recipe says"
	}
	return ""
}

func (w *world) partView(row *fleetRow, p *Part) PartView {
	v := PartView{ID: row.ID, Role: row.Role, Replica: int(row.Replica), Shard: int(row.Shard), Expert: int(row.Expert), Host: *row.HostID, HostName: p.Name,
		GPUs: gpusOf(row), State: row.State, Text: row.StateText, Tries: int(row.Tries), Observed: p.Seen.State, Message: p.Seen.Text, Trouble: p.Seen.Broken}
	if p.Seen.Lost && v.Trouble == "" {
		v.Trouble = "its host is not heard of"
	}
	return v
}

// otherView is a placed unit that no plan owns: its state is its agent's.
func (w *world) otherView(row *fleetRow) UnitView {
	p := w.part(row, nil)
	v := UnitView{ID: row.ID, Name: row.Name, Model: row.ModelName, ModelID: row.ModelID, Engine: row.Engine, State: row.Wanted, Since: row.CreatedAt,
		Parts: []PartView{w.partView(row, &p)}}
	if h := w.hosts[*row.HostID]; h != nil {
		v.Parts[0].GPUs = h.takenBy(row)
	}
	return v
}

// Event is something that became of a unit.
type Event struct {
	At    time.Time
	State string
	Text  string
}

// Unit shows one placed unit, and what became of it, the newest first.
func (s *Service) Unit(ctx context.Context, by tenants.Actor, id ids.ID) (out UnitView, events []Event, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		w, err := s.world(ctx, query)
		if err != nil {
			return err
		}
		found := false
		if u := w.byID[id]; u != nil {
			out, found = w.unitView(u), true
		}
		for i := range w.others {
			if w.others[i].ID == id {
				out, found = w.otherView(&w.others[i]), true
			}
		}
		if !found {
			return missing(pgx.ErrNoRows, "placed unit", "unit_not_found")
		}
		rows, err := query.ListUnitEvents(ctx, q.ListUnitEventsParams{UnitID: id, MaxRows: MaxListed})
		for _, r := range rows {
			events = append(events, Event{r.At, r.State, r.Text})
		}
		return err
	})
	return out, events, err
}
