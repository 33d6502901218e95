package report_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Whatever the filter and the page's size, the pages together are the list: nothing missing, nothing twice, newest first.
func TestPagesOfRequestsAreComplete(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 2, 2)
	models := []ids.ID{w.model("m/one"), w.model("m/two")}
	version := w.version(models[0], usage.Prices{})
	endings := []usage.Ending{usage.Complete, usage.Complete, usage.ClientLeft, usage.EngineFailed}
	keys := slices.Concat(c.keys, c.played)
	var calls []call
	for range 200 {
		at := now.Add(-time.Duration(rand.Int64N(int64(72 * time.Hour)))).Truncate(time.Millisecond)
		calls = append(calls, call{key: keys[rand.IntN(4)], model: models[rand.IntN(2)], version: version, at: at, ending: endings[rand.IntN(4)]})
	}
	list := w.rate(c, calls...)
	other := w.customer("Bluefin", 1, 0)
	w.rate(other, call{key: other.keys[0], model: models[0], version: version, at: now})
	rapid.Check(t, func(rt *rapid.T) {
		f := report.Filter{Limit: rapid.IntRange(1, 60).Draw(rt, "limit"), Failed: rapid.Bool().Draw(rt, "failed"),
			Model: rapid.SampledFrom([]ids.ID{ids.Nil, models[0], models[1]}).Draw(rt, "model"),
			Key:   rapid.SampledFrom([]ids.ID{ids.Nil, c.keys[0], report.Playground}).Draw(rt, "key")}
		var want []ids.ID
		for i, x := range calls {
			played := slices.Contains(c.played, x.key)
			if (f.Model == ids.Nil || f.Model == x.model) && (f.Key == ids.Nil || f.Key == x.key || f.Key == report.Playground && played) && (!f.Failed || x.ending != usage.Complete) {
				want = append(want, list[i])
			}
		}
		slices.SortFunc(want, func(a, b ids.ID) int { return slices.Compare(b[:], a[:]) })
		var got []ids.ID
		for {
			page, err := w.Requests(t.Context(), c.member, c.id, f)
			if err != nil {
				rt.Fatal(err)
			}
			for _, r := range page {
				got = append(got, r.Event.ID)
			}
			if len(page) < f.Limit {
				break
			}
			f.Before = page[len(page)-1].Event.ID
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%d requests, want %d, in order", len(got), len(want))
		}
	})
}

func TestARequestIsExplained(t *testing.T) {
	w := newWorld(t)
	c := w.customer("Acme", 1, 0)
	model := w.model("m/one")
	prices := usage.Prices{usage.Input: 500, usage.Cached: 50, usage.Output: 1000}
	version := w.version(model, prices)
	unit := ids.New()
	w.exec("INSERT INTO units (id, name, model_id, engine, upstream_model, base_url) VALUES ($1, 'u/1', $2, 'sim', 'x', 'http://x')", unit, model)
	u := usage.Vector{usage.Input: 1000, usage.Cached: 2000, usage.Output: 30}
	id := w.rate(c, call{key: c.keys[0], model: model, version: version, at: now, first: 120 * time.Millisecond, usage: u, charged: 630_000, overrun: 5,
		attempts: []usage.Attempt{{ID: ids.New(), Unit: ids.New(), Note: "refused"}, {ID: ids.New(), Unit: unit}}})[0]
	r, v, err := w.Request(t.Context(), c.member, c.id, id)
	if err != nil {
		t.Fatal(err)
	}
	u[usage.Requests] = 1
	if r.Event.ID != id || r.Event.Usage != u || r.Charged != 630_000 || r.Overrun != 5 || r.Event.Charge != 630_005 || r.Model != "m/one" || r.Key != "key a" ||
		r.Project != "main" || len(r.Event.Attempts) != 2 || r.Event.Attempts[0].Note != "refused" || r.PutAside != "" {
		t.Errorf("request %+v", r)
	}
	if first := r.Event.FirstTokenMS - r.Event.StartedMS; first != 120 || !r.Event.Streamed {
		t.Errorf("first token after %d ms, streamed %v", first, r.Event.Streamed)
	}
	if v.ID != version || v.Prices != prices {
		t.Errorf("version %+v", v)
	}
	names, err := w.Units(t.Context(), c.member, c.id, []ids.ID{unit, r.Event.Attempts[0].Unit})
	if err != nil || len(names) != 1 || names[unit] != (report.Unit{Name: "u/1", Engine: "sim"}) {
		t.Errorf("units %v, error %v", names, err)
	}
	if _, _, err := w.Request(t.Context(), c.member, c.id, ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown request: %v", err)
	}
}

