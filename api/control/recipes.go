package control

import (
	"encoding/json"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/recipe"
	"millrace/serving/recipe/store"
)

// Recipe is a tested combination of engine, model, hardware and flags.
type Recipe struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Digest      string      `json:"digest"`
	Engine      string      `json:"engine"`
	Version     string      `json:"version"`
	Model       string      `json:"model"`
	Roles       []string    `json:"roles"`
	GPUs        int         `json:"gpus"`
	Cost        *RecipeCost `json:"cost,omitempty"`
	MeasuredAt  *time.Time  `json:"measured_at,omitempty"`
	Demands     int         `json:"demands"`
	Retired     bool        `json:"retired"`
	CreatedBy   string      `json:"created_by"`
	CreatedAt   time.Time   `json:"created_at"`
	YAML        string      `json:"yaml,omitempty"`
}

// RecipeCost is a fitted cost model, in microseconds.
type RecipeCost struct {
	A0    float64 `json:"a0_us"`
	A1    float64 `json:"a1_us"`
	B0    float64 `json:"b0_us"`
	B1    float64 `json:"b1_us"`
	B2    float64 `json:"b2_us"`
	Error float64 `json:"error"`
	From  string  `json:"from"`
}

func recipeOf(s store.Stored) Recipe {
	r := s.Recipe
	out := Recipe{ID: ids.Format(ids.Recipe, s.ID), Name: r.Name, Description: r.Description, Digest: r.Digest(), Engine: r.Engine, Version: r.Version,
		Model: r.Model.Name, GPUs: r.GPUs(), Demands: s.Demands, Retired: s.Retired, CreatedBy: s.CreatedBy, CreatedAt: s.Created}
	for _, p := range r.Pools {
		out.Roles = append(out.Roles, p.Role)
	}
	if r.Cost != nil {
		out.Cost = (*RecipeCost)(r.Cost)
	}
	if s.Measured != nil {
		out.MeasuredAt = &s.Measured.At
	}
	return out
}

func (a *api) listRecipes(c *call, _ none) (Page[Recipe], error) {
	list, err := a.Recipes.List(c, c.actor)
	return all(list, recipeOf), err
}

func (a *api) getRecipe(c *call, _ none) (Recipe, error) {
	id, err := c.id("recipe", ids.Recipe)
	if err != nil {
		return Recipe{}, err
	}
	s, err := a.Recipes.Get(c, id, c.actor)
	if err != nil {
		return Recipe{}, err
	}
	out := recipeOf(s)
	out.YAML = s.Source
	return out, nil
}

// RecipeText is a recipe as a person writes it.
type RecipeText struct {
	YAML string `json:"yaml"`
}

func (a *api) addRecipe(c *call, in RecipeText) (Recipe, error) {
	id, _, err := a.Recipes.Add(c, []byte(in.YAML), c.actor)
	if err != nil {
		return Recipe{}, err
	}
	s, err := a.Recipes.Get(c, id, c.actor)
	if err != nil {
		return Recipe{}, err
	}
	return recipeOf(s), nil
}

func (a *api) retireRecipe(c *call) (none, error) {
	id, err := c.id("recipe", ids.Recipe)
	if err != nil {
		return none{}, err
	}
	return none{}, a.Recipes.Retire(c, id, c.actor)
}

// RecipeMeasurement is what `millrace bench recipe` found out. Report is its whole report.
type RecipeMeasurement struct {
	Name     string          `json:"name"`
	Digest   string          `json:"digest"`
	Hardware string          `json:"hardware,omitempty"`
	Cost     RecipeCost      `json:"cost"`
	Report   json.RawMessage `json:"report,omitempty"`
}

func (a *api) measureRecipe(c *call, in RecipeMeasurement) (none, error) {
	if in.Name == "" || in.Digest == "" {
		return none{}, fault.New(fault.Invalid, "Name the recipe, and give the digest of the text that was measured.").WithParam("digest")
	}
	m := store.Measurement{Hardware: in.Hardware, Cost: recipe.Cost(in.Cost), Report: in.Report}
	return none{}, a.Recipes.Measure(c, in.Name, in.Digest, m, c.actor)
}
