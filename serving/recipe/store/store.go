// Package store keeps recipes in the database: what came with Millrace, what operators uploaded, and what was measured.
//
// It owns the tables recipes (rows with a text) and recipe_measurements. What a recipe is, is serving/recipe's, which needs no
// database.
//
// Invariants: a stored text never changes; a recipe that a model wants units of is not retired; the last measurement is the
// cost model that counts.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/recipe"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Limits of the store.
const (
	MaxListed       = 1000
	MaxMeasurements = 50 // of a recipe, shown
	MaxReportBytes  = 64 << 10
	maxHardware     = 200  // bytes
	maxFrom         = 1000 // bytes
)

// Database is what the store needs of one: *db.DB.
type Database interface {
	InTx(ctx context.Context, s db.Scope, fn func(tx pgx.Tx) error) error
}

// Recipes keeps recipes. It is safe for concurrent use.
type Recipes struct {
	DB    Database
	Clock clock.Clock
}

// Stored is a recipe that the store has.
type Stored struct {
	ID        ids.ID
	Recipe    *recipe.Recipe // its Cost is the last measured one, else the text's
	Source    string
	CreatedBy string
	Created   time.Time
	Retired   bool
	Measured  *Measurement // the last one
	Demands   int          // models that want units of it
}

// Measurement is what somebody measured of a recipe.
type Measurement struct {
	ID       ids.ID
	Hardware string
	Cost     recipe.Cost
	Report   json.RawMessage
	By       string
	At       time.Time
}

// Add stores a recipe's text. The same recipe again changes nothing, but brings a retired one back; added tells whether it
// is new.
func (s *Recipes) Add(ctx context.Context, text []byte, by tenants.Actor) (id ids.ID, added bool, err error) {
	if err := by.RequireOperator(); err != nil {
		return ids.Nil, false, err
	}
	r, err := recipe.Parse(text)
	if err != nil {
		return ids.Nil, false, err
	}
	err = s.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if id, added, err = put(ctx, q.New(tx), r, text, by.Name()); err != nil || !added {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "recipe.add", Target: r.Name, At: s.Clock.Now().UTC(), After: map[string]string{"digest": r.Digest()}}) // its environment may hold secrets
	})
	return id, added, err
}

func put(ctx context.Context, query *q.Queries, r *recipe.Recipe, text []byte, by string) (id ids.ID, added bool, err error) {
	spec, err := json.Marshal(r)
	if err != nil {
		return ids.Nil, false, err
	}
	id, err = query.AddRecipe(ctx, q.AddRecipeParams{ID: ids.New(), Name: r.Name, Spec: spec, Source: string(text), Digest: r.Digest(), CreatedBy: by})
	if !errors.Is(err, pgx.ErrNoRows) {
		return id, err == nil, err
	}
	row, err := query.RecipeByDigest(ctx, q.RecipeByDigestParams{Name: r.Name, Digest: r.Digest()})
	if err != nil || row.RetiredAt == nil {
		return row.ID, false, err
	}
	return row.ID, true, query.UnretireRecipe(ctx, row.ID)
}

// AddStarter stores the recipes that come with Millrace and were never there: one that an operator retired stays so.
func (s *Recipes) AddStarter(ctx context.Context) error {
	all, err := recipe.Starter()
	if err != nil {
		return err
	}
	return s.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		for _, r := range all {
			_, err := q.New(tx).RecipeByDigest(ctx, q.RecipeByDigestParams{Name: r.Name, Digest: r.Digest()})
			if err == nil {
				continue
			}
			if !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			text, err := r.YAML()
			if err != nil {
				return err
			}
			if _, _, err := put(ctx, q.New(tx), r, text, "millrace"); err != nil {
				return err
			}
		}
		return nil
	})
}

// List gives the recipes by name, the newest of a name first.
func (s *Recipes) List(ctx context.Context, by tenants.Actor) ([]Stored, error) {
	return s.read(ctx, nil, by)
}

// Get finds one.
func (s *Recipes) Get(ctx context.Context, id ids.ID, by tenants.Actor) (Stored, error) {
	all, err := s.read(ctx, &id, by)
	if err == nil && len(all) == 0 {
		return Stored{}, notFound()
	}
	if err != nil {
		return Stored{}, err
	}
	return all[0], nil
}

func notFound() error {
	return fault.New(fault.NotFound, "There is no such recipe.").WithCode("recipe_not_found")
}

func (s *Recipes) read(ctx context.Context, id *ids.ID, by tenants.Actor) (all []Stored, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = s.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).ListRecipes(ctx, q.ListRecipesParams{ID: id, Most: MaxListed})
		if err != nil {
			return err
		}
		all = make([]Stored, 0, len(rows))
		for i := range rows {
			one, err := stored(&rows[i])
			if err != nil {
				return err
			}
			all = append(all, one)
		}
		return nil
	})
	return all, err
}

func stored(row *q.ListRecipesRow) (Stored, error) {
	r, err := recipe.Reread([]byte(row.Source))
	if err != nil {
		return Stored{}, err
	}
	s := Stored{ID: row.ID, Recipe: r, Source: row.Source, CreatedBy: row.CreatedBy, Created: row.CreatedAt, Retired: row.RetiredAt != nil, Demands: int(row.Demands)}
	var c *recipe.Cost
	if err := json.Unmarshal(row.Measured, &c); err != nil {
		return s, err
	}
	if c != nil {
		s.Measured = &Measurement{Hardware: row.Hardware, Cost: *c, At: row.MeasuredAt}
		r.Cost = c
	}
	return s, nil
}

// Retire keeps a recipe from new demands. One that a model wants is in use.
func (s *Recipes) Retire(ctx context.Context, id ids.ID, by tenants.Actor) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	was, err := s.Get(ctx, id, by)
	if err != nil || was.Retired {
		return err
	}
	return s.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		name, err := q.New(tx).RetireRecipe(ctx, id)
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.Conflict, "A model still wants units of this recipe: take the demand away first.").WithCode("recipe_in_use")
		}
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "recipe.retire", Target: name, At: s.Clock.Now().UTC()})
	})
}