// aside puts an event into quarantine, as the rater does.
func (w *world) aside(e usage.Event, seq int) ids.ID {
	w.t.Helper()
	text, err := e.AppendJSON(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	id := ids.New()
	w.exec("INSERT INTO quarantine (id, org_id, event_id, shard, incarnation, seq, position, reason, payload) VALUES ($1, $2, $3, 0, 'x', $4, 0, 'output count 5000000 is impossible', $5)", id, e.Org, e.ID, seq, text)
	return id
}

// What was set aside is told to the customer who made it without the reason, to operators with it, and to nobody else.
func TestARequestInQuarantine(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer("Acme", 1, 0), w.customer("Bluefin", 1, 0)
	model := w.model("m/one")
	version := w.version(model, usage.Prices{usage.Input: 500})
	e := usage.Event{ID: idAt(now), Org: a.id, Key: a.keys[0], Model: model, PriceVersion: version, Usage: usage.Vector{usage.Output: 5_000_000},
		Raw: []byte(`{"completion_tokens":5000000}`), Ending: usage.Complete, Status: 200, StartedMS: 1000, EndedMS: 3000}
	id := w.aside(e, 1)
	told := func(when string) {
		t.Helper()
		r, v, err := w.Request(t.Context(), a.member, a.id, e.ID)
		if err != nil || r.PutAside == "" || strings.Contains(r.PutAside, "impossible") || r.Quarantined != nil || r.Event.Raw != nil || r.Event.Usage != (usage.Vector{}) ||
			r.Event.Ending != usage.Quarantined || r.Model != "m/one" || r.Charged != 0 || v.ID != version || r.Event.StartedMS != 1000 {
			t.Errorf("%s, to the customer: %+v, version %v, error %v", when, r, v.ID, err)
		}
		r, _, err = w.Request(t.Context(), w.root, a.id, e.ID)
		if err != nil || r.Quarantined == nil || r.Quarantined.ID != id || r.Quarantined.Reason != "output count 5000000 is impossible" || string(r.Quarantined.Event.Raw) != string(e.Raw) ||
			r.Quarantined.Event.Ending != usage.Complete || r.Quarantined.Event.Usage != e.Usage {
			t.Errorf("%s, to the operator: %+v, error %v", when, r, err)
		}
		if _, _, err := w.Request(t.Context(), b.member, b.id, e.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s, another customer sees it: %v", when, err)
		}
		if _, _, err := w.Request(t.Context(), b.member, a.id, e.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s, another customer sees it in its owner's place: %v", when, err)
		}
	}
	told("waiting")
	w.exec("UPDATE quarantine SET resolved_at = now(), decision = 'dismissed', decided_by = 'token:ann', resolution = 'a miscount'")
	told("dismissed")
	x, err := w.Quarantined(t.Context(), w.root, id)
	if err != nil || x.Decided == nil || x.Decided.Decision != "dismissed" || x.Decided.By != "token:ann" || x.Decided.Why != "a miscount" || x.OrgName != "Acme" || x.Model != "m/one" || x.Key == "" {
		t.Errorf("%+v, error %v", x, err)
	}
	if _, err := w.Quarantined(t.Context(), w.root, ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown event: %v", err)
	}
	if _, err := w.Quarantined(t.Context(), a.member, id); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer reads the operator's list: %v", err)
	}
}

func TestTheListOfQuarantine(t *testing.T) {
	w := newWorld(t)
	a := w.customer("Acme", 1, 0)
	model := w.model("m/one")
	first := ids.New()
	w.exec("INSERT INTO quarantine (id, shard, incarnation, seq, position, reason, payload) VALUES ($1, 0, 'x', 1, 0, 'not an event', 'garbage')", first)
	w.exec("UPDATE quarantine SET resolved_at = now(), decision = 'dismissed', decided_by = 'system' WHERE id = $1", w.aside(usage.Event{ID: idAt(now), Org: a.id, Model: model}, 2))
	w.aside(usage.Event{ID: idAt(now), Org: a.id, Model: model}, 3)
	e := usage.Event{ID: idAt(now), Org: a.id, Model: model}
	last := w.aside(e, 4)
	var seen []report.Quarantined
	for before := ids.Nil; ; {
		page, err := w.Quarantine(t.Context(), w.root, before, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		seen, before = append(seen, page...), page[0].ID
	}
	if len(seen) != 3 || seen[0].ID != last || seen[2].ID != first || seen[0].OrgName != "Acme" || seen[0].Model != "m/one" || seen[0].Event.ID != e.ID || seen[2].OrgName != "" {
		t.Errorf("quarantine %+v", seen)
	}
	attention, err := w.Attention(t.Context(), w.root, now)
	if err != nil || attention.Quarantined != 3 || !attention.Reconcile.At.IsZero() {
		t.Errorf("attention %+v, error %v", attention, err)
	}
}

func TestOverruns(t *testing.T) {
	w := newWorld(t)
	a, b := w.customer("Acme", 1, 0), w.customer("Bluefin", 1, 0)
	model := w.model("m/one")
	version := w.version(model, usage.Prices{})
	over := func(c customer, at time.Time, n money.Nano) ids.ID {
		return w.rate(c, call{key: c.keys[0], model: model, version: version, at: at, overrun: n})[0]
	}
	over(a, now.AddDate(0, 0, -40), 1000) // too old to count
	want := []ids.ID{over(a, now.AddDate(0, 0, -3), 1), over(b, now.AddDate(0, 0, -2), 10), over(a, now, 100)}
	over(a, now, 0)
	slices.Reverse(want)
	since := now.AddDate(0, 0, -30)
	var got []ids.ID
	for before := ids.Nil; ; {
		page, err := w.Overruns(t.Context(), w.root, since, before, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, o := range page {
			got = append(got, o.Request)
		}
		before = got[len(got)-1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("overruns %v, want %v", got, want)
	}
	attention, err := w.Attention(t.Context(), w.root, since)
	if err != nil || attention.Overrun != 111 || attention.Overruns != 3 {
		t.Errorf("attention %+v, error %v", attention, err)
	}
}
