package domain_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/billing/price"
	"millrace/billing/reconcile"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
	"millrace/web/admin"
	pages "millrace/web/report"
	"millrace/web/ui"
)

const (
	day         = 24 * time.Hour
	quarterHour = 15 * time.Minute
)

func TestOverview(t *testing.T) {
	s := newShop(t)
	o, err := s.site.Business.Overview(s.as(s.staff))
	s.must(err)
	if o.Customers != 2 || o.Active != 2 || o.Requests != 5 || o.Errors != 1 || o.Month != acmeSpent+bluefins || o.LastMonth != 0 {
		t.Errorf("customers %d, active %d, requests %d, errors %d, month %s, last month %s", o.Customers, o.Active, o.Requests, o.Errors, o.Month, o.LastMonth)
	}
	if want := (usage.Vector{usage.Input: 1610, usage.Cached: 1800, usage.Output: 85, usage.Requests: 5}); o.Usage != want {
		t.Errorf("usage of the last 24 hours %v, want %v", o.Usage, want)
	}
	if len(o.Hours) != 24 || !o.Hours[23].Start.Equal(now.Truncate(time.Hour)) || o.Hours[23].Requests != 1 || o.Hours[22].Requests != 1 || o.Hours[21].Requests != 2 || o.Hours[18].Tokens != 1000 {
		t.Errorf("hours %+v", o.Hours)
	}
	if o.FirstTok != (ui.Quantiles{P50: 120 * ms, P95: 500 * ms}) {
		t.Errorf("first token %v", o.FirstTok)
	}
	if o.Units != 2 || o.Serving != 1 || o.Simulated != 1 || o.Hosts != 2 || o.Connected != 1 {
		t.Errorf("units %d, serving %d, simulated %d, hosts %d, connected %d", o.Units, o.Serving, o.Simulated, o.Hosts, o.Connected)
	}
	if !o.NoMail || o.Overruns != 0 || o.Aside != 0 || !o.Reconcile.At.IsZero() {
		t.Errorf("mail %v, overruns %d, aside %d, reconcile %+v", o.NoMail, o.Overruns, o.Aside, o.Reconcile)
	}
}

func TestUsageOfAllCustomers(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	q := pages.Query{From: now.Truncate(day).AddDate(0, 0, -29), To: now.Truncate(day).AddDate(0, 0, 1), Zone: time.UTC, Step: pages.StepDay, Group: pages.ByOrg}
	cells, err := s.site.Business.Usage(ctx, q)
	s.must(err)
	got := map[string]money.Nano{}
	for _, c := range cells {
		got[c.Label] += c.Cost
	}
	if got["Acme Robotics"] != acmeSpent || got["Bluefin"] != bluefins || len(got) != 2 || cells[0].Group != ids.Format(ids.Org, s.acme.ID) {
		t.Errorf("by customer %v", got)
	}
	q.Org, q.Group = s.acme.ID, pages.ByModel
	cells, err = s.site.Business.Usage(ctx, q)
	s.must(err)
	got = map[string]money.Nano{}
	for _, c := range cells {
		got[c.Group] += c.Cost
	}
	if got["demo/large"] != novemberBot || got["demo/small"] != acmeSpent-novemberBot {
		t.Errorf("Acme's by model %v", got)
	}
}

