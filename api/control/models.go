package control

import (
	"time"

	"millrace/internal/ids"
	"millrace/serving/catalogue"
)

// Model is a public name that customers call.
type Model struct {
	ID              string    `json:"id"`
	Name            string    `json:"name"`
	DisplayName     string    `json:"display_name"`
	ContextTokens   int64     `json:"context_tokens"`
	MaxOutputTokens int64     `json:"max_output_tokens"`
	DefaultOutput   int64     `json:"default_output"`
	Free            bool      `json:"free"`
	EngineExtras    []string  `json:"engine_extras"`
	Units           int       `json:"units"`
	CreatedAt       time.Time `json:"created_at"`
}

func modelOf(m *catalogue.Model) Model {
	return Model{ID: ids.Format(ids.Model, m.ID), Name: m.Name, DisplayName: m.DisplayName, ContextTokens: m.Context,
		MaxOutputTokens: m.MaxOutput, DefaultOutput: m.DefaultOutput, Free: m.Free, EngineExtras: m.Extras, Units: len(m.Units), CreatedAt: m.Created}
}

func (a *api) listModels(c *call, _ none) (Page[Model], error) {
	if err := c.actor.RequireOperator(); err != nil {
		return Page[Model]{}, err
	}
	return all(a.Catalogue.Models(), modelOf), nil
}

// NewModel makes a model.
type NewModel struct {
	Name            string `json:"name"`
	DisplayName     string `json:"display_name,omitempty"`
	ContextTokens   int64  `json:"context_tokens"`
	MaxOutputTokens int64  `json:"max_output_tokens,omitempty"`
	DefaultOutput   int64  `json:"default_output,omitempty"`
	Free            bool   `json:"free,omitempty"`
	// EngineExtras are members beyond OpenAI's that requests may have; absent = the usual ones.
	EngineExtras []string `json:"engine_extras,omitempty"`
}

func (a *api) createModel(c *call, in NewModel) (Model, error) {
	m, err := a.Catalogue.CreateModel(c, catalogue.ModelInput{Name: in.Name, DisplayName: in.DisplayName, Context: in.ContextTokens,
		MaxOutput: in.MaxOutputTokens, DefaultOutput: in.DefaultOutput, Free: in.Free, Extras: in.EngineExtras}, c.actor)
	if err != nil {
		return Model{}, err
	}
	return modelOf(m), nil
}

// EngineExtras are the members beyond OpenAI's that a model's requests may have; absent = the usual ones.
type EngineExtras struct {
	EngineExtras []string `json:"engine_extras,omitempty"`
}

func (a *api) setEngineExtras(c *call, in EngineExtras) (EngineExtras, error) {
	model, err := c.id("model", ids.Model)
	if err != nil {
		return EngineExtras{}, err
	}
	now, err := a.Catalogue.SetExtras(c, model, in.EngineExtras, c.actor)
	return EngineExtras{now}, err
}
