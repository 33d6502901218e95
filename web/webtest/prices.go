package webtest

import (
	"context"
	"slices"
	"time"

	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/admin"
	"millrace/web/pricelist"
	"millrace/web/session"
	"millrace/web/ui"
)

// flashTerms are what the fixture's first model's prices depend on.
func flashTerms() ui.PriceTerms {
	return ui.PriceTerms{Steps: []usage.Step{{Above: 131_072, Prices: perM("0.56", "0.14", "1.32")}}, Priority: 150, Batch: 50,
		Windows: []ui.PriceWindow{{Days: []string{"mon", "tue", "wed", "thu", "fri"}, From: "00:00", To: "06:00", Percent: 70}, {Days: []string{"sat", "sun"}, From: "00:00", To: "24:00", Percent: 70}}}
}

// PublicPrices are what anyone may know.
func (f *Fixture) PublicPrices(context.Context) ([]pricelist.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []pricelist.Model
	for _, m := range f.models {
		x := pricelist.Model{Name: m.Name, Context: m.Context, MaxOutput: m.MaxOutput, Simulated: m.Simulated, Prices: m.Prices, Terms: m.Terms, Since: m.Since}
		if m.Next != nil {
			x.Next = &pricelist.Ahead{Prices: m.Next.Prices, Effective: m.Next.Effective}
		}
		out = append(out, x)
	}
	return out, nil
}

// PreviewPrice invents what two customers would have paid.
func (b business) PreviewPrice(_ context.Context, p admin.NewPrice) (admin.PricePreview, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	out := admin.PricePreview{From: Now.Add(-30 * 24 * time.Hour), To: Now}
	add := func(l *admin.PreviewLine, o admin.PreviewLine) {
		l.Customers, l.Requests, l.Before, l.After = l.Customers+o.Customers, l.Requests+o.Requests, l.Before+o.Before, l.After+o.After
	}
	for i, o := range b.f.orgs[:min(2, len(b.f.orgs))] {
		millions := money.Pico(400 - 150*i)
		before := money.Nano(millions) * usd("1.16")
		after := ((p.Prices[usage.Input] + p.Prices[usage.Output]) * millions * 1_000_000).Nano()
		l := admin.PreviewLine{Org: o.ID, Name: o.Name, Customers: 1, Requests: int64(48_211 * (i + 1)), Before: before, After: after}
		out.Customers = append(out.Customers, l)
		add(&out.Total, l)
	}
	if len(out.Customers) > 0 {
		out.Others = admin.PreviewLine{Customers: 7, Requests: 912, Before: usd("3.2"), After: usd("3.1")}
		add(&out.Total, out.Others)
	}
	cost := usd("311.4")
	if out.Cost = &cost; out.Total.After < cost {
		out.Doubts = []string{"at the traffic since 31 October it would bring " + ui.FormatMoney(out.Total.After) + ", less than the $311.40 that serving it cost."}
	}
	return out, nil
}

// CancelPrice takes a version away.
func (b business) CancelPrice(_ context.Context, _ session.Viewer, version ids.ID) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for model, list := range b.f.prices {
		b.f.prices[model] = slices.DeleteFunc(slices.Clone(list), func(v admin.PriceVersion) bool { return v.ID == version })
	}
	return nil
}
