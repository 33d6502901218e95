package catalogue

import (
	"context"
	"errors"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// ModelInput is a model to be made. Zero MaxOutput means Context, zero DefaultOutput means 4096.
type ModelInput struct {
	Name          string
	DisplayName   string
	Context       int64
	MaxOutput     int64
	DefaultOutput int64
	Free          bool
	Extras        []string // nil = UsualExtras
}

const defaultOutput = 4096

var modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$`)

func (in *ModelInput) validate() error {
	if in.MaxOutput == 0 {
		in.MaxOutput = in.Context
	}
	if in.DefaultOutput == 0 {
		in.DefaultOutput = min(defaultOutput, in.MaxOutput)
	}
	switch {
	case !modelName.MatchString(in.Name):
		return fault.New(fault.Invalid, "A model's name has letters, digits and ._:/- and at most 128 characters.").WithParam("name")
	case in.Context < 1 || in.Context > usage.MaxTokens:
		return fault.New(fault.Invalid, "The context must be between 1 and %d tokens.", usage.MaxTokens).WithParam("context_tokens")
	case in.MaxOutput < 1 || in.MaxOutput > in.Context:
		return fault.New(fault.Invalid, "The longest answer must be between 1 token and the context.").WithParam("max_output_tokens")
	case in.DefaultOutput < 1 || in.DefaultOutput > in.MaxOutput:
		return fault.New(fault.Invalid, "The default answer must be between 1 token and the longest answer.").WithParam("default_output")
	}
	return checkExtras(in.Extras)
}

// CreateModel makes a model that customers can call as soon as it has a price and a unit. A name in use is a Conflict.
func (c *Catalogue) CreateModel(ctx context.Context, in ModelInput, by tenants.Actor) (*Model, error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	if err := in.validate(); err != nil {
		return nil, err
	}
	now := c.o.Clock.Now().UTC()
	id := ids.New()
	err := c.o.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		_, err := q.New(tx).InsertModel(ctx, q.InsertModelParams{ID: id, Name: in.Name, DisplayName: in.DisplayName, ContextTokens: in.Context,
			MaxOutputTokens: in.MaxOutput, DefaultOutput: in.DefaultOutput, Free: in.Free, EngineExtras: in.Extras, CreatedAt: now})
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: "model.create", Target: ids.Format(ids.Model, id), After: in, At: now})
	})
	if err != nil {
		return nil, taken(err, "model", in.Name)
	}
	c.changed(ctx)
	return &Model{ID: id, Name: in.Name, DisplayName: in.DisplayName, Context: in.Context, MaxOutput: in.MaxOutput,
		DefaultOutput: in.DefaultOutput, Free: in.Free, Extras: extras(in.Extras), Created: now}, nil
}

func taken(err error, what, name string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "23505" { // unique_violation
		return fault.New(fault.Conflict, "There already is a %s %q.", what, name).WithCode("name_taken").WithParam("name")
	}
	return err
}
