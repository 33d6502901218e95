package domain

import (
	"context"
	"time"

	"millrace/billing/period"
	"millrace/billing/report"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
	"millrace/web/console"
	"millrace/web/session"
	"millrace/web/ui"
)

const (
	hoursShown = 24
	quarter    = 15 * time.Minute // the grain of usage
)

// hours are the 24 hours of a zone that end with the running one.
func hours(now time.Time, zone *time.Location) (from, to time.Time) {
	t := now.In(zone)
	start := t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond())).UTC()
	return start.Add(-(hoursShown - 1) * time.Hour), start.Add(time.Hour)
}

// Home is the first page.
func (c customer) Home(ctx context.Context, who session.Viewer) (h console.Home, err error) {
	by, now := member(who), c.Clock.Now()
	b, books, err := c.balance(ctx, by, who.Org)
	if err != nil {
		return h, err
	}
	h.Balance, h.HasCredit = b, books.Cap > 0 || books.Settled > 0
	if err := c.spending(ctx, by, who, now, &h); err != nil {
		return h, err
	}
	caps, err := c.monthCaps(ctx, by, who.Org)
	if err != nil {
		return h, err
	}
	h.Cap = amountOf(caps, who.Org)
	if h.Hours, err = c.traffic(ctx, by, who, now); err != nil {
		return h, err
	}
	first, err := c.Report.FirstTokens(ctx, by, who.Org, now.Add(-hoursShown*time.Hour))
	if err != nil {
		return h, err
	}
	h.FirstTok = ui.Quantiles(first)
	if err := c.begun(ctx, by, who.Org, &h); err != nil {
		return h, err
	}
	states := c.Fleet.Live().Units
	for _, m := range c.Catalogue.Models() {
		for _, u := range m.Units {
			h.Simulated = h.Simulated || simulated(u.Driver.Family()) && serves(u, states)
		}
	}
	return h, nil
}

// spending fills in what the running month and the last seven days cost. It asks for days by model, as the page's chart
// does, so that days that are over are read once.
func (c customer) spending(ctx context.Context, by tenants.Actor, who session.Viewer, now time.Time, h *console.Home) error {
	until := now.Truncate(quarter).Add(quarter).UTC()
	sum := func(from time.Time) (sum report.Sums, err error) {
		cells, err := c.Report.Usage(ctx, by, report.Query{From: from, To: until, Zone: who.Location(), Step: report.StepDay, Group: report.ByModel, Org: who.Org})
		for i := range cells {
			sum.Add(&cells[i].Sums)
		}
		return sum, err
	}
	month, err := sum(period.At(period.Month, who.Location(), now).Start)
	if err != nil {
		return err
	}
	week, err := sum(until.AddDate(0, 0, -7))
	h.Month, h.Saved, h.Prompt, h.Cached, h.SpentWeek = month.Charged, month.Saved, month.Usage.Prompt(), month.Usage[usage.Cached], week.Charged
	return err
}

// traffic is the last 24 hours of the viewer's zone, hours without requests included.
func (c customer) traffic(ctx context.Context, by tenants.Actor, who session.Viewer, now time.Time) ([]console.HourPoint, error) {
	from, to := hours(now, who.Location())
	cells, err := c.Report.Usage(ctx, by, report.Query{From: from, To: to, Step: report.StepHour, Org: who.Org})
	if err != nil {
		return nil, err
	}
	points := make([]console.HourPoint, hoursShown)
	starts, stops := make([]time.Time, hoursShown), make([]time.Time, hoursShown)
	for i := range points {
		starts[i] = from.Add(time.Duration(i) * time.Hour)
		stops[i] = starts[i].Add(time.Hour)
		points[i].Start = starts[i].In(who.Location())
	}
	for _, x := range cells {
		p := &points[x.Start.Sub(from)/time.Hour]
		p.Requests, p.Errors = x.Requests, x.Errors
	}
	first, err := c.Report.FirstTokenSteps(ctx, by, who.Org, starts, stops)
	if err != nil {
		return nil, err
	}
	for i, d := range first {
		points[i].FirstTok = d
	}
	return points, nil
}

// begun fills in which first steps are done.
func (c customer) begun(ctx context.Context, by tenants.Actor, org ids.ID, h *console.Home) (err error) {
	if err := by.Require(tenants.KeysRead, org); err != nil {
		return err
	}
	err = c.inOrg(ctx, org, func(r *q.Queries) error {
		h.HasKey, err = r.PageHasKey(ctx, org)
		return err
	})
	if err != nil {
		return err
	}
	h.HasCall, err = c.Report.Used(ctx, by, org)
	return err
}
