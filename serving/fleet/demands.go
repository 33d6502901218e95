package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/serving/recipe"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Demand is how many units of a recipe a model wants.
type Demand struct {
	ModelID    ids.ID
	Model      string // public name
	RecipeID   ids.ID
	Recipe     string // name
	Digest     string // of the recipe
	Units      int
	Kinds      []string // of capacity, empty = all
	Regions    []string // empty = all
	Spread     bool
	Weight     int
	Version    int64 // changes with every change
	UpdatedBy  string
	UpdatedAt  time.Time
	GPUsOfUnit int
}

// DemandInput sets a demand.
type DemandInput struct {
	Model   ids.ID
	Recipe  ids.ID
	Units   int
	Kinds   []string
	Regions []string
	Spread  bool
	Weight  int   // 0 = 1
	Version int64 // that the change is made to; 0 = whatever there is
}

func (in *DemandInput) validate() error {
	in.Weight = max(in.Weight, 1)
	switch {
	case in.Units < 0 || in.Units > MaxUnits:
		return fault.New(fault.Invalid, "Give 0 to %d units.", MaxUnits).WithParam("units")
	case in.Weight > MaxWeight:
		return fault.New(fault.Invalid, "Give a weight of 1 to %d.", MaxWeight).WithParam("weight")
	case len(in.Regions) > MaxRegions:
		return fault.New(fault.Invalid, "Give at most %d regions.", MaxRegions).WithParam("regions")
	}
	for _, k := range in.Kinds {
		if !slices.Contains([]string{plan.Reserved, plan.OnDemand, plan.Spot}, k) {
			return fault.New(fault.Invalid, "%q is no kind of capacity: give reserved, on_demand or spot.", k).WithParam("kinds")
		}
	}
	for _, r := range in.Regions {
		if r == "" || len(r) > MaxName {
			return fault.New(fault.Invalid, "A region has 1 to %d bytes.", MaxName).WithParam("regions")
		}
	}
	return nil
}

// Demands lists all of them.
func (s *Service) Demands(ctx context.Context, by tenants.Actor) (out []Demand, err error) {
	err = s.view(ctx, by, func(query *q.Queries) error {
		rows, err := query.ListDemands(ctx)
		for _, r := range rows {
			out = append(out, demandOf(r))
		}
		return err
	})
	return out, err
}

func demandOf(r q.ListDemandsRow) Demand {
	d := Demand{ModelID: r.ModelID, Model: r.ModelName, RecipeID: r.RecipeID, Recipe: r.RecipeName, Digest: r.Digest, Units: int(r.Units), Kinds: r.Kinds,
		Regions: r.Regions, Spread: r.Spread, Weight: int(r.Weight), Version: r.Version, UpdatedBy: r.UpdatedBy, UpdatedAt: r.UpdatedAt}
	if parsed, err := recipe.Reread([]byte(r.Source)); err == nil {
		d.GPUsOfUnit = parsed.GPUs()
	}
	return d
}

// SetDemand says how many units of a recipe a model wants. Nothing moves before a plan for it is committed.
func (s *Service) SetDemand(ctx context.Context, by tenants.Actor, in DemandInput) (version int64, err error) {
	if err := by.RequireOperator(); err != nil {
		return 0, err
	}
	if err := in.validate(); err != nil {
		return 0, err
	}
	err = s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		model, err := query.ModelByID(ctx, in.Model)
		if err != nil {
			return audit.Change{}, missing(err, "model", "model_not_found")
		}
		release, err := release(ctx, query, model.ID, in.Recipe)
		if err != nil {
			return audit.Change{}, err
		}
		was, err := query.GetDemand(ctx, q.GetDemandParams{ModelID: model.ID, RecipeID: in.Recipe})
		var before any
		if err == nil {
			before = was
		} else if !errors.Is(err, pgx.ErrNoRows) {
			return audit.Change{}, err
		}
		if in.Version != 0 && in.Version != was.Version {
			return audit.Change{}, fault.New(fault.Conflict, "The demand was changed meanwhile: look at it again.").WithCode("demand_changed")
		}
		version, err = query.PutDemand(ctx, q.PutDemandParams{ModelID: model.ID, RecipeID: in.Recipe, ReleaseID: release, Units: int32(in.Units),
			Kinds: nonNil(in.Kinds), Regions: nonNil(in.Regions), Spread: in.Spread, Weight: int32(in.Weight), UpdatedBy: by.Name()})
		return audit.Change{Action: "demand.set", Target: demandName(model.ID, in.Recipe), Before: before, After: in}, err
	})
	return version, err
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func demandName(model, recipe ids.ID) string {
	return fmt.Sprintf("%s/%s", ids.Format(ids.Model, model), ids.Format(ids.Recipe, recipe))
}

// release finds or makes the model's release of a recipe that can be planned with.
func release(ctx context.Context, query *q.Queries, model, id ids.ID) (ids.ID, error) {
	row, err := query.RecipeSource(ctx, id)
	if err == nil && row.Source == "" {
		err = pgx.ErrNoRows // of an engine that was placed by hand
	}
	if err != nil {
		return ids.Nil, missing(err, "recipe", "recipe_not_found")
	}
	if row.Retired {
		return ids.Nil, fault.New(fault.Conflict, "The recipe %q is retired.", row.Name).WithCode("recipe_retired").WithParam("recipe")
	}
	if _, err := recipe.Parse([]byte(row.Source)); err != nil {
		return ids.Nil, err
	}
	have, err := query.ReleaseOf(ctx, q.ReleaseOfParams{ModelID: model, RecipeID: id})
	if errors.Is(err, pgx.ErrNoRows) {
		return query.InsertRelease(ctx, q.InsertReleaseParams{ID: ids.New(), ModelID: model, RecipeID: id})
	}
	return have, err
}

// RemoveDemand takes a demand away: the next plan does without its units.
func (s *Service) RemoveDemand(ctx context.Context, by tenants.Actor, model, recipe ids.ID) error {
	return s.change(ctx, by, func(query *q.Queries) (audit.Change, error) {
		was, err := query.GetDemand(ctx, q.GetDemandParams{ModelID: model, RecipeID: recipe})
		if err != nil {
			return audit.Change{}, missing(err, "demand", "demand_not_found")
		}
		_, err = query.DeleteDemand(ctx, q.DeleteDemandParams{ModelID: model, RecipeID: recipe})
		return audit.Change{Action: "demand.remove", Target: demandName(model, recipe), Before: was}, err
	})
}

// wishes are the demands as a plan keeps them. Recipes that were not met before are read into w.
func wishes(ctx context.Context, query *q.Queries, w *world) (out []Wish, err error) {
	rows, err := query.ListDemands(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if w.recipes[r.ReleaseID] == nil {
			if w.recipes[r.ReleaseID], err = recipe.Reread([]byte(r.Source)); err != nil {
				return nil, err
			}
		}
		out = append(out, Wish{Model: r.ModelID, Name: r.ModelName, Recipe: r.RecipeID, Release: r.ReleaseID, Units: int(r.Units), Kinds: r.Kinds,
			Regions: r.Regions, Spread: r.Spread, Weight: int(r.Weight)})
	}
	return out, nil
}
