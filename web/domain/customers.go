package domain

import (
	"context"
	"time"

	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/billing/report"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/keys"
	"millrace/web/admin"
	pages "millrace/web/report"
)

const (
	customersPerPage = 50
	grantsShown      = 20
	// leastKeySearch is from how many characters on a search may mean a key: every key begins alike.
	leastKeySearch = 10
)

// Customers is a page of organizations by name.
func (b business) Customers(ctx context.Context, search, after string) (admin.CustomerList, error) {
	by := operator(ctx)
	if err := by.RequireOperator(); err != nil {
		return admin.CustomerList{}, err
	}
	var rows []q.PageCustomersRow
	err := b.asSystem(ctx, func(r *q.Queries) (err error) {
		rows, err = r.PageCustomers(ctx, q.PageCustomersParams{AfterID: cursor(ids.Org, after), Search: search, LeastKey: leastKeySearch, MaxRows: customersPerPage + 1})
		return err
	})
	if err != nil {
		return admin.CustomerList{}, err
	}
	var out admin.CustomerList
	if len(rows) > customersPerPage {
		rows = rows[:customersPerPage]
		out.Next = ids.Format(ids.Org, rows[len(rows)-1].OrgID)
	}
	out.Rows = make([]admin.Customer, len(rows))
	for i, r := range rows {
		out.Rows[i] = admin.Customer{ID: r.OrgID, Name: r.Name, Balance: nano(r.AvailableNano), Created: r.CreatedAt}
	}
	return out, b.activity(ctx, by, out.Rows)
}

// activity fills in the running UTC month and the last request of customers.
func (b business) activity(ctx context.Context, by tenants.Actor, list []admin.Customer) error {
	now := b.Clock.Now().UTC()
	month := period.At(period.Month, time.UTC, now).Start
	at := map[ids.ID]int{}
	orgs := make([]ids.ID, len(list))
	for i, c := range list {
		orgs[i], at[c.ID] = c.ID, i
	}
	cells, err := b.Report.Usage(ctx, by, report.Query{From: month, To: pages.Day(now, 1), Step: report.StepTotal, Group: report.ByOrg, Orgs: orgs})
	if err != nil {
		return err
	}
	for _, c := range cells {
		if i, ok := at[c.Group]; ok {
			list[i].Month += c.Charged
			list[i].Requests += c.Requests
		}
	}
	costs, err := b.Deps.Margin.CostOf(ctx, by, orgs, month, now)
	if err != nil {
		return err
	}
	last, err := b.Report.LastRequests(ctx, by, orgs)
	for i := range list {
		list[i].LastRequest = last[list[i].ID]
		if n, ok := costs[list[i].ID]; ok {
			list[i].Cost = &n
		}
	}
	return err
}

// Customer is one organization.
func (b business) Customer(ctx context.Context, id ids.ID) (admin.CustomerDetail, error) {
	by := operator(ctx)
	org, err := b.Tenants.Org(ctx, by, id)
	if err != nil {
		return admin.CustomerDetail{}, err
	}
	money, err := b.Credit.Balance(ctx, by, id)
	if err != nil {
		return admin.CustomerDetail{}, err
	}
	one := []admin.Customer{{ID: id, Name: org.Name, Balance: money.Available, Created: org.CreatedAt}}
	if err := b.activity(ctx, by, one); err != nil {
		return admin.CustomerDetail{}, err
	}
	out := admin.CustomerDetail{Customer: one[0], Promo: money.Promo, Held: money.Outstanding, Owed: money.Receivable,
		Limit: org.CreditLimit, Zone: org.TimeZone}
	if err := b.keysOf(ctx, by, id, &out); err != nil {
		return out, err
	}
	people, seen, err := b.membersOf(ctx, by, id)
	for _, m := range people {
		out.Members = append(out.Members, admin.MemberLine{Email: m.Email, Role: string(m.Role), LastSeen: seen[m.User]})
	}
	if err != nil {
		return out, err
	}
	out.Grants, err = b.grantsOf(ctx, by, id)
	return out, err
}

// keysOf fills in keys and the organization's cap. Spending is of the running UTC month, like all the operator sees.
func (b business) keysOf(ctx context.Context, by tenants.Actor, org ids.ID, out *admin.CustomerDetail) error {
	f, err := b.factsIn(ctx, by, org, time.UTC)
	if err != nil {
		return err
	}
	out.Cap = amountOf(f.caps, org)
	list, err := b.keyList(ctx, by, org)
	now := b.Clock.Now()
	for _, k := range list {
		out.Keys = append(out.Keys, admin.KeyLine{Name: k.Name, Shown: shown(k), Project: f.projectName(k.Project), LastUsed: orZero(k.LastUsedAt),
			Used: f.spend.Keys[k.ID].Charged, Cap: amountOf(f.caps, k.ID), State: k.Status(now)})
	}
	return err
}

func shown(k keys.Key) string { return k.Prefix + "…" + k.Last4 }

func (b business) grantsOf(ctx context.Context, by tenants.Actor, org ids.ID) ([]admin.GrantLine, error) {
	list, err := b.Credit.Grants(ctx, by, org, 0)
	if err != nil {
		return nil, err
	}
	list = list[:min(len(list), grantsShown)]
	authors := make([]string, len(list))
	for i, g := range list {
		authors[i] = g.CreatedBy
	}
	names, err := b.names(ctx, authors)
	out := make([]admin.GrantLine, len(list))
	for i, g := range list {
		out[i] = admin.GrantLine{At: g.CreatedAt, Amount: g.Amount, Left: g.Left, Promo: g.Kind == credit.Promotional, Ends: orZero(g.ExpiresAt),
			Reason: g.Reason, By: names.of(g.CreatedBy)}
	}
	return out, err
}
