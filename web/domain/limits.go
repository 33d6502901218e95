package domain

import (
	"context"
	"time"

	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/billing/period"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
	"millrace/web/console"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
)

// rules fills in every cap and the newest alerts.
func (c customer) rules(ctx context.Context, who session.Viewer, l *console.Limits) error {
	by := member(who)
	names := map[ids.ID]string{who.Org: who.OrgName}
	for _, p := range l.Projects {
		names[p.ID] = p.Name
	}
	for _, k := range l.Keys {
		names[k.ID] = k.Name
	}
	caps, err := c.Credit.Caps(ctx, by, who.Org)
	if err != nil {
		return err
	}
	for _, x := range caps {
		name, shown := names[x.ScopeID]
		if !shown {
			continue // of a key that is over
		}
		l.Rules = append(l.Rules, console.Rule{ID: x.ID, Scope: console.Scope(x.Scope), ScopeID: x.ScopeID, Name: name, Period: string(x.Period), Amount: x.Amount,
			AlertOnly: x.AlertOnly, Used: x.Settled, Resets: x.Span.End, Raised: x.Raised, RaisedUntil: x.RaisedUntil})
	}
	alerts, err := c.Alerts.Alerts(ctx, by, who.Org)
	for _, a := range alerts {
		name := a.Name
		if name == "" {
			name = who.OrgName
		}
		l.Alerts = append(l.Alerts, console.Alert{At: a.At, Name: name, Period: string(a.Period), Percent: a.Percent, Spent: a.Spent, Cap: a.Cap, Told: a.ToldAt != nil})
	}
	return err
}

// SetCap sets or removes a cap.
func (c customer) SetCap(ctx context.Context, who session.Viewer, change console.CapChange) error {
	by := member(who)
	if change.Period == "" {
		change.Period = string(period.Month)
	}
	if change.Cap != nil {
		_, err := c.Credit.SetCap(ctx, by, who.Org, credit.Cap{Scope: credit.Scope(change.Scope), ScopeID: change.ID, Period: period.Kind(change.Period),
			Amount: *change.Cap, AlertOnly: change.AlertOnly})
		return rename(err, keyFields)
	}
	if err := by.Require(tenants.CapsManage, who.Org); err != nil {
		return err
	}
	caps, err := c.Credit.Caps(ctx, by, who.Org)
	if err != nil {
		return err
	}
	for _, x := range caps {
		if x.ScopeID == change.ID && string(x.Period) == change.Period {
			if err := c.Credit.RemoveCap(ctx, by, who.Org, x.ID); err != nil && !fault.Is(err, fault.NotFound) { // somebody else was faster
				return err
			}
		}
	}
	return nil
}

// RaiseCap allows more than a hard cap for a while.
func (c customer) RaiseCap(ctx context.Context, who session.Viewer, r console.Raise) error {
	_, err := c.Credit.RaiseCap(ctx, member(who), who.Org, r.Rule, r.To, r.Until)
	return rename(err, map[string]string{"until": "lasts"})
}

// Hooks are the organization's webhooks.
func (c customer) Hooks(ctx context.Context, who session.Viewer) ([]console.Hook, error) {
	list, err := c.Deps.Hooks.Hooks(ctx, member(who), who.Org)
	out := make([]console.Hook, len(list))
	for i, h := range list {
		out[i] = console.Hook{ID: h.ID, URL: h.URL, Problem: h.Problem, Created: h.CreatedAt, Waiting: h.Waiting, Failed: h.Failed}
	}
	return out, err
}

// Deliveries is the delivery log.
func (c customer) Deliveries(ctx context.Context, who session.Viewer) ([]console.Delivery, error) {
	list, err := c.Deps.Hooks.Deliveries(ctx, member(who), who.Org)
	out := make([]console.Delivery, len(list))
	for i, d := range list {
		out[i] = console.Delivery{At: d.At, URL: d.URL, Kind: d.Kind, Event: ids.Format(hook.EventPrefix, d.Event), State: d.State, Attempts: d.Attempts,
			Status: d.Status, Problem: d.Problem, Next: d.NextAt}
	}
	return out, err
}

// AddHook makes a webhook.
func (c customer) AddHook(ctx context.Context, who session.Viewer, url string) (string, error) {
	_, secret, err := c.Deps.Hooks.Add(ctx, member(who), who.Org, url)
	return secret, err
}

// RemoveHook ends a webhook.
func (c customer) RemoveHook(ctx context.Context, who session.Viewer, id ids.ID) error {
	return c.Deps.Hooks.Remove(ctx, member(who), who.Org, id)
}

// TestHook sends a test event.
func (c customer) TestHook(ctx context.Context, who session.Viewer, id ids.ID) error {
	return c.Deps.Hooks.Test(ctx, member(who), who.Org, id)
}

// Statement is the organization's month.
func (c customer) Statement(ctx context.Context, who session.Viewer, month report.Span) (statement.Statement, error) {
	s, err := c.Report.Statement(ctx, member(who), who.Org, month.From, month.To)
	if err != nil {
		return statement.Statement{}, err
	}
	return statement.Of(s)
}

// bookedPerPage is one page of a day's requests.
const bookedPerPage = 100

// StatementDay is what the statement's line of a UTC day is made of.
func (c customer) StatementDay(ctx context.Context, who session.Viewer, day time.Time, after string) (statement.Usage, error) {
	u, err := c.Report.UsageOf(ctx, member(who), who.Org, day, day.AddDate(0, 0, 1), cursor(ids.Request, after), bookedPerPage)
	out := statement.Usage{Day: day, Requests: u.Requests, Charged: u.Charged}
	for _, r := range u.List {
		var tokens int64
		for class, n := range r.Event.Usage {
			if usage.Class(class) != usage.Requests {
				tokens += n
			}
		}
		out.List = append(out.List, statement.Booked{ID: r.Event.ID, At: time.UnixMilli(r.Event.StartedMS), Model: r.Model, Tokens: tokens,
			Version: r.Event.PriceVersion, Txn: r.Txn, Charged: r.Charged})
	}
	if u.More {
		out.Next = ids.Format(ids.Request, out.List[len(out.List)-1].ID)
	}
	return out, err
}

// SetLow says below which balance people are told.
func (c customer) SetLow(ctx context.Context, who session.Viewer, below money.Nano) error {
	return c.Alerts.SetLow(ctx, member(who), who.Org, below)
}
