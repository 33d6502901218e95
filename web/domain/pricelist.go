package domain

import (
	"context"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/gate"
	"millrace/web/admin"
	"millrace/web/pricelist"
	"millrace/web/session"
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

// draftOf is a price form's draft. What cannot be read of its windows is the form's to mend.
func draftOf(p admin.NewPrice) (price.Draft, error) {
	d := price.Draft{Model: p.Model, EffectiveAt: p.Effective, Prices: price.Every(p.Prices), Note: p.Note, Confirm: p.Confirm,
		Terms: price.Terms{Batch: p.Terms.Batch, Priority: p.Terms.Priority}}
	for _, s := range p.Terms.Steps {
		d.Terms.Tiers = append(d.Terms.Tiers, price.Tier(s))
	}
	for _, w := range p.Terms.Windows {
		window, err := price.ParseWindow(w.Days, w.From, w.To, w.Percent)
		if err != nil {
			return d, fault.New(fault.Invalid, "Windows have times like 22:00, and 24:00 as the latest end.").WithParam("windows").WithCause(err)
		}
		d.Terms.Windows = append(d.Terms.Windows, window)
	}
	return d, nil
}

// PreviewPrice prices the newest traffic under a price, which it does not publish.
func (b business) PreviewPrice(ctx context.Context, p admin.NewPrice) (admin.PricePreview, error) {
	d, err := draftOf(p)
	if err != nil {
		return admin.PricePreview{}, err
	}
	v, err := b.Prices.Preview(ctx, operator(ctx), d)
	if err != nil {
		return admin.PricePreview{}, rename(err, priceFields)
	}
	out := admin.PricePreview{From: v.From, To: v.To, Shortened: v.Shortened, Others: admin.PreviewLine(v.Others), Total: admin.PreviewLine(v.Total), Cost: v.Cost, Doubts: v.Doubts}
	for _, l := range v.Customers {
		out.Customers = append(out.Customers, admin.PreviewLine(l))
	}
	return out, nil
}

// CancelPrice takes back a version that lies at least a minute ahead.
func (b business) CancelPrice(ctx context.Context, who session.Viewer, version ids.ID) error {
	_, err := b.Prices.Cancel(ctx, staff(who), version)
	return err
}
