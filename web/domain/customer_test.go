package domain_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/billing/period"
	"millrace/billing/price"
	"millrace/billing/report"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
	"millrace/web/console"
	pages "millrace/web/report"
	"millrace/web/ui"
)

const ms = time.Millisecond

// acmeSpent is all that Acme was charged.
const acmeSpent money.Nano = novemberCI + novemberBot + lateCI + decemberCI + brokenBot + playedOnce

func TestHome(t *testing.T) {
	s := newShop(t)
	h, err := s.site.Customer.Home(s.as(s.owner), s.viewer(s.owner))
	s.must(err)
	if h.Balance.Total+h.Balance.Held != usd(t, "20.007")-acmeSpent || h.Balance.Promo != usd(t, "0.007")-acmeSpent || !h.Balance.PromoEnds.IsZero() {
		t.Errorf("balance %+v: Acme had $20.007 and spent %s, promotional credit first", h.Balance, acmeSpent)
	}
	const month = decemberCI + brokenBot + playedOnce // December began at 18:30 UTC
	if h.Month != month || h.SpentWeek != month+lateCI+novemberBot || h.Saved != savedCI || h.Prompt != 2310 || h.Cached != 1800 {
		t.Errorf("month %s, week %s, saved %s, prompt %d, cached %d", h.Month, h.SpentWeek, h.Saved, h.Prompt, h.Cached)
	}
	if h.Cap == nil || *h.Cap != usd(t, "1") || !h.HasCredit || !h.HasKey || !h.HasCall || !h.Simulated {
		t.Errorf("cap %v, credit %v, key %v, call %v, simulated %v", h.Cap, h.HasCredit, h.HasKey, h.HasCall, h.Simulated)
	}
	if h.FirstTok != (ui.Quantiles{P50: 80 * ms, P95: 300 * ms}) {
		t.Errorf("first token %v", h.FirstTok)
	}
	if len(h.Hours) != 24 || h.Hours[23].Start.Format("02 15:04") != "01 01:00" || h.Hours[0].Start.Format("02 15:04") != "30 02:00" {
		t.Fatalf("hours from %v to %v, want 24 that end with the running one in India", h.Hours[0].Start, h.Hours[len(h.Hours)-1].Start)
	}
	want := map[int]console.HourPoint{21: {Requests: 1, FirstTok: 120 * ms}, 22: {Requests: 1, FirstTok: 80 * ms}, 23: {Requests: 2, Errors: 1, FirstTok: 40 * ms}}
	for i, p := range h.Hours {
		p.Start = time.Time{}
		if p != want[i] {
			t.Errorf("hour %d is %+v, want %+v", i, p, want[i])
		}
	}

	// A viewer may not read grants, and sees everything else.
	v, err := s.site.Customer.Home(s.as(s.viewing), s.viewer(s.viewing))
	s.must(err)
	if !v.Balance.PromoEnds.IsZero() || v.Month != month || v.Balance.Promo != h.Balance.Promo {
		t.Errorf("a viewer's home %+v", v.Balance)
	}
}

// An organization in which nothing has happened has a home page too.
func TestHomeOfANewcomer(t *testing.T) {
	w := newWorld(t)
	_, err := w.tenants.CreateOrg(t.Context(), w.root, tenants.NewOrg{Name: "New", Owner: "new@new.example"})
	w.must(err)
	cookie := w.signIn("new@new.example")
	h, err := w.site.Customer.Home(w.as(cookie), w.viewer(cookie))
	w.must(err)
	if h.HasCredit || h.HasKey || h.HasCall || h.Simulated || h.Balance != (console.Balance{}) || len(h.Hours) != 24 || h.Month != 0 {
		t.Errorf("home %+v", h)
	}
	b, err := w.site.Customer.Billing(w.as(cookie), w.viewer(cookie), "")
	if err != nil || len(b.Lines) != 0 || b.Next != "" {
		t.Errorf("billing %+v, error %v", b, err)
	}
}

