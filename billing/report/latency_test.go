package report_test

import (
	"encoding/json"
	"testing"
	"time"

	"millrace/billing/report"
	"millrace/billing/usagelog"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/usage"
)

const ms = time.Millisecond

func TestFirstTokens(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer("Acme", 1, 0), w.customer("Bluefin", 1, 0)
	model := w.model("m/one")
	version := w.version(model, usage.Prices{})
	stream := func(c customer, at time.Time, first time.Duration) {
		w.rate(c, call{key: c.keys[0], model: model, version: version, at: at, first: first})
	}
	for i := range 20 { // 100, 110, … 290 ms
		stream(a, now.Add(-time.Duration(i)*time.Minute), time.Duration(100+10*i)*ms)
	}
	stream(a, now.Add(-25*time.Hour), time.Second) // too old
	w.rate(a, call{key: a.keys[0], model: model, version: version, at: now})
	since := now.Add(-24 * time.Hour)
	got, err := w.FirstTokens(t.Context(), a.member, a.id, since)
	if err != nil || got != (report.Quantiles{P50: 190 * ms, P95: 280 * ms}) {
		t.Errorf("Acme's are %v, error %v; want 190 and 280 ms", got, err)
	}
	if got, err := w.FirstTokens(t.Context(), b.member, b.id, since); err != nil || got != (report.Quantiles{}) {
		t.Errorf("nobody's are %v, error %v", got, err)
	}
	for range 60 {
		stream(b, now.Add(-time.Minute), 20*ms)
	}
	// 20 of 80 streams are Acme's: the median is Bluefin's, the 95th percentile the 76th of 80: Acme's 16th.
	if got, err := w.FirstTokens(t.Context(), w.root, ids.Nil, since); err != nil || got != (report.Quantiles{P50: 20 * ms, P95: 250 * ms}) {
		t.Errorf("all are %v, error %v; want 20 and 250 ms", got, err)
	}
	// Steps: the last hour without the running minute has i = 1…19, the hour before nothing.
	starts := []time.Time{now.Add(-2 * time.Hour), now.Add(-time.Hour)}
	steps, err := w.FirstTokenSteps(t.Context(), a.member, a.id, starts, []time.Time{starts[1], now})
	if err != nil || len(steps) != 2 || steps[0] != 0 || steps[1] != 200*ms {
		t.Errorf("steps %v, error %v; want none and 200 ms", steps, err)
	}
}

// A customer of whose streams only a part is read still counts by all of them.
func TestFirstTokensOfAllAreWeighed(t *testing.T) {
	w := newWorld(t)
	model := w.model("m/one")
	version := w.version(model, usage.Prices{})
	slow := w.customer("Slow", 1, 0)
	w.rate(slow, call{key: slow.keys[0], model: model, version: version, at: now, first: 900 * ms})
	w.roll(row{org: slow.id, project: slow.project, key: slow.keys[0], model: model, at: now.Truncate(15 * time.Minute), Sums: report.Sums{Streams: 99}})
	for range 40 {
		c := w.customer("Fast", 1, 0)
		w.rate(c, call{key: c.keys[0], model: model, version: version, at: now, first: 10 * ms})
	}
	got, err := w.FirstTokens(t.Context(), w.root, ids.Nil, now.Add(-time.Hour))
	if err != nil || got.P50 != 900*ms {
		t.Errorf("quantiles %v, error %v: 100 of 140 streams took 900 ms", got, err)
	}
}

