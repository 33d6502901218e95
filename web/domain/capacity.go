package domain

import (
	"context"

	"millrace/agents/wire"
	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/web/capacity"
	"millrace/web/session"
)

// yard implements the pages on GPUs.
type yard struct {
	*Deps
}

func (y yard) Overview(ctx context.Context) (fleet.Overview, error) {
	return y.Placement.Overview(ctx, operator(ctx))
}

func (y yard) PlacedUnit(ctx context.Context, id ids.ID) (fleet.UnitView, []fleet.Event, error) {
	return y.Placement.Unit(ctx, operator(ctx), id)
}

func (y yard) Loads(ctx context.Context) (map[ids.ID]wire.Load, error) {
	if err := operator(ctx).RequireOperator(); err != nil {
		return nil, err
	}
	out := map[ids.ID]wire.Load{}
	for id, u := range y.Fleet.Live().Units {
		out[id] = u.Load
	}
	return out, nil
}

func (y yard) Traffic(ctx context.Context) (map[ids.ID]report.UnitTraffic, error) {
	return y.Report.UnitTraffic(ctx, operator(ctx), y.Clock.Now().Add(-trafficSince))
}

// logShown is how much of an engine's log a page shows, in bytes.
const logShown = 64 << 10

func (y yard) EngineLog(ctx context.Context, host, engine ids.ID) (string, error) {
	return y.Fleet.UnitLog(ctx, host, engine, logShown, operator(ctx))
}

func (y yard) Consequence(ctx context.Context, host ids.ID) (fleet.Consequence, error) {
	return y.Placement.Consequence(ctx, operator(ctx), host)
}

func (y yard) Demands(ctx context.Context) ([]fleet.Demand, error) {
	return y.Placement.Demands(ctx, operator(ctx))
}

func (y yard) ModelNames(context.Context) ([]capacity.Model, error) {
	models := y.Catalogue.Models() // public: every customer sees their names
	out := make([]capacity.Model, len(models))
	for i, m := range models {
		out[i] = capacity.Model{ID: m.ID, Name: m.Name}
	}
	return out, nil
}

func (y yard) Plans(ctx context.Context, before int64, limit int) ([]fleet.PlanInfo, error) {
	return y.Placement.Plans(ctx, operator(ctx), before, limit)
}

func (y yard) Plan(ctx context.Context, id ids.ID) (fleet.PlanView, error) {
	return y.Placement.Plan(ctx, operator(ctx), id)
}

func (y yard) Recipes(ctx context.Context) ([]store.Stored, error) {
	return y.Deps.Recipes.List(ctx, operator(ctx))
}

func (y yard) Recipe(ctx context.Context, id ids.ID) (store.Stored, []store.Measurement, error) {
	s, err := y.Deps.Recipes.Get(ctx, id, operator(ctx))
	if err != nil {
		return s, nil, err
	}
	measured, err := y.Deps.Recipes.Measurements(ctx, id, operator(ctx))
	return s, measured, err
}

func (y yard) SetDemand(ctx context.Context, who session.Viewer, in fleet.DemandInput) error {
	_, err := y.Placement.SetDemand(ctx, staff(who), in)
	return err
}

func (y yard) RemoveDemand(ctx context.Context, who session.Viewer, model, recipe ids.ID) error {
	return y.Placement.RemoveDemand(ctx, staff(who), model, recipe)
}

func (y yard) DraftPlan(ctx context.Context, who session.Viewer, note string) (ids.ID, error) {
	return y.Placement.Draft(ctx, staff(who), note)
}

func (y yard) CommitPlan(ctx context.Context, who session.Viewer, id ids.ID) error {
	return y.Placement.Commit(ctx, staff(who), id)
}

func (y yard) Cordon(ctx context.Context, who session.Viewer, host ids.ID, reason string) error {
	return y.Placement.Cordon(ctx, staff(who), host, reason)
}

func (y yard) Drain(ctx context.Context, who session.Viewer, host ids.ID, reason string) error {
	return y.Placement.Drain(ctx, staff(who), host, reason)
}

func (y yard) Uncordon(ctx context.Context, who session.Viewer, host ids.ID) error {
	return y.Placement.Uncordon(ctx, staff(who), host)
}

func (y yard) SetFacts(ctx context.Context, who session.Viewer, host ids.ID, f fleet.Facts) error {
	return rename(y.Placement.SetFacts(ctx, staff(who), host, f), map[string]string{"capacity_kind": "kind", "gpu_hour": "price", "failure_domain": "failure"})
}

func (y yard) AddWindow(ctx context.Context, who session.Viewer, w fleet.Window) error {
	_, err := y.Placement.AddWindow(ctx, staff(who), w)
	return err
}

func (y yard) CancelWindow(ctx context.Context, who session.Viewer, host, window ids.ID) error {
	return y.Placement.CancelWindow(ctx, staff(who), host, window)
}

func (y yard) AddRecipe(ctx context.Context, who session.Viewer, text string) (ids.ID, error) {
	id, _, err := y.Deps.Recipes.Add(ctx, []byte(text), staff(who))
	return id, onField(err, "text")
}

func (y yard) RetireRecipe(ctx context.Context, who session.Viewer, id ids.ID) error {
	return y.Deps.Recipes.Retire(ctx, id, staff(who))
}
