package domain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/billing/period"
	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/web/console"
	"millrace/web/session"
)

// balance is the organization's money. When promotional credit ends is told to whoever may read grants.
func (d *Deps) balance(ctx context.Context, by tenants.Actor, org ids.ID) (console.Balance, credit.Balance, error) {
	b, err := d.Credit.Balance(ctx, by, org)
	if err != nil {
		return console.Balance{}, b, err
	}
	out := console.Balance{Total: b.Available, Held: b.Outstanding, Promo: b.Promo}
	if b.Promo <= 0 || by.Require(tenants.BillingRead, org) != nil {
		return out, b, nil
	}
	grants, err := d.Credit.Grants(ctx, by, org, 0)
	if err != nil {
		return out, b, err
	}
	left := leftOf(grants, b)
	for i, g := range grants {
		if g.Kind == credit.Promotional && left[i] > 0 && g.ExpiresAt != nil && (out.PromoEnds.IsZero() || g.ExpiresAt.Before(out.PromoEnds)) {
			out.PromoEnds = *g.ExpiresAt
		}
	}
	return out, b, nil
}

// leftOf says what is left of each grant, given that of each kind the credit that ends first is used first, and the oldest
// of what never ends. The books keep one balance per kind.
func leftOf(grants []credit.Grant, b credit.Balance) []money.Nano {
	order := make([]int, len(grants))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { // the last to be used comes first
		x, y := grants[i], grants[j]
		switch {
		case x.ExpiresAt == nil && y.ExpiresAt != nil:
			return -1
		case x.ExpiresAt != nil && y.ExpiresAt == nil:
			return 1
		case x.ExpiresAt != nil && !x.ExpiresAt.Equal(*y.ExpiresAt):
			return y.ExpiresAt.Compare(*x.ExpiresAt)
		}
		return cmp.Or(y.CreatedAt.Compare(x.CreatedAt), slices.Compare(y.ID[:], x.ID[:]))
	})
	rest := map[credit.GrantKind]money.Nano{credit.Paid: max(b.Paid, 0), credit.Promotional: max(b.Promo, 0)}
	left := make([]money.Nano, len(grants))
	for _, i := range order {
		left[i] = min(grants[i].Amount, rest[grants[i].Kind])
		rest[grants[i].Kind] -= left[i]
	}
	return left
}

// linesPerPage is one page of the ledger.
const linesPerPage = 50

// Billing is the balance and a page of the ledger.
func (c customer) Billing(ctx context.Context, who session.Viewer, after string) (console.Billing, error) {
	by := member(who)
	b, _, err := c.balance(ctx, by, who.Org)
	if err != nil {
		return console.Billing{}, err
	}
	list, more, err := c.Report.Movements(ctx, by, who.Org, readMark(after), linesPerPage)
	if err != nil {
		return console.Billing{}, err
	}
	out := console.Billing{Balance: b, Lines: make([]console.LedgerLine, len(list))}
	for i, m := range list {
		out.Lines[i] = lineOf(m)
	}
	if more {
		out.Next = writeMark(list[len(list)-1].Mark())
	}
	return out, nil
}

// lineKinds says the kinds in the customer's words.
var lineKinds = map[ledger.Kind]string{ledger.Usage: "usage", ledger.Grant: "credit", ledger.Topup: "credit", ledger.Refund: "refund", ledger.Expiry: "expiry"}

func lineOf(m report.Movement) console.LedgerLine {
	l := console.LedgerLine{At: m.At, Kind: lineKinds[m.Kind], Amount: m.Amount, After: m.After, Text: m.Memo}
	if l.Kind == "" {
		l.Kind = "adjustment"
	}
	switch l.Kind {
	case "usage":
		requests := "requests"
		if m.Requests == 1 {
			requests = "request"
		}
		l.Text = fmt.Sprintf("Usage, %s (%d %s)", m.At.UTC().Format("2 January"), m.Requests, requests)
		return l
	case "credit":
		l.Text = "Credit: " + m.Memo
	}
	l.Ref = ids.Format(ids.Txn, m.Txn)
	return l
}

// A mark in an address is the day, and behind a transaction its id.
func writeMark(m report.Mark) string {
	day := m.Day.Format(time.DateOnly)
	if m.Txn == ids.Nil {
		return day
	}
	return day + "." + ids.Format(ids.Txn, m.Txn)
}

func readMark(text string) report.Mark {
	date, txn, _ := strings.Cut(text, ".")
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return report.Mark{}
	}
	return report.Mark{Day: day, Txn: cursor(ids.Txn, txn)}
}

// monthCaps are an organization's monthly caps, by the id of their scope.
func (d *Deps) monthCaps(ctx context.Context, by tenants.Actor, org ids.ID) (map[ids.ID]credit.Cap, error) {
	list, err := d.Credit.Caps(ctx, by, org)
	out := make(map[ids.ID]credit.Cap, len(list))
	for _, c := range list {
		if c.Period == period.Month {
			out[c.ScopeID] = c.Cap
		}
	}
	return out, err
}

func amountOf(caps map[ids.ID]credit.Cap, scope ids.ID) *money.Nano {
	c, ok := caps[scope]
	if !ok {
		return nil
	}
	return &c.Amount
}

// Limits are the caps of the organization, its projects and its usable keys.
func (c customer) Limits(ctx context.Context, who session.Viewer) (console.Limits, error) {
	f, err := c.facts(ctx, who)
	if err != nil {
		return console.Limits{}, err
	}
	month := period.At(period.Month, who.Location(), c.Clock.Now())
	out := console.Limits{OrgID: who.Org, Cap: amountOf(f.caps, who.Org), Used: f.spend.Total, Projects: f.projectList(), Resets: month.End, HardStops: true}
	list, err := c.keyList(ctx, member(who), who.Org)
	now := c.Clock.Now()
	for _, k := range list {
		if k.Status(now) == "active" {
			out.Keys = append(out.Keys, f.keyOf(k))
		}
	}
	return out, err
}

func nano(n int64) money.Nano { return money.Nano(n) }