func TestUnitTraffic(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	model := w.model("m/one")
	version := w.version(model, usage.Prices{})
	u1, u2 := ids.New(), ids.New()
	served := func(at time.Time, first time.Duration, ending usage.Ending, status int, units ...ids.ID) {
		x := call{key: c.keys[0], model: model, version: version, at: at, first: first, ending: ending, status: status, usage: usage.Vector{usage.Input: 100, usage.Cached: 300, usage.Output: 11}}
		for _, u := range units {
			x.attempts = append(x.attempts, usage.Attempt{ID: ids.New(), Unit: u})
		}
		w.rate(c, x)
	}
	served(now.Add(-time.Minute), 100*ms, usage.Complete, 200, u2, u1) // the last attempt served
	served(now.Add(-2*time.Minute), 300*ms, usage.EngineFailed, 200, u1)
	served(now.Add(-3*time.Minute), 0, usage.FailedUnbilled, 502, u1)
	served(now.Add(-4*time.Minute), 500*ms, usage.ClientLeft, 200, u2)
	served(now.Add(-6*time.Minute), 900*ms, usage.Complete, 200, u1) // too old
	served(now.Add(-time.Minute), 0, usage.FailedUnbilled, 503)      // no unit at all
	got, err := w.UnitTraffic(t.Context(), w.root, now.Add(-5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	want := map[ids.ID]report.UnitTraffic{
		u1: {Requests: 3, Errors: 2, Prompt: 1200, Cached: 900, First: report.Quantiles{P50: 100 * ms, P95: 300 * ms}, Token: report.Quantiles{P50: 70 * ms, P95: 90 * ms}}, // answers of 11 tokens end after a second
		u2: {Requests: 1, Prompt: 400, Cached: 300, First: report.Quantiles{P50: 500 * ms, P95: 500 * ms}, Token: report.Quantiles{P50: 50 * ms, P95: 50 * ms}},
	}
	if len(got) != 2 || got[u1] != want[u1] || got[u2] != want[u2] {
		t.Errorf("traffic %+v, want %+v", got, want)
	}
}

func TestSpendAndLastRequests(t *testing.T) {
	w := newWorld(t)
	c, idle := w.customer("Acme", 3, 0), w.customer("Idle", 1, 0)
	one, two := w.model("m/one"), w.model("m/two")
	version := w.version(one, usage.Prices{})
	month := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	calls := []call{
		{key: c.keys[0], model: one, at: month.Add(time.Hour), charged: 10},
		{key: c.keys[0], model: two, at: now.Add(-time.Hour), charged: 5},
		{key: c.keys[1], model: one, at: now.Add(-2 * time.Hour), charged: 100},
		{key: c.keys[2], model: one, at: month.Add(-time.Hour), charged: 1000}, // last month, and long ago
	}
	for i := range calls {
		calls[i].version = version
	}
	w.rate(c, calls...)
	spend, err := w.Spend(t.Context(), c.member, c.id, month, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	want := map[ids.ID]report.KeySpend{c.keys[0]: {Charged: 15, LastModel: two}, c.keys[1]: {Charged: 100, LastModel: one}}
	if spend.Total != 115 || spend.Projects[c.project] != 115 || spend.Keys[c.keys[0]] != want[c.keys[0]] || spend.Keys[c.keys[1]] != want[c.keys[1]] || spend.Keys[c.keys[2]].Charged != 0 {
		t.Errorf("spend %+v, want %+v", spend, want)
	}
	last, err := w.LastRequests(t.Context(), w.root, []ids.ID{c.id, idle.id})
	if err != nil || len(last) != 1 || !last[c.id].Equal(now.Add(-time.Hour)) {
		t.Errorf("last requests %v, error %v", last, err)
	}
	for org, want := range map[ids.ID]bool{c.id: true, idle.id: false} {
		if used, err := w.Used(t.Context(), w.root, org); err != nil || used != want {
			t.Errorf("used is %v, error %v; want %v", used, err, want)
		}
	}
}

func TestOpenEpochs(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	open, fenced, balance, limit := ids.New(), ids.New(), ids.New(), ids.New()
	w.exec("INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms, fenced_at) VALUES ($1, 'a pid 1', 1, 1, NULL), ($2, 'b pid 2', 1, 1, now())", open, fenced)
	w.exec("INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano) VALUES ($1, $2, 'balance', 'org', $1, 'total', 'epoch', 100), ($1, $3, 'cap', 'org', $1, 'month', 'epoch', 100)", c.id, balance, limit)
	w.exec("INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano, used_nano, returned_nano) VALUES ($1, $2, $3, 50, 20, 5), ($1, $4, $3, 60, 0, 0)", c.id, balance, open, limit)
	got, err := w.OpenEpochs(t.Context(), w.root)
	if err != nil || len(got) != 1 || got[0].ID != open || got[0].Process != "a pid 1" || got[0].Outstanding != 25 {
		t.Errorf("epochs %+v, error %v: an amount counts once, though it is allotted in every scope", got, err)
	}
}

// said hands notices to whoever listens.
type said struct{ fn func(string, []byte) }

func (s *said) Subscribe(subject string, fn func(string, []byte)) (func(), error) {
	if subject == bus.NoticeLag {
		s.fn = fn
	}
	return func() { s.fn = nil }, nil
}

func TestLag(t *testing.T) {
	c, rater := clock.NewManual(now), &said{}
	l, err := report.ListenForLag(rater, c)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want time.Duration, known bool) {
		t.Helper()
		if lag, ok := l.Now(); lag != want || ok != known {
			t.Errorf("lag %v, known %v; want %v, %v", lag, ok, want, known)
		}
	}
	expect(0, false)
	rater.fn("", []byte("garbage"))
	expect(0, false)
	text, err := json.Marshal(usagelog.Lag{MS: 1500})
	if err != nil {
		t.Fatal(err)
	}
	rater.fn("", text)
	expect(1500*ms, true)
	c.Advance(2 * time.Second)
	expect(1500*ms, true)
	c.Advance(8 * time.Second) // nothing was heard for 10 s
	expect(11500*ms, true)
	l.Close()
	if rater.fn != nil {
		t.Error("it still listens")
	}
}