func TestKeysProjectsAndLimits(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	list, err := s.site.Customer.Keys(ctx, who)
	s.must(err)
	if len(list) != 2 || list[0].ID != s.bot.ID || list[1].ID != s.ci.ID {
		t.Fatalf("keys %+v, want the bot's and ci's, the newest first, and not the playground's", list)
	}
	ci := list[1]
	if ci.Name != "ci-nightly" || ci.Project != s.project.Name || ci.ProjectID != s.project.ID || ci.CreatedBy != "dana@acme.example" || ci.LastModel != "demo/small" ||
		ci.Used != decemberCI || ci.Cap == nil || *ci.Cap != usd(t, "0.5") || ci.Prefix != s.ci.Prefix || ci.Last4 != s.ci.Last4 || !ci.Expires.IsZero() || !ci.Revoked.IsZero() {
		t.Errorf("ci is %+v", ci)
	}
	if bot := list[0]; bot.CreatedBy != "" || bot.Project != "bots" || bot.Used != brokenBot || bot.Cap != nil || bot.LastModel != "demo/small" {
		t.Errorf("the bot is %+v", bot)
	}
	one, err := s.site.Customer.Key(ctx, who, s.ci.ID)
	if err != nil || one.Used != ci.Used || *one.Cap != *ci.Cap || one.Name != ci.Name {
		t.Errorf("one key %+v, error %v", one, err)
	}
	played, err := s.site.Customer.Key(ctx, who, report.Playground)
	if err != nil || played.Name != "Playground" || played.Expires.After(s.clock.Now()) {
		t.Errorf("the playground as a key: %+v, error %v; want one that cannot be used", played, err)
	}
	projects, err := s.site.Customer.Projects(ctx, who)
	if err != nil || len(projects) != 2 || projects[0].Used != decemberCI+playedOnce || projects[1].Name != "bots" || projects[1].Used != brokenBot {
		t.Errorf("projects %+v, error %v", projects, err)
	}
	l, err := s.site.Customer.Limits(ctx, who)
	s.must(err)
	resets := time.Date(2026, 12, 31, 18, 30, 0, 0, time.UTC)
	if l.OrgID != s.acme.ID || *l.Cap != usd(t, "1") || l.Used != decemberCI+brokenBot+playedOnce || !l.Resets.Equal(resets) || len(l.Projects) != 2 || len(l.Keys) != 2 {
		t.Errorf("limits %+v", l)
	}
	s.must(s.site.Change.RevokeKey(ctx, who, s.bot.ID))
	if l, err = s.site.Customer.Limits(ctx, who); err != nil || len(l.Keys) != 1 || l.Keys[0].ID != s.ci.ID {
		t.Errorf("after revoking one: %+v, error %v", l.Keys, err)
	}
}

func TestUsage(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	from, to := pages.Day(now.In(who.Zone), -29), pages.Day(now.In(who.Zone), 1)
	read := func(change func(q *pages.Query)) map[string]money.Nano {
		t.Helper()
		q := pages.Query{From: from.UTC(), To: to.UTC(), Zone: who.Zone, Step: pages.StepDay, Group: pages.ByModel}
		change(&q)
		cells, err := s.site.Customer.Usage(ctx, who, q)
		s.must(err)
		out := map[string]money.Nano{}
		for _, c := range cells {
			out[c.Bucket.In(who.Zone).Format("01-02 15 ")+c.Label] += c.Cost
		}
		return out
	}
	expect := func(name string, got, want map[string]money.Nano) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n%v\nwant\n%v", name, got, want)
		}
	}
	expect("by model and day", read(func(*pages.Query) {}), map[string]money.Nano{"11-10 00 demo/small": novemberCI, "11-28 00 demo/large": novemberBot,
		"11-30 00 demo/small": lateCI, "12-01 00 demo/small": decemberCI + brokenBot + playedOnce})
	expect("by key and hour", read(func(q *pages.Query) {
		q.From, q.Step, q.Group = pages.Day(now.In(who.Zone), 0).UTC(), pages.StepHour, pages.ByKey
	}), map[string]money.Nano{"12-01 00 ci-nightly": decemberCI, "12-01 01 support-bot": brokenBot, "12-01 01 Playground": playedOnce})
	expect("one key", read(func(q *pages.Query) { q.Key, q.Group = s.bot.ID, pages.ByDay }), map[string]money.Nano{"11-28 00 ": novemberBot, "12-01 00 ": brokenBot})
	expect("the playground", read(func(q *pages.Query) { q.Key = report.Playground }), map[string]money.Nano{"12-01 00 demo/small": playedOnce})
	expect("one model", read(func(q *pages.Query) { q.Model, q.Group = "demo/large", pages.ByKey }), map[string]money.Nano{"11-28 00 support-bot": novemberBot})
	expect("an unknown model", read(func(q *pages.Query) { q.Model = "nobody/knows" }), map[string]money.Nano{})

	cells, err := s.site.Customer.Usage(ctx, who, pages.Query{From: from.UTC(), To: to.UTC(), Zone: who.Zone, Step: pages.StepDay, Group: pages.ByKey, Key: s.ci.ID})
	s.must(err)
	last := cells[len(cells)-1]
	want := usage.Vector{usage.Input: 200, usage.Cached: 1800, usage.Output: 50, usage.Requests: 1}
	if last.Group != ids.Format(ids.Key, s.ci.ID) || last.Usage != want || last.Requests != 1 || last.Errors != 0 {
		t.Errorf("ci's last day %+v", last)
	}
	// What a page makes of it: every cell falls into a bucket of the span.
	span := pages.Span{From: from, To: to, Step: pages.StepDay}
	if rep := pages.New(cells, span, pages.ByKey, pages.Cost); rep.Total.Cost != novemberCI+lateCI+decemberCI {
		t.Errorf("the report's total is %s", rep.Total.Cost)
	}
}

