// Package capacity is what the operator sees and does about GPUs: the topology of the fleet, what models want, plans and
// what they would move, units and their engines, recipes, and hosts taken out of service.
//
// It owns pages and forms, not data: everything is read and changed through Fleet, which the domain implements and where it
// checks the operator's rights and audits. Hosts and units as lists are web/admin's. Invariants: nothing moves without a
// page that said what would move and why; the consequence of taking a host away is stated before it is done; a state has a
// word and a letter besides its colour.
package capacity

import (
	"context"

	"github.com/labstack/echo/v4"

	"millrace/agents/wire"
	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/web/session"
)

// Fleet is what the pages read and change. Refused input is a fault whose Param is the form's field.
type Fleet interface {
	Overview(ctx context.Context) (fleet.Overview, error)
	PlacedUnit(ctx context.Context, id ids.ID) (fleet.UnitView, []fleet.Event, error)
	Loads(ctx context.Context) (map[ids.ID]wire.Load, error)            // of engines, by the id of their row
	Traffic(ctx context.Context) (map[ids.ID]report.UnitTraffic, error) // what they answered lately, likewise
	EngineLog(ctx context.Context, host, engine ids.ID) (string, error) // its end; who reads it is audited
	Consequence(ctx context.Context, host ids.ID) (fleet.Consequence, error)
	Demands(ctx context.Context) ([]fleet.Demand, error)
	ModelNames(ctx context.Context) ([]Model, error)
	Plans(ctx context.Context, before int64, limit int) ([]fleet.PlanInfo, error)
	Plan(ctx context.Context, id ids.ID) (fleet.PlanView, error)
	Recipes(ctx context.Context) ([]store.Stored, error)
	Recipe(ctx context.Context, id ids.ID) (store.Stored, []store.Measurement, error)

	SetDemand(ctx context.Context, who session.Viewer, in fleet.DemandInput) error
	RemoveDemand(ctx context.Context, who session.Viewer, model, recipe ids.ID) error
	DraftPlan(ctx context.Context, who session.Viewer, note string) (ids.ID, error)
	CommitPlan(ctx context.Context, who session.Viewer, id ids.ID) error
	Cordon(ctx context.Context, who session.Viewer, host ids.ID, reason string) error
	Drain(ctx context.Context, who session.Viewer, host ids.ID, reason string) error
	Uncordon(ctx context.Context, who session.Viewer, host ids.ID) error
	SetFacts(ctx context.Context, who session.Viewer, host ids.ID, f fleet.Facts) error
	AddWindow(ctx context.Context, who session.Viewer, w fleet.Window) error
	CancelWindow(ctx context.Context, who session.Viewer, host, window ids.ID) error
	AddRecipe(ctx context.Context, who session.Viewer, text string) (ids.ID, error)
	RetireRecipe(ctx context.Context, who session.Viewer, id ids.ID) error
}

// Model is a model that may want units.
type Model struct {
	ID   ids.ID
	Name string // public
}

type pages struct{ Fleet }

// Paths of the pages.
const (
	Root       = "/admin/fleet"
	plansTop   = Root + "/plans"
	demandsTop = Root + "/demands"
	recipesTop = Root + "/recipes"
	hostsTop   = "/admin/hosts" // of web/admin
)

// Register adds the routes. The group must sit behind session's middleware; Register adds RequireOperator itself.
func Register(g *echo.Group, f Fleet) {
	p := &pages{f}
	in := session.RequireOperator
	g.GET(Root, in(p.topology))
	g.GET(Root+"/units/:id", in(p.unit))
	g.GET(Root+"/units/:id/log/:engine", in(p.log))
	g.GET(Root+"/hosts/:id/service", in(p.serviceForm))
	g.POST(Root+"/hosts/:id/service", in(p.service))
	g.GET(Root+"/hosts/:id/facts", in(p.factsForm))
	g.POST(Root+"/hosts/:id/facts", in(p.setFacts))
	g.GET(Root+"/hosts/:id/maintenance", in(p.windowForm))
	g.POST(Root+"/hosts/:id/maintenance", in(p.addWindow))
	g.POST(Root+"/hosts/:id/maintenance/:window/cancel", in(p.cancelWindow))
	g.GET(demandsTop, in(p.demandForm))
	g.POST(demandsTop, in(p.setDemand))
	g.GET(demandsTop+"/remove", in(p.removeForm))
	g.POST(demandsTop+"/remove", in(p.removeDemand))
	g.GET(plansTop, in(p.plans))
	g.POST(plansTop, in(p.draftPlan))
	g.GET(plansTop+"/:id", in(p.plan))
	g.POST(plansTop+"/:id/commit", in(p.commitPlan))
	g.GET(recipesTop, in(p.recipes))
	g.POST(recipesTop, in(p.addRecipe))
	g.GET(recipesTop+"/new", in(p.recipeForm))
	g.GET(recipesTop+"/:id", in(p.recipe))
	g.POST(recipesTop+"/:id/retire", in(p.retireRecipe))
}

// pathID reads an id of the path. What is none does not exist.
func pathID(c echo.Context, name, prefix string) (ids.ID, error) {
	id, err := ids.Parse(prefix, c.Param(name))
	if err != nil {
		return ids.Nil, errMissing()
	}
	return id, nil
}

func errMissing() error {
	return fault.New(fault.NotFound, "There is no such page.").WithCode("not_found")
}

func hostPath(id ids.ID) string   { return hostsTop + "/" + ids.Format(ids.Host, id) }
func planPath(id ids.ID) string   { return plansTop + "/" + ids.Format(ids.Plan, id) }
func recipePath(id ids.ID) string { return recipesTop + "/" + ids.Format(ids.Recipe, id) }

// UnitPath is the page of a placed unit.
func UnitPath(id ids.ID) string { return Root + "/units/" + ids.Format(ids.Unit, id) }

// ActPath is where something is done to a host: service, facts or maintenance.
func ActPath(host ids.ID, act string) string {
	return Root + "/hosts/" + ids.Format(ids.Host, host) + "/" + act
}
