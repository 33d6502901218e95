package domain

import (
	"context"
	"fmt"
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
	for _, g := range grants {
		if g.Kind == credit.Promotional && g.Left > 0 && g.ExpiresAt != nil && (out.PromoEnds.IsZero() || g.ExpiresAt.Before(out.PromoEnds)) {
			out.PromoEnds = *g.ExpiresAt
		}
	}
	return out, b, err
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
var lineKinds = map[ledger.Kind]string{ledger.Usage: "usage", ledger.Grant: "credit", ledger.Topup: "credit", ledger.Refund: "refund", ledger.Expiry: "expiry",
	ledger.Invoice: "invoice", ledger.Payment: "payment"}

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

// monthCaps are an organization's hard monthly caps with what they allow now, by the id of their scope: what stops usage.
func (d *Deps) monthCaps(ctx context.Context, by tenants.Actor, org ids.ID) (map[ids.ID]credit.Cap, error) {
	list, err := d.Credit.Caps(ctx, by, org)
	out := make(map[ids.ID]credit.Cap, len(list))
	for _, c := range list {
		if c.Period == period.Month && !c.AlertOnly {
			c.Amount = c.Allowed(d.Clock.Now())
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
	out := console.Limits{OrgID: who.Org, Cap: amountOf(f.caps, who.Org), Used: f.spend.Total, Projects: f.projectList(), Resets: month.End}
	list, err := c.keyList(ctx, member(who), who.Org)
	if err != nil {
		return out, err
	}
	now := c.Clock.Now()
	for _, k := range list {
		if k.Status(now) == "active" {
			out.Keys = append(out.Keys, f.keyOf(k))
		}
	}
	low, err := c.Alerts.Low(ctx, member(who), who.Org)
	if err != nil {
		return out, err
	}
	out.Low = console.Low{Below: low.Below, Since: low.Since}
	return out, c.rules(ctx, who, &out)
}

func nano(n int64) money.Nano { return money.Nano(n) }
