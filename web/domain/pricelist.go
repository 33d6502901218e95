package domain

import (
	"context"

	"millrace/billing/price"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/web/pricelist"
	"millrace/web/ui"
)

// storefront is what anyone may know.
type storefront struct{ *Deps }

// PublicPrices are the standard prices in force, of the models that somebody serves or will serve.
func (s storefront) PublicPrices(ctx context.Context) ([]pricelist.Model, error) {
	lines, err := s.timelines(ctx, price.Standard)
	if err != nil {
		return nil, err
	}
	now := s.Clock.Now()
	var out []pricelist.Model
	for _, m := range s.Catalogue.Models() {
		v := lines[m.ID].at(price.Standard, now)
		if v == nil {
			continue
		}
		x := pricelist.Model{Name: m.Name, Context: m.Context, MaxOutput: m.MaxOutput, Prices: v.Prices, Terms: termsOf(v), Since: v.EffectiveAt}
		if !gate.Serves(m.Units, usage.Priority) { // what nobody serves is not offered
			x.Terms.Priority, x.Terms.Batch = 0, 0
		}
		for _, u := range m.Units {
			x.Simulated = x.Simulated || simulated(u.Driver.Family())
		}
		if n := lines[m.ID].next(price.Standard, now); n != nil {
			x.Next = &pricelist.Ahead{Prices: n.Prices, Effective: n.EffectiveAt}
		}
		out = append(out, x)
	}
	return out, nil
}

// termsOf is a version's terms as pages show them.
func termsOf(v *price.Version) ui.PriceTerms {
	t := ui.PriceTerms{Batch: v.Terms.Batch, Priority: v.Terms.Priority}
	for _, tier := range v.Terms.Tiers {
		t.Steps = append(t.Steps, usage.Step(tier))
	}
	for _, w := range v.Terms.Windows {
		t.Windows = append(t.Windows, ui.PriceWindow{Days: w.Days.Names(), From: price.Clock(w.From), To: price.Clock(w.To), Percent: w.Percent})
	}
	return t
}
