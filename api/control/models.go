package control

import (
	"time"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
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
	Units           int       `json:"units"`
	CreatedAt       time.Time `json:"created_at"`
}

func modelOf(m *catalogue.Model) Model {
	return Model{ID: ids.Format(ids.Model, m.ID), Name: m.Name, DisplayName: m.DisplayName, ContextTokens: m.Context,
		MaxOutputTokens: m.MaxOutput, DefaultOutput: m.DefaultOutput, Free: m.Free, Units: len(m.Units), CreatedAt: m.Created}
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
}

func (a *api) createModel(c *call, in NewModel) (Model, error) {
	m, err := a.Catalogue.CreateModel(c, catalogue.ModelInput{Name: in.Name, DisplayName: in.DisplayName, Context: in.ContextTokens,
		MaxOutput: in.MaxOutputTokens, DefaultOutput: in.DefaultOutput, Free: in.Free}, c.actor)
	if err != nil {
		return Model{}, err
	}
	return modelOf(m), nil
}

// Price is one immutable price version.
type Price struct {
	ID            string        `json:"id"`
	ModelID       string        `json:"model_id"`
	Book          string        `json:"book"`
	EffectiveAt   time.Time     `json:"effective_at"`
	USDPerMillion PerMillionUSD `json:"usd_per_million"`
	Note          string        `json:"note"`
	CreatedBy     string        `json:"created_by"`
	CreatedAt     time.Time     `json:"created_at"`
	CancelledAt   *time.Time    `json:"cancelled_at,omitempty"`
}

// PerMillionUSD is the price of one million tokens of each class, and of one million requests, in decimal USD. Every class
// must be named: one that was forgotten must not be free.
type PerMillionUSD struct {
	Input      string `json:"input"`
	Cached     string `json:"cached"`
	CacheWrite string `json:"cache_write"`
	Output     string `json:"output"`
	Reasoning  string `json:"reasoning"`
	Image      string `json:"image"`
	Audio      string `json:"audio"`
	Request    string `json:"request"`
}

func (p *PerMillionUSD) class(c usage.Class) *string {
	return [...]*string{usage.Input: &p.Input, usage.Cached: &p.Cached, usage.CacheWrite: &p.CacheWrite, usage.Output: &p.Output,
		usage.Reasoning: &p.Reasoning, usage.Image: &p.Image, usage.Audio: &p.Audio, usage.Requests: &p.Request}[c]
}

func perMillionOf(prices usage.Prices) (p PerMillionUSD) {
	for c := range usage.NumClasses {
		*p.class(c) = prices[c].PerMillion()
	}
	return p
}

func priceOf(v price.Version) Price {
	return Price{ID: ids.Format(ids.Price, v.ID), ModelID: ids.Format(ids.Model, v.Model), Book: v.Book, EffectiveAt: v.EffectiveAt,
		USDPerMillion: perMillionOf(v.Prices), Note: v.Note, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, CancelledAt: v.CancelledAt}
}

func (a *api) listPrices(c *call, _ none) (Page[Price], error) {
	model, err := c.id("model", ids.Model)
	if err != nil {
		return Page[Price]{}, err
	}
	versions, err := a.Prices.Timeline(c, c.actor, model)
	return all(versions, priceOf), err
}

// NewPrice makes a price version.
type NewPrice struct {
	Book          string        `json:"book,omitempty"`
	EffectiveAt   *time.Time    `json:"effective_at,omitempty"`
	USDPerMillion PerMillionUSD `json:"usd_per_million"`
	Note          string        `json:"note,omitempty"`
	Confirm       string        `json:"confirm,omitempty"`
}

func (a *api) createPrice(c *call, in NewPrice) (Price, error) {
	model, err := c.id("model", ids.Model)
	if err != nil {
		return Price{}, err
	}
	d := price.Draft{Model: model, Book: in.Book, Note: in.Note, Confirm: in.Confirm, Prices: map[usage.Class]money.Pico{}}
	if in.EffectiveAt != nil {
		if in.EffectiveAt.IsZero() { // the year 1, which the draft would take for now
			return Price{}, price.ErrPast()
		}
		d.EffectiveAt = in.EffectiveAt.UTC()
	}
	for class := range usage.NumClasses {
		param := "usd_per_million." + class.String()
		if d.Prices[class], err = money.ParsePerMillion(*in.USDPerMillion.class(class)); err != nil {
			return Price{}, fault.New(fault.Invalid, "Give %s in USD per 1M with at most six decimals, for example \"0.15\".", param).WithParam(param).WithCause(err)
		}
	}
	v, err := a.Prices.Create(c, c.actor, d)
	return priceOf(v), err
}

func (a *api) cancelPrice(c *call) (Price, error) {
	id, err := c.id("price", ids.Price)
	if err != nil {
		return Price{}, err
	}
	v, err := a.Prices.Cancel(c, c.actor, id)
	return priceOf(v), err
}
