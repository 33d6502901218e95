package webtest

import (
	"context"
	"slices"
	"time"

	"millrace/billing/ledger"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/web/admin"
	"millrace/web/console"
	"millrace/web/report"
	"millrace/web/session"
	"millrace/web/statement"
	"millrace/web/ui"
)

// moneyWorld is what alerts, webhooks and approvals look like.
type moneyWorld struct {
	soft      []console.Rule // caps of other periods, and those that only alert
	raised    map[ids.ID]console.Raise
	hooks     []console.Hook
	log       []console.Delivery
	approvals []admin.Approval
}

func (w *world) moneyPages() {
	w.moneys.soft = []console.Rule{
		{ID: id(kindCap, 90), Scope: console.ScopeOrg, ScopeID: id(kindOrg, 1), Name: "Acme Robotics", Period: "day", Amount: usd("60"), AlertOnly: true, Used: usd("20.1034"), Resets: time.Date(2026, time.December, 1, 0, 0, 0, 0, Berlin)},
		{ID: id(kindCap, 91), Scope: console.ScopeProject, ScopeID: id(kindProject, 1), Name: w.projects[0].Name, Period: "total", Amount: usd("5000"), Used: usd("1220.5")},
	}
	w.moneys.hooks = []console.Hook{{ID: id(kindHook, 1), URL: "https://ops.acme.example/hooks/millrace", Created: ago(days(40)), Waiting: 1}}
	event := func(n int) string { return ids.Format("evt", id(kindHook, 100+n)) }
	w.moneys.log = []console.Delivery{
		{At: ago(40 * time.Second), URL: w.moneys.hooks[0].URL, Kind: "cap.alert", Event: event(1), State: "waiting", Attempts: 1, Status: 503, Problem: "it answered 503", Next: Now.Add(20 * time.Second)},
		{At: ago(days(2)), URL: w.moneys.hooks[0].URL, Kind: "credit.ending", Event: event(2), State: "delivered", Attempts: 1, Status: 200},
		{At: ago(days(9)), URL: "https://old.acme.example/in", Kind: "test", Event: event(3), State: "failed", Attempts: 9, Problem: "the address is private, local or reserved"},
	}
	ask := func(n int, org int, name, what, amount, reason, by string, age time.Duration) admin.Approval {
		return admin.Approval{ID: id(kindAsk, n), Org: id(kindOrg, org), OrgName: name, What: what, Amount: usd(amount), Reason: reason, By: by, At: ago(age), State: "waiting"}
	}
	w.moneys.approvals = []admin.Approval{
		ask(1, 2, "Bluefin Search", "Grant, paid", "25000", "Invoice 2026-131, paid by transfer", "li@millrace.example", 20*time.Minute),
		ask(2, 1, "Acme Robotics", "Adjustment", "-1800", "Charged to the wrong customer in October", "ops@millrace.example", 3*time.Hour),
		ask(3, 1, "Acme Robotics", "Grant, promotional, ends 1 Jan 2027 00:00 UTC", "20", "Launch credit", "ops@millrace.example", days(5)),
		ask(4, 3, "Câmara Municipal de Évora", "Reversal of "+ids.Format(ids.Txn, id(kindTxn, 4)), "-1200", "The transfer never came", "li@millrace.example", days(8)),
	}
	w.moneys.approvals[1].Mine = true
	w.moneys.approvals[2].State = "done"
	w.moneys.approvals[3].State, w.moneys.approvals[3].Decided, w.moneys.approvals[3].Note = "refused", "ops@millrace.example", "It came today"
}

// rules are every cap. The caller holds the lock.
func (f *Fixture) rules() (out []console.Rule) {
	resets := time.Date(2026, time.December, 1, 0, 0, 0, 0, Berlin)
	add := func(n int, s console.Scope, scope ids.ID, name string, cap *money.Nano, used money.Nano) {
		if cap == nil {
			return
		}
		r := console.Rule{ID: id(kindCap, n), Scope: s, ScopeID: scope, Name: name, Period: "month", Amount: *cap, Used: used, Resets: resets}
		if x, ok := f.moneys.raised[r.ID]; ok {
			r.Raised, r.RaisedUntil = x.To, x.Until
		}
		out = append(out, r)
	}
	add(0, console.ScopeOrg, id(kindOrg, 1), "Acme Robotics", f.cap, f.month(ids.Nil))
	for i, p := range f.projects {
		add(10+i, console.ScopeProject, p.ID, p.Name, p.Cap, p.Used)
	}
	for i, k := range f.keys {
		if k.Revoked.IsZero() {
			add(30+i, console.ScopeKey, k.ID, k.Name, k.Cap, k.Used)
		}
	}
	return append(out, f.moneys.soft...)
}

