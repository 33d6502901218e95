package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// States of a plan.
const (
	Draft      = "draft"
	Committed  = "committed"
	Superseded = "superseded"
)

// Causes of a plan.
const (
	ByOperator = "operator"
	ByRepair   = "repair" // proposed, and by the settings committed, by the fleet itself
)

// PlanInfo is a plan in a list.
type PlanInfo struct {
	ID          ids.ID
	Number      int64
	Parent      int64 // number; 0 = none
	Cause       string
	Note        string
	State       string
	CreatedBy   string
	CreatedAt   time.Time
	CommittedBy string // "" = never committed
	CommittedAt time.Time
	Units       int
	Moves       int
	Unmet       int
}

// PlanView is a plan with its moves against its parent.
type PlanView struct {
	PlanInfo
	Body     plan.Plan
	Before   plan.Plan // the parent's
	Demands  []Wish
	Outdated bool              // a draft that can no longer be committed: its parent is not the current plan
	Hosts    map[ids.ID]string // names of the hosts in it
}

// Draft makes a plan of the demands, the hosts and the current plan as they are now. Nothing moves before it is committed.
func (s *Service) Draft(ctx context.Context, by tenants.Actor, note string) (id ids.ID, err error) {
	if len(note) > MaxNote {
		return ids.Nil, fault.New(fault.Invalid, "A note has at most %d bytes.", MaxNote).WithParam("note")
	}
	err = s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		if err := query.LockPlans(ctx); err != nil {
			return audit.Change{}, err
		}
		w, err := s.world(ctx, query)
		if err != nil {
			return audit.Change{}, err
		}
		wants, err := wishes(ctx, query, w)
		if err != nil {
			return audit.Change{}, err
		}
		id = ids.New()
		made, err := plan.Make(w.planHosts(s.limits, false), w.planDemands(wants), w.parent(), w.options(id.String()))
		if err != nil {
			return audit.Change{}, err
		}
		number, err := w.insertPlan(ctx, query, id, ByOperator, made, wants, note, by.Name())
		return audit.Change{Action: "plan.draft", Target: planName(number), After: map[string]any{"note": note, "moves": len(made.Moves), "unmet": len(made.Unmet)}}, err
	})
	return id, err
}

// insertPlan stores a draft whose parent is the current plan.
func (w *world) insertPlan(ctx context.Context, query *q.Queries, id ids.ID, cause string, p *plan.Plan, wants []Wish, note, by string) (int64, error) {
	row := q.InsertPlanParams{ID: id, Cause: cause, Body: mustJSON(p), Demands: mustJSON(nonNilWishes(wants)), Note: note, CreatedBy: by, Digest: digest(p, wants)}
	if w.plan != nil {
		row.ParentID = &w.plan.id
	}
	return query.InsertPlan(ctx, row)
}

func nonNilWishes(w []Wish) []Wish {
	if w == nil {
		return []Wish{}
	}
	return w
}

// digest is what a plan says: its units, not how it differs from another.
func digest(p *plan.Plan, wants []Wish) string {
	units := append([]plan.Unit{}, p.Units...) // none are none, however they are written
	sum := sha256.Sum256(append(mustJSON(units), mustJSON(nonNilWishes(wants))...))
	return hex.EncodeToString(sum[:])
}

// Commit makes a draft the current plan: the executor brings it about from now on. It is refused when its parent is no longer the
// current plan, or when the hosts are not as they were when it was made, so that what it says cannot be.
func (s *Service) Commit(ctx context.Context, by tenants.Actor, id ids.ID) error {
	return s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		if err := query.LockPlans(ctx); err != nil {
			return audit.Change{}, err
		}
		row, err := query.GetPlan(ctx, id)
		if err != nil {
			return audit.Change{}, noPlan(err)
		}
		w, err := s.world(ctx, query)
		if err != nil {
			return audit.Change{}, err
		}
		if row.State != Draft || !w.isParent(row.ParentID) {
			return audit.Change{}, fault.New(fault.Conflict, "Plan %d is no longer a draft of what runs now: draft a new one.", row.Number).WithCode("plan_outdated")
		}
		p, wants, err := readPlan(row.Body, row.Demands)
		if err != nil {
			return audit.Change{}, err
		}
		if why := cmp.Or(w.frozen(), p.Frozen); why != "" {
			return audit.Change{}, fault.New(fault.Conflict, "Plan %d moves nothing: %s.", row.Number, why).WithCode("fleet_frozen")
		}
		if err := w.learn(ctx, query, wants); err != nil {
			return audit.Change{}, err
		}
		if err := p.Check(w.planHosts(s.limits, false), w.planDemands(wants), w.options("")); err != nil {
			return audit.Change{}, fault.New(fault.Conflict, "Plan %d cannot be carried out any more: %s Draft a new one.", row.Number, fault.Of(err).Message).WithCode("plan_outdated").WithCause(err)
		}
		return audit.Change{Action: "plan.commit", Target: planName(row.Number), After: map[string]any{"moves": p.Moves}}, commit(ctx, query, id, &p, by.Name())
	})
}

