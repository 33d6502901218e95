package domain

import (
	"context"
	"time"

	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/tenants"
	pages "millrace/web/report"
	"millrace/web/session"
)

// groups are the pages' groups in the domain's words.
var groups = map[pages.GroupBy]string{pages.ByModel: report.ByModel, pages.ByKey: report.ByKey, pages.ByDay: report.ByNothing, pages.ByOrg: report.ByOrg}

// Usage is the organization's.
func (c customer) Usage(ctx context.Context, who session.Viewer, in pages.Query) ([]pages.Cell, error) {
	return c.cells(ctx, member(who), who.Org, in)
}

// UsageAsOf is until when everything is rated.
func (c customer) UsageAsOf(context.Context, session.Viewer) (time.Time, error) {
	lag, known := c.Lag.Now()
	if !known {
		return time.Time{}, nil
	}
	return c.Clock.Now().Add(-lag), nil
}

// Usage is over all customers, or one.
func (b business) Usage(ctx context.Context, in pages.Query) ([]pages.Cell, error) {
	return b.cells(ctx, operator(ctx), in.Org, in)
}

func (d *Deps) cells(ctx context.Context, by tenants.Actor, org ids.ID, in pages.Query) ([]pages.Cell, error) {
	ask := report.Query{From: in.From, To: in.To, Zone: in.Zone, Step: string(in.Step), Group: groups[in.Group], Org: org, Key: in.Key}
	if in.Model != "" {
		m, ok := d.Catalogue.Model(in.Model)
		if !ok {
			return nil, nil // gone, or never there: nothing can be told of it by name
		}
		ask.Model = m.ID
	}
	if ask.Zone == nil {
		ask.Zone = time.UTC
	}
	cells, err := d.Report.Usage(ctx, by, ask)
	out := make([]pages.Cell, len(cells))
	for i, c := range cells {
		out[i] = pages.Cell{Bucket: c.Start, Group: groupOf(in.Group, c), Label: c.Label, Requests: c.Requests, Errors: c.Errors, Usage: c.Usage, Cost: c.Charged}
		if in.Step == pages.StepDay {
			// The pages' own first moment of the day: it differs where a clock shows midnight twice.
			out[i].Bucket = pages.Day(c.Start.In(ask.Zone), 0)
		}
	}
	return out, err
}

func groupOf(by pages.GroupBy, c report.Cell) string {
	switch by {
	case pages.ByModel:
		return c.Label
	case pages.ByKey:
		return ids.Format(ids.Key, c.Group)
	case pages.ByOrg:
		if c.Group == ids.Nil {
			return ""
		}
		return ids.Format(ids.Org, c.Group)
	}
	return ""
}