func TestCustomers(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	list, err := s.site.Business.Customers(ctx, "", "")
	s.must(err)
	if len(list.Rows) != 2 || list.Rows[0].Name != "Acme Robotics" || list.Rows[1].Name != "Bluefin" || list.Next != "" {
		t.Fatalf("customers %+v", list)
	}
	a := list.Rows[0]
	balance, err := s.desk.Balance(t.Context(), s.root, s.acme.ID)
	s.must(err)
	if a.Balance != balance.Available || a.Month != acmeSpent || a.Requests != 6 || !a.LastRequest.Equal(time.Date(2026, 11, 30, 20, 6, 0, 0, time.UTC)) || !a.Created.Equal(begin) {
		t.Errorf("Acme %+v, available %s", a, balance.Available)
	}
	for search, want := range map[string]string{"robot": "Acme Robotics", "BLUE": "Bluefin", "kim@acme": "Acme Robotics", s.theirs.Prefix: "Bluefin", s.ci.Prefix: "Acme Robotics",
		"mr_live_": "", "nobody": "", s.played.Prefix: ""} {
		list, err := s.site.Business.Customers(ctx, search, "")
		s.must(err)
		var names []string
		for _, c := range list.Rows {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("searching %q finds %q, want %q", search, got, want)
		}
	}
	for i := range 110 {
		_, err := s.tenants.CreateOrg(t.Context(), s.root, tenants.NewOrg{Name: fmt.Sprintf("many %03d", i%100)}) // some of one name
		s.must(err)
	}
	var names []string
	seen := map[ids.ID]bool{}
	for after, n := "", 0; ; n++ {
		page, err := s.site.Business.Customers(ctx, "", after)
		s.must(err)
		for _, c := range page.Rows {
			names = append(names, strings.ToLower(c.Name))
			seen[c.ID] = true
		}
		if after = page.Next; after == "" {
			if n != 2 {
				t.Errorf("%d pages, want 3", n+1)
			}
			break
		}
	}
	if len(names) != 112 || len(seen) != 112 || !slices.IsSorted(names) {
		t.Errorf("%d rows of %d customers, sorted %v; want 112", len(names), len(seen), slices.IsSorted(names))
	}
}

func TestCustomer(t *testing.T) {
	s := newShop(t)
	x, err := s.site.Business.Customer(s.as(s.staff), s.acme.ID)
	s.must(err)
	if x.Name != "Acme Robotics" || x.Balance+x.Held != usd(t, "20.007")-acmeSpent || x.Promo != usd(t, "0.007")-acmeSpent || x.Month != acmeSpent || x.Requests != 6 || x.Zone != zone || *x.Cap != usd(t, "1") {
		t.Errorf("customer %+v", x)
	}
	// Spending of keys is of the UTC month here.
	if len(x.Keys) != 2 || x.Keys[1].Name != "ci-nightly" || x.Keys[1].Used != novemberCI+lateCI+decemberCI || *x.Keys[1].Cap != usd(t, "0.5") || x.Keys[1].State != "active" ||
		x.Keys[0].Used != novemberBot+brokenBot || x.Keys[0].Project != "bots" || x.Keys[0].Shown != s.bot.Prefix+"…"+s.bot.Last4 {
		t.Errorf("keys %+v", x.Keys)
	}
	if len(x.Members) != 2 || x.Members[0].Email != "dana@acme.example" || !x.Members[0].LastSeen.Equal(now) {
		t.Errorf("members %+v", x.Members)
	}
	want := []admin.GrantLine{
		{Amount: usd(t, "0.007"), Left: usd(t, "0.007") - acmeSpent, Promo: true, Reason: "Welcome", By: "Millrace"},
		{Amount: usd(t, "20"), Left: usd(t, "20"), Reason: "Invoice 7", By: "Millrace"},
	}
	for i := range x.Grants {
		x.Grants[i].At = time.Time{}
	}
	if !slices.Equal(x.Grants, want) {
		t.Errorf("grants %+v, want %+v", x.Grants, want)
	}
}

