package control

import (
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/fleet"
)

// Demand is how many units of a recipe a model wants, and where they may be.
type Demand struct {
	ModelID   string    `json:"model_id"`
	Model     string    `json:"model"`
	RecipeID  string    `json:"recipe_id"`
	Recipe    string    `json:"recipe"`
	Units     int       `json:"units"`
	GPUs      int       `json:"gpus_of_unit"`
	Kinds     []string  `json:"capacity_kinds"`
	Regions   []string  `json:"regions"`
	Spread    bool      `json:"spread"`
	Weight    int       `json:"weight"`
	Version   int64     `json:"version"`
	UpdatedBy string    `json:"updated_by"`
	UpdatedAt time.Time `json:"updated_at"`
}

func (a *api) listDemands(c *call, _ none) (Page[Demand], error) {
	list, err := a.Placement.Demands(c, c.actor)
	return all(list, func(d fleet.Demand) Demand {
		return Demand{ModelID: ids.Format(ids.Model, d.ModelID), Model: d.Model, RecipeID: ids.Format(ids.Recipe, d.RecipeID), Recipe: d.Recipe, Units: d.Units,
			GPUs: d.GPUsOfUnit, Kinds: d.Kinds, Regions: d.Regions, Spread: d.Spread, Weight: d.Weight, Version: d.Version, UpdatedBy: d.UpdatedBy, UpdatedAt: d.UpdatedAt}
	}), err
}

// NewDemand sets a demand. Absent version: whatever there is, is replaced.
type NewDemand struct {
	Units   int      `json:"units"`
	Kinds   []string `json:"capacity_kinds,omitempty"`
	Regions []string `json:"regions,omitempty"`
	Spread  bool     `json:"spread,omitempty"`
	Weight  int      `json:"weight,omitempty"`
	Version int64    `json:"version,omitempty"`
}

// DemandVersion is a demand's version after a change.
type DemandVersion struct {
	Version int64 `json:"version"`
}

func (a *api) setDemand(c *call, in NewDemand) (DemandVersion, error) {
	model, recipe, err := c.demand()
	if err != nil {
		return DemandVersion{}, err
	}
	version, err := a.Placement.SetDemand(c, c.actor, fleet.DemandInput{Model: model, Recipe: recipe, Units: in.Units, Kinds: in.Kinds, Regions: in.Regions,
		Spread: in.Spread, Weight: in.Weight, Version: in.Version})
	return DemandVersion{version}, err
}

func (a *api) removeDemand(c *call) (none, error) {
	model, recipe, err := c.demand()
	if err != nil {
		return none{}, err
	}
	return none{}, a.Placement.RemoveDemand(c, c.actor, model, recipe)
}

func (c *call) demand() (model, recipe ids.ID, err error) {
	if model, err = c.id("model", ids.Model); err != nil {
		return ids.Nil, ids.Nil, err
	}
	recipe, err = c.id("recipe", ids.Recipe)
	return model, recipe, err
}

// Plan is what units there shall be, in a list.
type Plan struct {
	ID          string     `json:"id"`
	Number      int64      `json:"number"`
	Parent      int64      `json:"parent"`
	Cause       string     `json:"cause"`
	Note        string     `json:"note"`
	State       string     `json:"state"`
	CreatedBy   string     `json:"created_by"`
	CreatedAt   time.Time  `json:"created_at"`
	CommittedBy string     `json:"committed_by,omitempty"`
	CommittedAt *time.Time `json:"committed_at,omitempty"`
	Units       int        `json:"units"`
	Moves       int        `json:"moves"`
	Unmet       int        `json:"unmet"`
}

func planOf(p fleet.PlanInfo) Plan {
	return Plan{ID: ids.Format(ids.Plan, p.ID), Number: p.Number, Parent: p.Parent, Cause: p.Cause, Note: p.Note, State: p.State, CreatedBy: p.CreatedBy,
		CreatedAt: p.CreatedAt, CommittedBy: p.CommittedBy, CommittedAt: optionalTime(p.CommittedAt), Units: p.Units, Moves: p.Moves, Unmet: p.Unmet}
}

// PlansQuery asks for a part of the plans, the newest first: those with numbers below before.
type PlansQuery struct {
	Before int64 `json:"before,omitempty"`
	Limit  int   `json:"limit,omitempty"`
}

func (a *api) listPlans(c *call, q PlansQuery) (Page[Plan], error) {
	if q.Limit < 0 || q.Limit > fleet.MaxListed || q.Before < 0 {
		return Page[Plan]{}, fault.New(fault.Invalid, "The limit is between 1 and %d.", fleet.MaxListed).WithParam("limit")
	}
	if q.Limit == 0 {
		q.Limit = fleet.MaxListed
	}
	list, err := a.Placement.Plans(c, c.actor, q.Before, q.Limit)
	return all(list, planOf), err
}

// PlanNote says why a plan is drafted.
type PlanNote struct {
	Note string `json:"note,omitempty"`
}

func (a *api) draftPlan(c *call, in PlanNote) (PlanDetail, error) {
	id, err := a.Placement.Draft(c, c.actor, in.Note)
	if err != nil {
		return PlanDetail{}, err
	}
	return a.detail(c, id)
}

func (a *api) getPlan(c *call, _ none) (PlanDetail, error) {
	id, err := c.id("plan", ids.Plan)
	if err != nil {
		return PlanDetail{}, err
	}
	return a.detail(c, id)
}

func (a *api) commitPlan(c *call) (none, error) {
	id, err := c.id("plan", ids.Plan)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Placement.Commit(c, c.actor, id)
}