func (f *Fixture) alerts() []console.Alert {
	if f.state == Fresh {
		return nil
	}
	return []console.Alert{
		{At: ago(40 * time.Second), Name: "support-bot", Period: "month", Percent: 80, Spent: usd("288.1"), Cap: usd("360")},
		{At: ago(days(11)), Name: "support-bot", Period: "month", Percent: 50, Spent: usd("180.2"), Cap: usd("360"), Told: true},
	}
}

// RaiseCap raises a cap.
func (f *Fixture) RaiseCap(_ context.Context, _ session.Viewer, r console.Raise) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.moneys.raised == nil {
		f.moneys.raised = map[ids.ID]console.Raise{}
	}
	f.moneys.raised[r.Rule] = r
	return nil
}

// Hooks are the webhooks.
func (f *Fixture) Hooks(context.Context, session.Viewer) ([]console.Hook, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.moneys.hooks), nil
}

// Deliveries is the delivery log.
func (f *Fixture) Deliveries(context.Context, session.Viewer) ([]console.Delivery, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.moneys.log), nil
}

// AddHook adds a webhook.
func (f *Fixture) AddHook(_ context.Context, _ session.Viewer, url string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(url) < len("https://x.y") || url[:8] != "https://" {
		return "", fault.New(fault.Invalid, "Webhooks need https: the request carries what your spending is.").WithParam("url")
	}
	f.moneys.hooks = slices.Insert(f.moneys.hooks, 0, console.Hook{ID: id(kindHook, 10+len(f.moneys.hooks)), URL: url, Created: Now})
	return "whsec_Zm9yLXRoZS1maXh0dXJlLW9ubHktbm90LWEtc2VjcmV0", nil
}

// RemoveHook removes a webhook.
func (f *Fixture) RemoveHook(_ context.Context, _ session.Viewer, hook ids.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moneys.hooks = slices.DeleteFunc(f.moneys.hooks, func(h console.Hook) bool { return h.ID == hook })
	return nil
}

// TestHook logs a test event.
func (f *Fixture) TestHook(_ context.Context, _ session.Viewer, hook ids.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.moneys.hooks {
		if h.ID == hook {
			f.moneys.log = slices.Insert(f.moneys.log, 0, console.Delivery{At: Now, URL: h.URL, Kind: "test", Event: ids.Format("evt", id(kindHook, 200)), State: "waiting", Next: Now})
			return nil
		}
	}
	return errGone
}

// Statement is a month in which a grant came and every day had usage.
func (f *Fixture) Statement(_ context.Context, _ session.Viewer, month report.Span) (statement.Statement, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statement(month)
}

func (f *Fixture) statement(month report.Span) (statement.Statement, error) {
	s := ledger.AccountStatement{From: month.From, To: month.To, Opening: map[ledger.Account]money.Nano{}, Closing: map[ledger.Account]money.Nano{}}
	if f.state == Fresh {
		return statement.Of(&s)
	}
	left := usd("640.5")
	s.Opening[ledger.PrepaidPaid] = -left
	move := func(at time.Time, kind ledger.Kind, memo string, n money.Nano, txn ids.ID) {
		left += n
		s.Lines = append(s.Lines, ledger.Line{ID: txn, At: at, Kind: kind, Memo: memo, Entries: []ledger.Entry{{Account: ledger.PrepaidPaid, Amount: -n}, {Account: ledger.Revenue, Amount: n}}})
	}
	for day := month.From; day.Before(month.To) && day.Before(Now); day = day.AddDate(0, 0, 1) {
		move(day, ledger.Usage, "", -usd("20.1034")+money.Nano(noise("statement", day.Day()))*1_000_003, ids.Nil)
		switch day.Day() {
		case 5:
			move(day.Add(9*time.Hour), ledger.Topup, "Top-up by card", usd("100"), id(kindTxn, 300))
		case 12:
			move(day.Add(10*time.Hour), ledger.Adjustment, "Charged twice on 11 November", usd("4.25"), id(kindTxn, 301))
		case 20:
			move(day, ledger.Expiry, "Credit that was not used in time", -usd("1.5"), id(kindTxn, 302))
		}
	}
	s.Closing[ledger.PrepaidPaid] = -left
	return statement.Of(&s)
}

