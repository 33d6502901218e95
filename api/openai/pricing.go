package openai

import (
	"time"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/gate"
	"millrace/tenants/keys"
)

// Prices tells what a model costs whom: *price.Book.
type Prices interface {
	At(model ids.ID, book string, at time.Time) (*price.Version, error)
	BookOf(org ids.ID, own string, at time.Time) string
}

// pricing is what a model costs the caller now, in decimal USD. The names of the prices are those that clients of model
// lists know.
type pricing struct {
	Currency string `json:"currency"`
	ID       string `json:"id"` // of the price version
	unitPrices
	Tiers        []pricingTier    `json:"tiers,omitempty"`         // by prompt length, for the whole request
	Windows      []pricingWindow  `json:"windows,omitempty"`       // of the week, in UTC, by the request's start
	ServiceTiers map[string]int64 `json:"service_tiers,omitempty"` // per cent of the prices
}

// unitPrices are USD per token, and per request.
type unitPrices struct {
	Prompt     string `json:"prompt"`
	Completion string `json:"completion"`
	CacheRead  string `json:"input_cache_read"`
	CacheWrite string `json:"input_cache_write"`
	Reasoning  string `json:"internal_reasoning"`
	Image      string `json:"image"`
	Audio      string `json:"audio"`
	Request    string `json:"request"`
}

type pricingTier struct {
	Above int64 `json:"above_prompt_tokens"`
	unitPrices
}

type pricingWindow struct {
	Days    []string `json:"days"` // "mon" to "sun"; empty = every day
	From    string   `json:"from"`
	To      string   `json:"to"`
	Percent int64    `json:"percent"`
}

func unitPricesOf(p *usage.Prices) unitPrices {
	usd := func(c usage.Class) string { return p[c].String() }
	return unitPrices{Prompt: usd(usage.Input), Completion: usd(usage.Output), CacheRead: usd(usage.Cached), CacheWrite: usd(usage.CacheWrite),
		Reasoning: usd(usage.Reasoning), Image: usd(usage.Image), Audio: usd(usage.Audio), Request: usd(usage.Requests)}
}

// pricingOf is nil for a model without a price: it cannot be called.
func (a *API) pricingOf(caller *keys.Principal, m *catalogue.Model) (*pricing, error) {
	now := a.Door.Clock.Now()
	v, err := a.Prices.At(m.ID, a.Prices.BookOf(caller.Org, caller.PriceBook, now), now)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &pricing{Currency: "USD", ID: ids.Format(ids.Price, v.ID), unitPrices: unitPricesOf(&v.Prices)}
	for i := range v.Terms.Tiers {
		t := &v.Terms.Tiers[i]
		p.Tiers = append(p.Tiers, pricingTier{t.Above, unitPricesOf(&t.Prices)})
	}
	for _, w := range v.Terms.Windows {
		p.Windows = append(p.Windows, pricingWindow{append([]string{}, w.Days.Names()...), price.Clock(w.From), price.Clock(w.To), w.Percent})
	}
	for s, percent := range map[usage.Service]int64{usage.Priority: v.Terms.Priority, usage.Batch: v.Terms.Batch} {
		if percent != 0 && gate.Serves(m.Units, s) {
			if p.ServiceTiers == nil {
				p.ServiceTiers = map[string]int64{}
			}
			p.ServiceTiers[s.String()] = percent
		}
	}
	return p, nil
}