func TestModelsAndPrices(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	s.modelWithoutPrice("demo/unpriced")
	who := s.viewer(s.staff)
	s.must(s.site.Operate.PublishPrice(ctx, who, admin.NewPrice{Model: s.small.ID, Prices: perMillion(t, "0.40", "0.04", "0.9"), Effective: now.AddDate(0, 0, 7), Note: "cheaper"}))
	_, err := s.prices.Create(t.Context(), s.root, price.Draft{Model: s.small.ID, Book: "bluefin", Prices: price.Every(perMillion(t, "0.3", "0.03", "0.7"))})
	s.must(err)
	list, err := s.site.Business.Models(ctx)
	s.must(err)
	if len(list) != 3 || list[0].Name != "demo/large" || list[1].Name != "demo/small" || list[2].Priced {
		t.Fatalf("models %+v", list)
	}
	if m := list[1]; m.Units != 1 || !m.Simulated || !m.Priced || m.Prices != perMillion(t, "0.50", "0.05", "1") || !m.Since.Equal(begin) || !m.Next.Equal(now.AddDate(0, 0, 7)) {
		t.Errorf("small %+v", m)
	}
	if m := list[0]; m.Simulated || !m.Next.IsZero() {
		t.Errorf("large %+v", m)
	}
	d, err := s.site.Business.Model(ctx, s.small.ID)
	s.must(err)
	if len(d.Versions) != 2 || d.Versions[0].Note != "cheaper" || d.Versions[0].By != "ops@millrace.example" || !d.Versions[0].Published.Equal(now) || d.Versions[1].By != "Millrace" ||
		!d.Versions[1].Effective.Equal(begin) {
		t.Errorf("versions %+v, want the standard ones, newest first", d.Versions)
	}
	if _, err := s.site.Business.Model(ctx, ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown model: %v", err)
	}
}

func TestFleet(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	hosts, err := s.site.Business.Hosts(ctx)
	s.must(err)
	if len(hosts) != 2 || hosts[0].Name != "spare-1" || hosts[1].Name != "gpu-1" {
		t.Fatalf("hosts %+v", hosts)
	}
	g := hosts[1]
	if g.State != admin.HostConnected || g.Group != "rack-a" || g.Agent != "1.2.3" || g.Address != "https://10.0.0.1:9000" || g.CPU != "96 CPUs" || !g.Simulated || g.Memory != 256<<30 ||
		!slices.Equal(g.Units, []string{"small/gpu-1"}) || g.Note != "" || now.Sub(g.LastSeen).Abs() > time.Minute {
		t.Errorf("gpu-1 %+v", g)
	}
	if want := []admin.GPU{{Index: 0, Name: "NVIDIA H200", State: ui.GPUUnit, Unit: "small/gpu-1"}, {Index: 1, Name: "NVIDIA H200", State: ui.GPUFree}}; !slices.Equal(g.GPUs, want) {
		t.Errorf("its accelerators %+v", g.GPUs)
	}
	if x := hosts[0]; x.State != admin.HostLost || x.Group != "own · local" || x.Note == "" || !x.LastSeen.IsZero() {
		t.Errorf("spare-1, which never came: %+v", x)
	}
	one, err := s.site.Business.Host(ctx, s.host)
	if err != nil || one.Name != "gpu-1" {
		t.Errorf("one host %+v, error %v", one, err)
	}
	s.exec("UPDATE hosts SET seen_at = now() - interval '1 minute' WHERE name = 'gpu-1'")
	if one, err = s.site.Business.Host(ctx, s.host); err != nil || one.State != admin.HostLost {
		t.Errorf("a host that has been silent for a minute is %s, error %v", one.State, err)
	}
	if _, err := s.site.Business.Host(ctx, ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown host: %v", err)
	}

	units, err := s.site.Business.Units(ctx)
	s.must(err)
	if len(units) != 2 || units[0].Name != "large/1" || units[1].Name != "small/gpu-1" {
		t.Fatalf("units %+v", units)
	}
	u := units[1]
	if u.State != admin.UnitServing || !u.Simulated || u.Model != "demo/small" || u.Release != "release 1" || !slices.Equal(u.Hosts, []string{"gpu-1"}) || u.Running != 3 || u.Waiting != 1 ||
		u.KVUsed != 250 || u.Note != "" || u.Since.UnixMilli() != 1793000000000 {
		t.Errorf("small's unit %+v", u)
	}
	if u.Requests != 1 || u.Errors != 0 || u.Prompt != 10 || u.Cached != 0 || u.FirstTok != (ui.Quantiles{P50: 40 * ms, P95: 40 * ms}) {
		t.Errorf("its last five minutes %+v", u)
	}
	if a := units[0]; a.State != admin.UnitStarting || a.Simulated || a.Attached != "http://127.0.0.1:1" || a.Engine != "vLLM" || a.Requests != 0 {
		t.Errorf("the attached one %+v", a)
	}
	for state, want := range map[string]admin.UnitState{wire.StateDraining: admin.UnitDraining, wire.StateFaulted: admin.UnitFailed, wire.StateUnknown: admin.UnitFailed, wire.StateStopped: admin.UnitStopped} {
		s.tell(wire.Load{Unit: s.sim, Engine: s.sim, State: state})
		if x, err := s.site.Business.Unit(ctx, s.sim); err != nil || x.State != want {
			t.Errorf("told %s, it is %s, error %v; want %s", state, x.State, err, want)
		}
	}
	if _, err := s.site.Business.Unit(ctx, ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown unit: %v", err)
	}
}

