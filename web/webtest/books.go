package webtest

import (
	"context"
	"slices"
	"strings"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/admin"
	"millrace/web/report"
	"millrace/web/session"
)

func (b business) Models(ctx context.Context) ([]admin.Model, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	var out []admin.Model
	for i := range len(b.f.prices) {
		out = append(out, b.model(i).Model)
	}
	return out, nil
}

// model is the i-th model; the last one of the busy fixture has no price yet.
func (b business) model(i int) admin.ModelDetail {
	m := admin.ModelDetail{Model: admin.Model{ID: id(kindModel, i), Name: "acme/new-arrival", Units: 1}, Versions: b.f.prices[id(kindModel, i)]}
	if i < len(b.f.models) {
		x := b.f.models[i]
		m.Name, m.Simulated, m.Units = x.Name, x.Simulated, 2
		if !x.Available {
			m.Units = 0
		}
	}
	for _, v := range m.Versions {
		if v.Effective.After(Now) {
			m.Next = v.Effective
		} else if !m.Priced {
			m.Priced, m.Prices, m.Since = true, v.Prices, v.Effective
		}
	}
	return m
}

func (b business) Model(_ context.Context, want ids.ID) (admin.ModelDetail, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for i := range len(b.f.prices) {
		if id(kindModel, i) == want {
			return b.model(i), nil
		}
	}
	return admin.ModelDetail{}, errGone
}

func (b business) Revenue(_ context.Context, month report.Span) ([]admin.RevenueRow, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	var out []admin.RevenueRow
	for _, o := range b.f.orgs {
		for _, m := range b.f.models {
			r := admin.RevenueRow{Org: o.ID, OrgName: o.Name, Model: m.Name}
			for _, c := range b.f.allCells(report.Query{From: month.From, To: month.To, Zone: time.UTC, Step: report.StepDay, Org: o.ID, Model: m.Name}) {
				r.Requests, r.Revenue = r.Requests+c.Requests, r.Revenue+c.Cost
				for k, n := range c.Usage {
					r.Usage[k] += n
				}
			}
			if r.Requests > 0 {
				out = append(out, r)
			}
		}
	}
	return out, nil
}

func (b business) Reconcile(context.Context) (admin.Reconciliation, error) {
	if b.f.state == Fresh {
		return admin.Reconciliation{}, nil
	}
	return admin.Reconciliation{
		Reconciled: admin.Reconciled{At: ago(2 * time.Hour), Watermark: ago(125 * time.Minute)},
		Lines: []admin.ReconcileLine{
			{Side: "engine", Class: "billed", Count: 811_902, Tokens: 5_488_112_004},
			{Side: "engine", Class: "probe and golden", Count: 1_440, Tokens: 92_160},
			{Side: "engine", Class: "abandoned attempt", Count: 61, Tokens: 40_118},
			{Side: "engine", Class: "generated but not delivered", Count: 377, Tokens: 12_006},
			{Side: "engine", Class: "attached engines", Count: 9_004, Tokens: 30_211_400, Note: "no independent source"},
			{Side: "events", Class: "rated", Count: 820_906, Tokens: 5_518_323_404, Amount: usd("10805.540218")},
			{Side: "events", Class: "quarantine", Count: 1, Note: "never charged"},
			{Side: "ledger", Class: "usage", Count: 41_220, Amount: usd("10805.540218")},
			{Side: "invoices", Class: "not closed yet", Count: 4, Amount: usd("10805.540218")},
		},
	}, nil
}

func (b business) Audit(context.Context, string) (admin.AuditList, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return admin.AuditList{Entries: slices.Clone(b.f.audit)}, nil
}

func (b business) Outbox(context.Context) (admin.Outbox, error) {
	return admin.Outbox{Items: b.f.outbox}, nil
}

func (b business) CreateCustomer(_ context.Context, _ session.Viewer, c admin.NewCustomer) (ids.ID, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, o := range b.f.orgs {
		if o.Name == c.Name {
			return ids.Nil, fault.New(fault.Conflict, "There is a customer with this name already.").WithParam("name")
		}
	}
	o := admin.Customer{ID: id(kindOrg, 100+len(b.f.orgs)), Name: c.Name, Created: Now}
	if c.Credit != nil {
		o.Balance = *c.Credit
	}
	b.f.orgs = append(b.f.orgs, o)
	return o.ID, nil
}

func (b business) GrantCredit(_ context.Context, who session.Viewer, g admin.Grant) (waits bool, err error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	waits, err = b.ask(who, g.Org, "Grant", g.Amount, g.Reason)
	if err == nil && !waits {
		b.f.grants = slices.Insert(b.f.grants, 0, admin.GrantLine{At: Now, Amount: g.Amount, Left: g.Amount, Promo: g.Promo, Ends: g.Ends, Reason: g.Reason, By: who.Email})
	}
	return waits, err
}

func (b business) PublishPrice(_ context.Context, who session.Viewer, p admin.NewPrice) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	v := admin.PriceVersion{ID: ids.New(), Prices: p.Prices, Terms: p.Terms, Effective: p.Effective, Published: Now, By: who.Email, Note: p.Note}
	if v.Effective.IsZero() {
		v.Effective = Now
	}
	list := append([]admin.PriceVersion{v}, b.f.prices[p.Model]...)
	slices.SortStableFunc(list, func(a, b admin.PriceVersion) int { return b.Effective.Compare(a.Effective) })
	b.f.prices[p.Model] = list
	return nil
}

func (b business) JoinToken(_ context.Context, _ session.Viewer, name string) (admin.Join, error) {
	if strings.Contains(name, " ") {
		return admin.Join{}, fault.New(fault.Invalid, "A host's name has letters, digits and ._- and at most 63 characters.").WithParam("name")
	}
	return admin.Join{Command: "millrace-agent --control wss://ops.millrace.example:8443 --token mj_4Tq9fW2xJ0aLr8", Expires: Now.Add(time.Hour)}, nil
}

func (b business) Attach(_ context.Context, _ session.Viewer, a admin.Attachment) (ids.ID, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	b.f.units = append(b.f.units, admin.Unit{ID: id(kindUnit, 100+len(b.f.units)), Name: a.Name + "/1", Engine: a.Engine, Model: a.Name, Attached: a.URL, State: admin.UnitStarting, Since: Now})
	for i, m := range b.f.models {
		if m.Name == a.Name {
			return id(kindModel, i), nil
		}
	}
	model := id(kindModel, len(b.f.prices))
	b.f.prices[model] = nil
	return model, nil
}

func (b business) Detach(_ context.Context, _ session.Viewer, unit ids.ID) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for i := range b.f.units {
		if b.f.units[i].ID == unit {
			b.f.units[i].State, b.f.units[i].Since = admin.UnitStopped, Now
			return nil
		}
	}
	return errGone
}
