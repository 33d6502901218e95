package fleet

import (
	"encoding/json"
	"fmt"

	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/serving/recipe"
)

// Wish is a demand as a plan keeps it.
type Wish struct {
	Model   ids.ID   `json:"model"`
	Name    string   `json:"name"` // of the model
	Recipe  ids.ID   `json:"recipe"`
	Release ids.ID   `json:"release"`
	Units   int      `json:"units"`
	Kinds   []string `json:"kinds,omitempty"`
	Regions []string `json:"regions,omitempty"`
	Spread  bool     `json:"spread"`
	Weight  int      `json:"weight"`
}

func (w *Wish) demand(r *recipe.Recipe) plan.Demand {
	return plan.Demand{Model: w.Model, Name: w.Name, Release: w.Release, Recipe: r, Units: w.Units, Kinds: w.Kinds, Regions: w.Regions, Spread: w.Spread, Weight: w.Weight}
}

// current is the committed plan.
type current struct {
	id      ids.ID
	number  int64
	digest  string
	body    plan.Plan
	demands []Wish
}

func readPlan(body, demands []byte) (p plan.Plan, wishes []Wish, err error) {
	if err := json.Unmarshal(body, &p); err != nil {
		return p, nil, fmt.Errorf("fleet: a stored plan cannot be read: %w", err)
	}
	if err := json.Unmarshal(demands, &wishes); err != nil {
		return p, nil, fmt.Errorf("fleet: a stored plan's demands cannot be read: %w", err)
	}
	return p, wishes, nil
}