// learn reads the recipes of a plan's demands.
func (w *world) learn(ctx context.Context, query *q.Queries, wants []Wish) error {
	other := *w
	other.plan = &current{demands: wants}
	return (&reader{recipes: w.recipes}).readRecipes(ctx, query, &other)
}

func (w *world) isParent(id *ids.ID) bool {
	if w.plan == nil || id == nil {
		return w.plan == nil && id == nil
	}
	return w.plan.id == *id
}

// commit makes a draft the current plan. The caller has the plans' lock.
func commit(ctx context.Context, query *q.Queries, id ids.ID, p *plan.Plan, by string) error {
	if err := query.SupersedePlan(ctx); err != nil {
		return err
	}
	if err := moved(query.CommitPlan(ctx, q.CommitPlanParams{ID: id, CommittedBy: &by})); err != nil {
		return err
	}
	if err := query.SupersedeDrafts(ctx, id); err != nil {
		return err
	}
	units := make([]ids.ID, len(p.Units))
	for i := range p.Units {
		units[i] = p.Units[i].ID
	}
	return query.AdoptUnits(ctx, q.AdoptUnitsParams{Plan: id, Ids: units})
}

// Plans lists plans, the newest first, of numbers below before (0 = from the newest).
func (s *Service) Plans(ctx context.Context, by tenants.Actor, before int64, limit int) (out []PlanInfo, err error) {
	if before <= 0 {
		before = 1 << 62
	}
	err = s.view(ctx, by, func(query *q.Queries) error {
		rows, err := query.ListPlans(ctx, q.ListPlansParams{Before: before, MaxRows: int32(min(max(limit, 1), MaxListed))})
		for _, r := range rows {
			out = append(out, PlanInfo{ID: r.ID, Number: r.Number, Parent: r.ParentNumber, Cause: r.Cause, Note: r.Note, State: r.State, CreatedBy: r.CreatedBy,
				CreatedAt: r.CreatedAt, CommittedBy: textOf(r.CommittedBy), CommittedAt: timeOf(r.CommittedAt), Units: int(r.Units), Moves: int(r.Moves), Unmet: int(r.Unmet)})
		}
		return err
	})
	return out, err
}

// Plan shows one plan.
func (s *Service) Plan(ctx context.Context, by tenants.Actor, id ids.ID) (out PlanView, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		r, err := query.GetPlan(ctx, id)
		if err != nil {
			return noPlan(err)
		}
		if out.Body, out.Demands, err = readPlan(r.Body, r.Demands); err != nil {
			return err
		}
		if out.Before, _, err = readPlan(r.ParentBody, []byte("[]")); err != nil {
			return err
		}
		out.PlanInfo = PlanInfo{ID: r.ID, Number: r.Number, Parent: r.ParentNumber, Cause: r.Cause, Note: r.Note, State: r.State, CreatedBy: r.CreatedBy,
			CreatedAt: r.CreatedAt, CommittedBy: textOf(r.CommittedBy), CommittedAt: timeOf(r.CommittedAt), Units: len(out.Body.Units), Moves: len(out.Body.Moves), Unmet: len(out.Body.Unmet)}
		w, err := s.world(ctx, query)
		if err != nil {
			return err
		}
		out.Outdated = r.State == Draft && !w.isParent(r.ParentID)
		out.Hosts = map[ids.ID]string{}
		for id, h := range w.hosts {
			out.Hosts[id] = h.Name
		}
		return nil
	})
	return out, err
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
