package domain

import (
	"context"
	"time"

	"millrace/agents/wire"
	"millrace/billing/period"
	"millrace/billing/report"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/web/admin"
	pages "millrace/web/report"
	"millrace/web/ui"
)

// overrunDays is how far back overruns are counted.
const overrunDays = 30

// Overview is the operator's first page.
func (b business) Overview(ctx context.Context) (o admin.Overview, err error) {
	by, now := operator(ctx), b.Clock.Now().UTC()
	if err := by.RequireOperator(); err != nil {
		return o, err
	}
	err = b.asSystem(ctx, func(r *q.Queries) error {
		o.Customers, err = r.PageOrgCount(ctx)
		return err
	})
	if err != nil {
		return o, err
	}
	if err := b.lastDay(ctx, by, now, &o); err != nil {
		return o, err
	}
	if o.Month, o.LastMonth, err = b.months(ctx, by, now); err != nil {
		return o, err
	}
	end := now.Truncate(time.Hour).Add(time.Hour)
	m, err := b.Deps.Margin.Of(ctx, by, end.Add(-hoursShown*time.Hour), end, true)
	if err != nil {
		return o, err
	}
	o.Margin = m.Total
	first, err := b.Report.FirstTokens(ctx, by, ids.Nil, now.Add(-hoursShown*time.Hour))
	if err != nil {
		return o, err
	}
	o.FirstTok = ui.Quantiles(first)
	if err := b.fleet(ctx, by, &o); err != nil {
		return o, err
	}
	a, err := b.Report.Attention(ctx, by, now.AddDate(0, 0, -overrunDays))
	if err != nil {
		return o, err
	}
	o.Overrun, o.Overruns, o.Aside = a.Overrun, a.Overruns, a.Quarantined
	o.RaterLag, _ = b.Lag.Now()
	o.NoMail = !b.Mails
	run, err := storedRun(a.Reconcile)
	if run != nil {
		o.Reconcile = outcome(run)
	}
	return o, err
}

// lastDay fills in the last 24 hours, hours without requests included.
func (b business) lastDay(ctx context.Context, by tenants.Actor, now time.Time, o *admin.Overview) error {
	from, to := hours(now, time.UTC)
	cells, err := b.Report.Usage(ctx, by, report.Query{From: from, To: to, Step: report.StepHour, Group: report.ByNothing})
	o.Hours = make([]admin.HourPoint, hoursShown)
	for i := range o.Hours {
		o.Hours[i].Start = from.Add(time.Duration(i) * time.Hour)
	}
	for _, c := range cells {
		p := &o.Hours[c.Start.Sub(from)/time.Hour]
		p.Requests, p.Tokens = p.Requests+c.Requests, p.Tokens+c.Usage.Tokens()
		o.Requests, o.Errors = o.Requests+c.Requests, o.Errors+c.Errors
		for class, n := range c.Usage {
			o.Usage[class] += n
		}
	}
	if err != nil {
		return err
	}
	o.Active, err = b.Report.Active(ctx, by, from, to)
	return err
}

// months are the revenue of the running UTC month and of the one before.
func (b business) months(ctx context.Context, by tenants.Actor, now time.Time) (this, last money.Nano, err error) {
	month := period.At(period.Month, time.UTC, now)
	before := period.At(period.Month, time.UTC, month.Start.Add(-time.Hour))
	cells, err := b.Report.Usage(ctx, by, report.Query{From: before.Start, To: pages.Day(now, 1), Step: report.StepDay})
	for _, c := range cells {
		if month.Contains(c.Start) {
			this += c.Charged
		} else {
			last += c.Charged
		}
	}
	return this, last, err
}

// fleet counts units and hosts.
func (b business) fleet(ctx context.Context, by tenants.Actor, o *admin.Overview) error {
	units, err := b.Catalogue.List(ctx, by)
	if err != nil {
		return err
	}
	live := b.Fleet.Live().Units
	for _, u := range units {
		o.Units++
		if l, heard := live[u.ID]; heard && l.Load.State == wire.StateReady && u.Wanted == wantServing {
			o.Serving++
		}
		if simulated(u.Engine) {
			o.Simulated++
		}
	}
	var hosts []q.PageHostsRow
	err = b.asSystem(ctx, func(r *q.Queries) error {
		hosts, err = r.PageHosts(ctx)
		return err
	})
	for _, h := range hosts {
		o.Hosts++
		if linked(h) {
			o.Connected++
		}
	}
	return err
}

// Revenue is the usage of one UTC calendar month by customer and model.
func (b business) Revenue(ctx context.Context, month pages.Span) ([]admin.RevenueRow, error) {
	list, err := b.Report.Revenue(ctx, operator(ctx), month.From, month.To)
	out := make([]admin.RevenueRow, len(list))
	for i, r := range list {
		out[i] = admin.RevenueRow{Org: r.Org, OrgName: r.OrgName, Model: r.Model, Requests: r.Requests, Usage: r.Usage, Revenue: r.Charged}
	}
	return out, err
}