func TestUsageAsOf(t *testing.T) {
	w := newWorld(t)
	if at, err := w.site.Customer.UsageAsOf(t.Context(), w.viewerOfNobody()); err != nil || !at.IsZero() {
		t.Errorf("as of %v, error %v, before a rater spoke", at, err)
	}
	w.must(w.bus.Publish("notice.lag", []byte(`{"ms":1500}`)))
	w.eventually("the rater is heard", func() bool { _, known := w.lag.Now(); return known })
	if at, err := w.site.Customer.UsageAsOf(t.Context(), w.viewerOfNobody()); err != nil || !at.Equal(w.clock.Now().Add(-1500*ms)) {
		t.Errorf("as of %v, error %v, want a second and a half ago", at, err)
	}
}

func TestRequests(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	mine := slices.Concat(s.calls[:2], s.calls[3:]) // the third is Bluefin's
	slices.Reverse(mine)
	read := func(q console.RequestQuery) (got []ids.ID) {
		t.Helper()
		for {
			list, err := s.site.Customer.Requests(ctx, who, q)
			s.must(err)
			for _, r := range list.Rows {
				got = append(got, r.ID)
			}
			if list.Next == "" {
				return got
			}
			if len(list.Rows) != q.Limit {
				t.Fatalf("a page of %d with more to come, want %d", len(list.Rows), q.Limit)
			}
			q.After = list.Next
		}
	}
	for name, x := range map[string]struct {
		q    console.RequestQuery
		want []ids.ID
	}{
		"one page":          {console.RequestQuery{Limit: 50}, mine},
		"pages of two":      {console.RequestQuery{Limit: 2}, mine},
		"pages of one":      {console.RequestQuery{Limit: 1}, mine},
		"one key":           {console.RequestQuery{Limit: 2, Key: s.ci.ID}, []ids.ID{s.calls[4], s.calls[3], s.calls[0]}},
		"the playground":    {console.RequestQuery{Limit: 2, Key: report.Playground}, []ids.ID{s.calls[6]}},
		"failed":            {console.RequestQuery{Limit: 2, Failed: true}, []ids.ID{s.calls[5]}},
		"one model":         {console.RequestQuery{Limit: 2, Model: "demo/large"}, []ids.ID{s.calls[1]}},
		"an unknown model":  {console.RequestQuery{Limit: 2, Model: "x"}, nil},
		"another's key":     {console.RequestQuery{Limit: 2, Key: s.theirs.ID}, nil},
		"a senseless place": {console.RequestQuery{Limit: 50, After: "x"}, mine},
	} {
		if got := read(x.q); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	list, err := s.site.Customer.Requests(ctx, who, console.RequestQuery{Limit: 50})
	s.must(err)
	broke := list.Rows[1]
	if broke.KeyName != "support-bot" || broke.Ending != usage.EngineFailed || broke.Cost != brokenBot || broke.FirstTok != 300*ms || broke.Took != time.Second || !broke.Streamed ||
		!broke.Simulated || broke.Model != "demo/small" || broke.Status != 200 || !broke.At.Equal(time.Date(2026, 11, 30, 19, 50, 0, 0, time.UTC)) {
		t.Errorf("the broken one %+v", broke)
	}
	if whole := list.Rows[4]; whole.Simulated || whole.FirstTok != 0 || whole.Streamed || whole.Cost != novemberBot {
		t.Errorf("the one of a real engine %+v", whole)
	}
}

func TestRequestIsExplained(t *testing.T) {
	s := newShop(t)
	r, err := s.site.Customer.Request(s.as(s.owner), s.viewer(s.owner), s.calls[4])
	s.must(err)
	if r.Cost != decemberCI || r.KeyID != s.ci.ID || r.Project != s.project.Name || r.Dialect != "chat" || r.Prices != perMillion(t, "0.50", "0.05", "1") || r.Version == ids.Nil ||
		!r.Since.Equal(begin) || r.Entry == ids.Nil || r.Quarantine != "" || r.Unit != "small/gpu-1" {
		t.Errorf("request %+v", r)
	}
	if want := []console.Attempt{{Unit: "large/1", Note: "not_ready"}, {Unit: "small/gpu-1"}}; !slices.Equal(r.Attempts, want) {
		t.Errorf("attempts %+v, want %+v", r.Attempts, want)
	}
	exact, ok := r.Prices.Cost(r.Usage)
	if !ok || exact.Nano() != r.Cost {
		t.Errorf("by its own prices it costs %s, charged was %s", exact.Nano(), r.Cost)
	}
}

func TestModels(t *testing.T) {
	s := newShop(t)
	ctx, who := s.as(s.owner), s.viewer(s.owner)
	_, err := s.prices.Create(t.Context(), s.root, price.Draft{Model: s.small.ID, EffectiveAt: now.AddDate(0, 0, 7), Prices: price.Every(perMillion(t, "0.40", "0.04", "0.9"))})
	s.must(err)
	_, err = s.prices.Create(t.Context(), s.root, price.Draft{Model: s.large.ID, Book: "bluefin", Prices: price.Every(perMillion(t, "1.5", "0.2", "6"))})
	s.must(err)
	book := "bluefin"
	_, err = s.tenants.UpdateOrg(t.Context(), s.root, s.bluefin.ID, tenants.OrgChange{PriceBook: &book})
	s.must(err)
	unpriced := s.modelWithoutPrice("demo/unpriced")
	list, err := s.site.Customer.Models(ctx, who)
	s.must(err)
	if len(list) != 2 || list[0].Name != "demo/large" || list[1].Name != "demo/small" {
		t.Fatalf("models %+v, want the two that have a price, not %s", list, unpriced)
	}
	small, large := list[1], list[0]
	if small.Prices != perMillion(t, "0.50", "0.05", "1") || !small.Since.Equal(begin) || small.Context != 100_000 || small.MaxOutput != 20_000 || !small.Simulated || !small.Available {
		t.Errorf("small %+v", small)
	}
	if small.Next == nil || small.Next.Prices != perMillion(t, "0.40", "0.04", "0.9") || !small.Next.Effective.Equal(now.AddDate(0, 0, 7)) {
		t.Errorf("small's next price %+v", small.Next)
	}
	if large.Prices != perMillion(t, "2", "0.2", "8") || large.Next != nil || large.Simulated || large.Available {
		t.Errorf("large %+v: its engine is starting, and Bluefin's book is not Acme's", large)
	}
	s.tell(wire.Load{Unit: s.real, Engine: s.real, State: wire.StateReady})
	theirs, err := s.site.Customer.Models(s.as(s.rival), s.viewer(s.rival))
	s.must(err)
	if theirs[0].Prices != perMillion(t, "1.5", "0.2", "6") || !theirs[0].Available || theirs[1].Prices != small.Prices {
		t.Errorf("Bluefin's models %+v, want large by its own book, and ready now", theirs)
	}
}

// monthIn is the running month of a zone.
func monthIn(z *time.Location) period.Span { return period.At(period.Month, z, now) }
