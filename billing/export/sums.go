package export

import (
	"context"
	"fmt"
	"time"

	"millrace/billing/period"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// tokenColumns are in both data sets of sums; FOCUS wants columns that it does not know to begin with x_.
func tokenColumns(prefix func(string) string) (out []Column) {
	for _, name := range []string{"requests", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "image_tokens", "audio_tokens"} {
		out = append(out, Column{Name: prefix(name), Type: Int, sum: true})
	}
	return out
}

// revenueColumns are one customer's use of one model at one price version in one project on one UTC day.
var revenueColumns = append(append([]Column{
	{Name: "period_start", Type: Time}, {Name: "period_end", Type: Time}, {Name: "org_id", Type: Text, few: true}, {Name: "org_name", Type: Text, few: true},
	{Name: "project_id", Type: Text, few: true}, {Name: "project_name", Type: Text, few: true}, {Name: "model", Type: Text, few: true},
	{Name: "price_version", Type: Text, few: true, null: true}, {Name: "service_tier", Type: Text, few: true}},
	tokenColumns(func(s string) string { return s })...),
	Column{Name: "charged_usd", Type: USD, sum: true}, Column{Name: "overrun_usd", Type: USD, sum: true}, Column{Name: "saved_usd", Type: USD, sum: true})

// costColumns are the same sums under the names of the FinOps Open Cost and Usage Specification (FOCUS).
var costColumns = append([]Column{
	{Name: "BilledCost", Type: USD, sum: true}, {Name: "BillingAccountId", Type: Text, few: true}, {Name: "BillingAccountName", Type: Text, few: true},
	{Name: "BillingCurrency", Type: Text, few: true}, {Name: "BillingPeriodStart", Type: Time}, {Name: "BillingPeriodEnd", Type: Time},
	{Name: "ChargeCategory", Type: Text, few: true}, {Name: "ChargeDescription", Type: Text, few: true}, {Name: "ChargeFrequency", Type: Text, few: true},
	{Name: "ChargePeriodStart", Type: Time}, {Name: "ChargePeriodEnd", Type: Time}, {Name: "ConsumedQuantity", Type: Int}, {Name: "ConsumedUnit", Type: Text, few: true},
	{Name: "EffectiveCost", Type: USD, sum: true}, {Name: "ServiceCategory", Type: Text, few: true}, {Name: "ServiceName", Type: Text, few: true},
	{Name: "SkuId", Type: Text, few: true}, {Name: "SkuPriceId", Type: Text, few: true, null: true},
	{Name: "SubAccountId", Type: Text, few: true}, {Name: "SubAccountName", Type: Text, few: true}, {Name: "x_service_tier", Type: Text, few: true}},
	tokenColumns(func(s string) string { return "x_" + s })...)

// orgsAtOnce is how many organizations' sums are in memory together.
const orgsAtOnce = 50

// sums reads day by day, and on each day the organizations in order.
func (r *reader) sums(ctx context.Context, each func(page) error) error {
	for start := r.in.From; start.Before(r.in.To); {
		stop := dayOf(start).Add(day)
		if stop.After(r.in.To) {
			stop = r.in.To
		}
		at, after := dayOf(start), ids.Nil
		past := !r.in.After.IsZero() && at.Before(r.in.After.Day)
		if at.Equal(r.in.After.Day) {
			after = r.in.After.Org
		}
		if !past {
			if err := r.sumsOfDay(ctx, at, start, stop, after, each); err != nil {
				return err
			}
		}
		start = stop
	}
	return nil
}

// quarter is the length of a rollup; a span's ends need not lie on one.
const quarter = 15 * time.Minute

func (r *reader) sumsOfDay(ctx context.Context, at, start, stop time.Time, after ids.ID, each func(page) error) error {
	for {
		orgs, err := r.q.ExportOrgs(ctx, q.ExportOrgsParams{Start: start.Truncate(quarter), Stop: stop, AfterOrg: after, MaxRows: orgsAtOnce})
		if err != nil {
			return fmt.Errorf("export: organizations of %s: %w", at.Format(time.DateOnly), err)
		}
		if len(orgs) == 0 {
			return nil
		}
		whole, wholeEnd := start.Add(quarter-1).Truncate(quarter), stop.Truncate(quarter)
		if wholeEnd.Before(whole) {
			wholeEnd = whole
		}
		rows, err := r.q.ExportSums(ctx, q.ExportSumsParams{Orgs: orgs, WholeStart: whole, WholeStop: wholeEnd,
			Ragged: !whole.Equal(start) || !wholeEnd.Equal(stop), FromDay: dayOf(start.Add(-slack)), ToDay: dayOf(stop.Add(slack)),
			FromID: firstID(start.Add(-slack)), ToID: firstID(stop.Add(slack)), Start: start, Stop: stop})
		if err != nil {
			return fmt.Errorf("export: sums of %s: %w", at.Format(time.DateOnly), err)
		}
		after = orgs[len(orgs)-1]
		p, err := r.sumPage(ctx, rows, start, stop)
		if err != nil {
			return err
		}
		p.last = Cursor{Day: at, Org: after}
		if len(p.rows) > 0 {
			if err := each(p); err != nil {
				return err
			}
		}
		if len(orgs) < orgsAtOnce {
			return nil
		}
	}
}

func (r *reader) sumPage(ctx context.Context, rows []q.ExportSumsRow, start, stop time.Time) (p page, err error) {
	seen := map[ids.ID]bool{}
	for _, x := range rows {
		seen[x.OrgID], seen[x.ProjectID], seen[x.ModelID] = true, true, true
	}
	if err := r.learn(ctx, seen); err != nil {
		return p, err
	}
	for i := range rows {
		if r.in.Kind == Costs {
			p.rows = append(p.rows, r.cost(&rows[i], start, stop))
		} else {
			p.rows = append(p.rows, r.revenue(&rows[i], start, stop))
		}
	}
	return p, nil
}

func tokens(b []cell, x *q.ExportSumsRow) []cell {
	return append(b, number(x.Requests), number(x.InputTokens), number(x.CachedTokens), number(x.CacheWriteTokens), number(x.OutputTokens),
		number(x.ReasoningTokens), number(x.ImageTokens), number(x.AudioTokens))
}

func (r *reader) revenue(x *q.ExportSumsRow, start, stop time.Time) []cell {
	b := []cell{moment(start), moment(stop), id(ids.Org, x.OrgID), text(r.names[x.OrgID].Label), id(ids.Project, x.ProjectID),
		text(r.names[x.ProjectID].Label), text(r.names[x.ModelID].Label), id(ids.Price, x.PriceVersionID), text(usage.Service(x.ServiceTier).String())}
	return append(tokens(b, x), amount(money.Nano(x.ChargedNano)), amount(money.Nano(x.OverrunNano)), amount(money.Nano(x.SavedNano)))
}

func (r *reader) cost(x *q.ExportSumsRow, start, stop time.Time) []cell {
	month, model := period.At(period.Month, time.UTC, start), r.names[x.ModelID].Label
	all := x.InputTokens + x.CachedTokens + x.CacheWriteTokens + x.OutputTokens + x.ReasoningTokens + x.ImageTokens + x.AudioTokens
	charged := amount(money.Nano(x.ChargedNano))
	return tokens([]cell{charged, id(ids.Org, x.OrgID), text(r.names[x.OrgID].Label), text("USD"), moment(month.Start), moment(month.End),
		text("Usage"), text("Tokens of " + model), text("Usage-Based"), moment(start), moment(stop), number(all), text("Tokens"), charged,
		text("AI and Machine Learning"), text(model), id(ids.Model, x.ModelID), id(ids.Price, x.PriceVersionID), id(ids.Project, x.ProjectID),
		text(r.names[x.ProjectID].Label), text(usage.Service(x.ServiceTier).String())}, x)
}
