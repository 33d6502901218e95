package webtest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/console"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/ui"
)

var errGone = fault.New(fault.NotFound, "There is nothing with this id.")

func (f *Fixture) balance() console.Balance {
	if f.state == Fresh && len(f.grants) == 0 {
		return console.Balance{}
	}
	b := console.Balance{Held: usd("0.84")}
	for _, g := range f.grants {
		b.Total += g.Left
		if g.Promo {
			b.Promo += g.Left
			b.PromoEnds = g.Ends
		}
	}
	return b
}

// Home is the first page.
func (f *Fixture) Home(_ context.Context, _ session.Viewer) (console.Home, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := console.Home{Balance: f.balance(), HasCredit: len(f.grants) > 0, HasKey: len(f.keys) > 0}
	if f.state == Fresh {
		return h, nil
	}
	h.HasCall, h.Simulated, h.Cap = true, true, f.cap
	h.SpentWeek, h.Month, h.Saved = f.spent(report.Query{From: ago(days(7)), To: Now}), f.month(ids.Nil), usd("97.31")
	h.Prompt, h.Cached = 612_400_118, 251_084_048
	h.FirstTok = ui.Quantiles{P50: 212 * time.Millisecond, P95: 640 * time.Millisecond}
	for i := 23; i >= 0; i-- {
		start := Now.Truncate(time.Hour).Add(-time.Duration(i) * time.Hour).In(Berlin)
		n := noise("hour", start.Hour())
		h.Hours = append(h.Hours, console.HourPoint{Start: start, Requests: 900 + 2*n, Errors: n / 400, FirstTok: time.Duration(150+n/6) * time.Millisecond})
	}
	return h, nil
}

// Keys are all keys.
func (f *Fixture) Keys(context.Context, session.Viewer) ([]console.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.keys), nil
}

// Key is one key.
func (f *Fixture) Key(_ context.Context, _ session.Viewer, id ids.ID) (console.Key, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.keys {
		if k.ID == id {
			return k, nil
		}
	}
	return console.Key{}, errGone
}

// Projects are the organization's.
func (f *Fixture) Projects(context.Context, session.Viewer) ([]console.Project, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.projects), nil
}

// Usage invents a cell for every bucket and model or key that passes the filter.
func (f *Fixture) Usage(_ context.Context, _ session.Viewer, q report.Query) ([]report.Cell, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cells(q), nil
}

func (w *world) cells(q report.Query) []report.Cell {
	var out []report.Cell
	for _, t := range (report.Span{From: q.From.In(q.Zone), To: q.To.In(q.Zone), Step: q.Step}).Starts() {
		if t.After(Now) {
			break
		}
		for i, m := range w.models {
			for j, k := range w.keys {
				if (j+i)%2 == 1 && j != 1 || q.Model != "" && q.Model != m.Name || q.Key != ids.Nil && q.Key != k.ID || j == 3 {
					continue
				}
				c := inventCell(m, k.Name, t, q.Step)
				switch q.Group {
				case report.ByModel:
					c.Group, c.Label = m.Name, m.Name
				case report.ByKey:
					c.Group, c.Label = ids.Format(ids.Key, k.ID), k.Name
				}
				out = append(out, c)
			}
		}
	}
	return out
}

// month is what a key, or all, spent in the running month.
func (w *world) month(key ids.ID) money.Nano {
	return w.spent(report.Query{From: time.Date(Now.Year(), Now.Month(), 1, 0, 0, 0, 0, Berlin), To: Now, Key: key})
}

// spent is what the invented usage of a span costs.
func (w *world) spent(q report.Query) (sum money.Nano) {
	q.Zone, q.Step = Berlin, report.StepDay
	for _, c := range w.cells(q) {
		sum += c.Cost
	}
	return sum
}

func inventCell(m console.Model, key string, t time.Time, s report.Step) report.Cell {
	n := 2*noise(m.Name, key, t.Format(time.DateTime)) + 150
	if s == report.StepHour {
		n = n/20 + 1
	}
	if wd := t.Weekday(); wd == time.Saturday || wd == time.Sunday {
		n = n / 3
	}
	c := report.Cell{Bucket: t, Requests: n * 3, Errors: n / 250}
	c.Usage[usage.Input], c.Usage[usage.Cached], c.Usage[usage.Output], c.Usage[usage.Requests] = n*6_200, n*4_310, n*1_900, n*3
	if m.Name == "acme/deepseek-flash" {
		c.Usage[usage.Reasoning] = n * 830
	}
	cost, _ := m.Prices.Cost(c.Usage)
	c.Cost = cost.Nano()
	return c
}

// UsageAsOf is a little behind.
func (f *Fixture) UsageAsOf(context.Context, session.Viewer) (time.Time, error) {
	if f.state == Fresh {
		return time.Time{}, nil
	}
	return ago(2 * time.Second), nil
}

// Models are all models.
func (f *Fixture) Models(context.Context, session.Viewer) ([]console.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.models), nil
}

// Billing is a page of the ledger; its cursor is the page's number.
func (f *Fixture) Billing(_ context.Context, _ session.Viewer, after string) (console.Billing, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := console.Billing{Balance: f.balance()}
	if f.state == Fresh {
		return b, nil
	}
	page, _ := strconv.Atoi(after)
	left := b.Balance.Total + money.Nano(page)*usd("180")
	for i := range 12 {
		day := Now.AddDate(0, 0, -12*page-i)
		l := console.LedgerLine{At: day, Kind: "usage", Text: "Usage of " + day.Format("2 January"), Amount: -usd("20.1034") + money.Nano(noise("ledger", i))*1_000_003, After: left, Ref: ids.Format(ids.Txn, id(kindTxn, 12*page+i))}
		if i == 5 {
			l.Kind, l.Text, l.Amount = "credit", "Credit granted: Launch credit", usd("20")
		}
		left -= l.Amount
		b.Lines = append(b.Lines, l)
	}
	if page < 2 {
		b.Next = strconv.Itoa(page + 1)
	}
	return b, nil
}

// Limits are the caps.
func (f *Fixture) Limits(context.Context, session.Viewer) (console.Limits, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := console.Limits{OrgID: id(kindOrg, 1), Cap: f.cap, Projects: slices.Clone(f.projects), Resets: time.Date(2026, time.December, 1, 0, 0, 0, 0, Berlin), Rules: f.rules(), Alerts: f.alerts(), Low: f.low}
	if f.state == Busy {
		l.Used, l.RPM, l.TPM = f.month(ids.Nil), 6_000, 2_000_000
	}
	for _, k := range f.keys {
		if k.Revoked.IsZero() && (k.Expires.IsZero() || k.Expires.After(Now)) {
			l.Keys = append(l.Keys, k)
		}
	}
	return l, nil
}

// Members are the organization's people.
func (f *Fixture) Members(context.Context, session.Viewer) ([]console.Member, error) {
	out := []console.Member{{Name: "Dana Ito", Email: "dana@acme.example", Role: "owner", Joined: ago(days(120)), LastSeen: ago(time.Minute)}}
	if f.state == Busy {
		out = append(out, console.Member{Name: "Kim Okafor", Email: "kim@acme.example", Role: "viewer", Joined: ago(days(90)), LastSeen: ago(days(3))},
			console.Member{Email: "li@acme.example", Role: "developer", Joined: ago(days(1)), Pending: true})
	}
	return out, nil
}

// Audit is the organization's log.
func (f *Fixture) Audit(_ context.Context, _ session.Viewer, _ string) (console.AuditList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return console.AuditList{Entries: slices.Clone(f.audit)}, nil
}