// StatementDay is some requests of a day.
func (f *Fixture) StatementDay(_ context.Context, _ session.Viewer, day time.Time, _ string) (statement.Usage, error) {
	u := statement.Usage{Day: day}
	if f.state == Fresh {
		return u, nil
	}
	for i := range 12 {
		b := statement.Booked{ID: id(kindRequest, i), At: day.Add(23*time.Hour - time.Duration(i)*47*time.Minute), Model: "acme/llama-70b", Tokens: int64(900 + noise("booked", i)), Version: id(kindPrice, 1), Txn: id(kindTxn, 400+i), Charged: usd("0.000812") + money.Nano(noise("booked", i))*1_003}
		u.List, u.Charged, u.Requests = append(u.List, b), u.Charged+b.Charged, u.Requests+1
	}
	return u, nil
}

func (b business) Statement(_ context.Context, _ ids.ID, month report.Span) (statement.Statement, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.f.statement(month)
}

func (b business) Approvals(context.Context) ([]admin.Approval, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return slices.Clone(b.f.moneys.approvals), nil
}

// ask keeps what is large for a second operator. The caller holds the lock.
func (b business) ask(who session.Viewer, org ids.ID, what string, amount money.Nano, reason string) (waits bool, err error) {
	for i := range b.f.orgs {
		if b.f.orgs[i].ID != org {
			continue
		}
		a := admin.Approval{ID: id(kindAsk, 100+len(b.f.moneys.approvals)), Org: org, OrgName: b.f.orgs[i].Name, What: what, Amount: amount, Reason: reason, By: who.Email, Mine: true, At: Now, State: "done"}
		if waits = max(amount, -amount) > usd("1000"); waits {
			a.State = "waiting"
		} else {
			b.f.orgs[i].Balance += amount
		}
		b.f.moneys.approvals = slices.Insert(b.f.moneys.approvals, 0, a)
		return waits, nil
	}
	return false, errGone
}

func (b business) SetCreditLimit(_ context.Context, who session.Viewer, l admin.CreditLimit) (bool, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.ask(who, l.Org, "Credit limit of "+ui.FormatMoney(l.Limit), l.Limit, l.Reason)
}

func (b business) Adjust(_ context.Context, who session.Viewer, a admin.Adjustment) (bool, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.ask(who, a.Org, "Adjustment", a.Amount, a.Reason)
}

func (b business) Reverse(_ context.Context, who session.Viewer, r admin.Reversal) (bool, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.ask(who, r.Org, "Reversal of "+ids.Format(ids.Txn, r.Txn), -usd("4.25"), r.Reason)
}

func (b business) Approve(_ context.Context, who session.Viewer, ask ids.ID) error {
	return b.decide(ask, func(a *admin.Approval) error {
		if a.Mine {
			return fault.New(fault.Forbidden, "You asked for this. A second operator must approve it.")
		}
		a.State, a.Decided = "done", who.Email
		return nil
	})
}

func (b business) Refuse(_ context.Context, who session.Viewer, ask ids.ID, note string) error {
	return b.decide(ask, func(a *admin.Approval) error {
		a.State, a.Decided, a.Note = "refused", who.Email, note
		return nil
	})
}

func (b business) decide(ask ids.ID, fn func(a *admin.Approval) error) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for i := range b.f.moneys.approvals {
		if b.f.moneys.approvals[i].ID == ask {
			return fn(&b.f.moneys.approvals[i])
		}
	}
	return errGone
}