func TestRevenue(t *testing.T) {
	s := newShop(t)
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	rows, err := s.site.Business.Revenue(s.as(s.staff), pages.Span{From: november, To: november.AddDate(0, 1, 0), Step: pages.StepDay})
	s.must(err)
	type row struct {
		org, model string
		requests   int64
		revenue    money.Nano
	}
	var got []row
	for _, r := range rows {
		got = append(got, row{r.OrgName, r.Model, r.Requests, r.Revenue})
	}
	want := []row{{"Acme Robotics", "demo/large", 1, novemberBot}, {"Acme Robotics", "demo/small", 5, acmeSpent - novemberBot}, {"Bluefin", "demo/small", 1, bluefins}}
	if !slices.Equal(got, want) {
		t.Errorf("revenue %v, want %v", got, want)
	}
	if rows[0].Org != s.acme.ID || rows[0].Usage != (usage.Vector{usage.Input: 2000, usage.Output: 200, usage.Requests: 1}) {
		t.Errorf("the first row %+v", rows[0])
	}
}

// hurried is a clock that waits for nothing: it jumps a minute whenever it is looked at.
type hurried struct{ at time.Time }

func (h *hurried) Now() time.Time {
	h.at = h.at.Add(time.Minute)
	return h.at
}

func TestReconcile(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	if r, err := s.site.Business.Reconcile(ctx); err != nil || !r.At.IsZero() || len(r.Lines) != 0 {
		t.Errorf("before the first run: %+v, error %v", r, err)
	}
	ran, err := reconcile.Run(t.Context(), reconcile.Config{DB: s.db, Clock: &hurried{at: now}})
	s.must(err)
	r, err := s.site.Business.Reconcile(ctx)
	s.must(err)
	if !r.At.Equal(ran.At) || !r.Watermark.Equal(ran.Watermark) || r.Difference != ran.UnexplainedNano || r.OK() == ran.Unexplained || len(r.Lines) != len(ran.Lines) {
		t.Errorf("shown %+v of %d lines, ran %+v", r.Reconciled, len(r.Lines), ran)
	}
	i := slices.IndexFunc(r.Lines, func(l admin.ReconcileLine) bool {
		return l.Class == "rollups: charged" || strings.HasPrefix(l.Class, "rollups: charged")
	})
	if i < 0 || r.Lines[i].Amount != acmeSpent+bluefins || r.Lines[i].Note != "" {
		t.Errorf("the rollups' line: %d in %+v", i, r.Lines)
	}
	o, err := s.site.Business.Overview(ctx)
	if err != nil || !o.Reconcile.At.Equal(ran.At) {
		t.Errorf("the overview's %+v, error %v", o.Reconcile, err)
	}

	// What is counted in rows is no agreement either, and says what should be.
	text, err := json.Marshal(reconcile.Report{At: now.Add(day), Watermark: now, Unexplained: true,
		Lines: []reconcile.Line{{Side: reconcile.Ledger, Name: "transactions that do not balance", Unit: reconcile.Count, Right: 2, Difference: 2}}})
	s.must(err)
	s.exec("INSERT INTO reconcile_runs (id, at, watermark, unexplained, report) VALUES ($1, $2, $3, true, $4)", ids.New(), now.Add(day), now, text)
	r, err = s.site.Business.Reconcile(ctx)
	if err != nil || r.OK() || r.Lines[0].Count != 2 || !strings.HasPrefix(r.Lines[0].Note, "UNEXPLAINED: should be 0") {
		t.Errorf("unbalanced transactions: %+v, error %v", r, err)
	}
}

