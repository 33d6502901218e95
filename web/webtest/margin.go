package webtest

import (
	"context"
	"time"

	"millrace/billing/margin"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/session"
)

// hourMargin is an hour of the fixture's fleet: 64 GPUs at two dollars.
func hourMargin(n int) margin.Figures {
	cost := usd("128")
	busy := time.Duration(30+noise("busy", n)%25) * time.Hour
	return margin.Figures{Revenue: usd("9.80") * money.Nano(busy/time.Hour) / 3, Tokens: 480_000_000 + int64(n)*1_000_000, Cost: cost, GPU: 64 * time.Hour, Priced: 64 * time.Hour,
		Busy: busy, Idle: cost / 64 * money.Nano((64*time.Hour-busy)/time.Hour)}
}

// Margin is the same on every hour, by day 24 of them.
func (b business) Margin(_ context.Context, from, to time.Time, hourly bool) (r margin.Report, err error) {
	r.From, r.To = to, to
	if b.f.state == Fresh {
		return r, nil
	}
	r.From = from
	for at := from; at.Before(to); at = at.Add(time.Hour) {
		f := hourMargin(at.Hour())
		if n := len(r.Steps); hourly || n == 0 || r.Steps[n-1].Start.Day() != at.Day() {
			r.Steps = append(r.Steps, margin.Line{Start: at})
		}
		addFigures(&r.Steps[len(r.Steps)-1].Figures, f)
		addFigures(&r.Total, f)
	}
	part := func(x margin.Figures, of money.Nano) margin.Figures {
		x.Revenue, x.Tokens, x.Cost, x.Idle = x.Revenue/of, x.Tokens/int64(of), x.Cost/of, x.Idle/of
		x.GPU, x.Priced, x.Busy = x.GPU/time.Duration(of), x.Priced/time.Duration(of), x.Busy/time.Duration(of)
		return x
	}
	sim := part(r.Total, 8)
	sim.Simulated, r.Total.Simulated = true, true
	r.Models = []margin.Line{{ID: id(kindModel, 0), Name: "acme/llama-70b", Figures: part(r.Total, 2)}, {ID: id(kindModel, 1), Name: "acme/deepseek-flash", Figures: part(r.Total, 4)},
		{ID: id(kindModel, 2), Name: "acme/qwen-32b", Figures: sim}, {ID: ids.Nil, Figures: margin.Figures{Cost: r.Total.Cost / 8, Idle: r.Total.Cost / 8, GPU: r.Total.GPU / 8, Priced: r.Total.GPU / 8}}}
	r.Models[0].Simulated, r.Models[1].Simulated = false, false
	for i, o := range b.f.orgs {
		f := part(r.Total, money.Nano(i+2))
		f.Simulated = false
		r.Orgs = append(r.Orgs, margin.Line{ID: o.ID, Name: o.Name, Figures: f})
	}
	return r, nil
}

func addFigures(to *margin.Figures, f margin.Figures) {
	to.Revenue, to.Tokens, to.Cost, to.Idle = to.Revenue+f.Revenue, to.Tokens+f.Tokens, to.Cost+f.Cost, to.Idle+f.Idle
	to.GPU, to.Priced, to.Busy = to.GPU+f.GPU, to.Priced+f.Priced, to.Busy+f.Busy
}

// Fleets are one with a price and one without.
func (b business) Fleets(context.Context) ([]margin.Fleet, error) {
	if b.f.state == Fresh {
		return nil, nil
	}
	price := usd("2")
	return []margin.Fleet{{Provider: "own", Region: "berlin", Kind: "reserved", Hosts: 9, GPUHour: &price}, {Provider: "acme-cloud", Region: "eu-1", Kind: "on_demand", Hosts: 1}}, nil
}

// SetGPUPrice keeps nothing: the page only leads back.
func (b business) SetGPUPrice(context.Context, session.Viewer, margin.Fleet, money.Nano) error {
	return nil
}
