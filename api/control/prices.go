package control

import (
	"time"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Price is one immutable price version.
type Price struct {
	ID            string        `json:"id"`
	ModelID       string        `json:"model_id"`
	Book          string        `json:"book"`
	EffectiveAt   time.Time     `json:"effective_at"`
	USDPerMillion PerMillionUSD `json:"usd_per_million"`
	Terms         PriceTerms    `json:"terms"`
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

// read reads every class; the parameter's name is for what is wrong.
func (p *PerMillionUSD) read(param string) (prices usage.Prices, err error) {
	for class := range usage.NumClasses {
		param := param + "." + class.String()
		if prices[class], err = money.ParsePerMillion(*p.class(class)); err != nil {
			return prices, fault.New(fault.Invalid, "Give %s in USD per 1M with at most six decimals, for example \"0.15\".", param).WithParam(param).WithCause(err)
		}
	}
	return prices, nil
}

func priceOf(v price.Version) Price {
	return Price{ID: ids.Format(ids.Price, v.ID), ModelID: ids.Format(ids.Model, v.Model), Book: v.Book, EffectiveAt: v.EffectiveAt,
		USDPerMillion: perMillionOf(v.Prices), Terms: termsOf(&v.Terms), Note: v.Note, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt, CancelledAt: v.CancelledAt}
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
	Terms         *PriceTerms   `json:"terms,omitempty"`
	Note          string        `json:"note,omitempty"`
	Confirm       string        `json:"confirm,omitempty"`
}

// draft reads a version to be made, or to be tried.
func (a *api) draft(c *call, in NewPrice) (d price.Draft, err error) {
	model, err := c.id("model", ids.Model)
	if err != nil {
		return d, err
	}
	d = price.Draft{Model: model, Book: in.Book, Note: in.Note, Confirm: in.Confirm}
	if d.EffectiveAt, err = moment(in.EffectiveAt, "effective_at"); err != nil {
		return d, err
	}
	prices, err := in.USDPerMillion.read("usd_per_million")
	if err != nil {
		return d, err
	}
	d.Prices = price.Every(prices)
	if in.Terms != nil {
		d.Terms, err = in.Terms.read()
	}
	return d, err
}

func (a *api) createPrice(c *call, in NewPrice) (Price, error) {
	d, err := a.draft(c, in)
	if err != nil {
		return Price{}, err
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