func TestExceptions(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	e, err := json.Marshal(usage.Event{ID: ids.New(), Org: s.acme.ID, Model: s.small.ID})
	s.must(err)
	for i := range 70 {
		s.exec("INSERT INTO quarantine (id, org_id, shard, incarnation, seq, position, reason, payload) VALUES ($1, $2, 0, 'x', $3, 0, 'impossible', $4)", ids.New(), s.acme.ID, i, e)
	}
	s.exec("SELECT ensure_day($1)", now)
	over := s.calls[6]
	for i := range 60 {
		id := idAt(now.Add(-time.Duration(i) * time.Minute))
		s.exec(`INSERT INTO usage_events SELECT org_id, $2, $1, project_id, key_id, model_id, price_version_id, epoch_id, txn_id, input_tokens, cached_tokens, cache_write_tokens,
			output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, 0, 10, 0, 'gateway_died', status, estimated, repriced, streamed, dialect, attempts, raw, started_at, first_token_at, ended_at
			FROM usage_events WHERE id = $3`, id, ids.Day(id), over)
	}
	var aside, overruns, read int
	for after := ""; ; {
		list, err := s.site.Business.Exceptions(ctx, after)
		s.must(err)
		aside, overruns, read = aside+len(list.Quarantine), overruns+len(list.Overruns), read+1
		if read == 1 {
			q, o := list.Quarantine[0], list.Overruns[0]
			if q.OrgName != "Acme Robotics" || q.Model != "demo/small" || q.Reason != "impossible" || o.OrgName != "Acme Robotics" || o.Amount != 10 || o.Reason != "its gateway died while it ran" {
				t.Errorf("first ones %+v and %+v", q, o)
			}
		}
		if after = list.Next; after == "" {
			break
		}
	}
	if aside != 70 || overruns != 60 || read != 2 {
		t.Errorf("%d put aside, %d overruns on %d pages; want 70 and 60 on 2", aside, overruns, read)
	}
	o, err := s.site.Business.Overview(ctx)
	if err != nil || o.Aside != 70 || o.Overruns != 60 || o.Overrun != 600 {
		t.Errorf("the overview counts %d, %d, %s; error %v", o.Aside, o.Overruns, o.Overrun, err)
	}
}

func TestAuditOfAll(t *testing.T) {
	s := newShop(t)
	ctx := s.as(s.staff)
	var all []ui.AuditEntry
	for after := ""; ; {
		page, err := s.site.Business.Audit(ctx, after)
		s.must(err)
		all = append(all, page.Entries...)
		if after = page.Next; after == "" {
			break
		}
	}
	said := map[string]string{}
	for _, e := range all {
		said[e.Org+"|"+e.Action+"|"+e.Target] = e.Change
	}
	for key, want := range map[string]string{
		"Acme Robotics|member.add|kim@acme.example": "email kim@acme.example, role viewer",
		"Bluefin|org.create|Bluefin":                "failure policy delivered, name Bluefin, price book standard, time zone UTC",
		"|price.create|price of demo/large":         "input $2.00, cached $0.20, output $8.00 per 1M, from 5 Nov 2026 03:00 UTC",
		"|unit.attach|unit large/1":                 "engine vllm, name large/1, publicmodel demo/large, upstreammodel demo/large, url http://127.0.0.1:1",
		"|session.start|dana@acme.example":          "",
		"Acme Robotics|credit.grant|credit":         "$20.00 paid: Invoice 7",
		"Acme Robotics|cap.set|key ci-nightly":      "cap per month $0.5000",
		"|user.set_operator|ops@millrace.example":   "operator yes",
	} {
		if got, ok := said[key]; !ok || got != want {
			t.Errorf("%s: %q, want %q (found: %v)", key, got, want, ok)
		}
	}
	var n int
	for range all {
		n++
	}
	if n < 20 {
		t.Errorf("%d entries in all", n)
	}
}
