package domain_test

import (
	"testing"
	"time"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/billing/credit"
	"millrace/billing/period"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/tenants"
	"millrace/tenants/keys"
)

// shop is a world in which something was sold: two customers, two models, a simulated and a real engine.
type shop struct {
	*world
	acme, bluefin  tenants.Org
	project, bots  tenants.Project // Acme's
	ci, bot        keys.Key        // of the two projects
	played         keys.Key        // the playground's
	theirs         keys.Key        // Bluefin's
	small, large   *catalogue.Model
	sim, real      ids.ID // units of small and large
	host           ids.ID // of sim
	owner, viewing string // cookies of Acme's people
	rival          string // Bluefin's owner
	staff          string // an operator
	calls          []ids.ID
}

const zone = "Asia/Kolkata"

// What Acme bought, in nano-USD, by hand: small costs $0.50, $0.05 cached and $1.00 per million, large $2, $0.2 and $8.
const (
	novemberCI  = 500_000 + 100_000         // 1,000 in at 500 and 100 out at 1,000 nano
	novemberBot = 4_000_000 + 1_600_000     // 2,000 in at 2,000 and 200 out at 8,000 nano, of large
	lateCI      = 50_000 + 10_000           // 100 in and 10 out, at 23:30 on 30 November in India
	decemberCI  = 100_000 + 90_000 + 50_000 // 200 in, 1,800 cached at 50 and 50 out
	savedCI     = 1_800 * (500 - 50)
	brokenBot   = 150_000 + 5_000 // 300 in and 5 out, then the engine broke off
	playedOnce  = 5_000 + 20_000  // 10 in and 20 out
	bluefins    = 500_000         // 1,000 in
)

func newShop(t testing.TB) *shop {
	t.Helper()
	s := &shop{world: newWorld(t)}
	ctx := t.Context()
	var err error
	s.acme, err = s.tenants.CreateOrg(ctx, s.root, tenants.NewOrg{Name: "Acme Robotics", TimeZone: zone, Owner: "dana@acme.example"})
	s.must(err)
	s.bluefin, err = s.tenants.CreateOrg(ctx, s.root, tenants.NewOrg{Name: "Bluefin", Owner: "bo@bluefin.example"})
	s.must(err)
	_, err = s.tenants.AddMember(ctx, s.root, s.acme.ID, "kim@acme.example", tenants.Viewer)
	s.must(err)
	_, err = s.tenants.EnsureOperator(ctx, s.root, "ops@millrace.example")
	s.must(err)
	projects, err := s.tenants.Projects(ctx, s.root, s.acme.ID)
	s.must(err)
	s.project = projects[0]
	s.bots, err = s.tenants.CreateProject(ctx, s.root, s.acme.ID, "bots")
	s.must(err)
	s.small, s.large = s.model("demo/small", "0.50", "0.05", "1"), s.model("demo/large", "2", "0.2", "8")
	s.engines()
	s.credit()
	s.keysOfAll()
	s.sell()
	s.clock.Advance(now.Sub(s.clock.Now()))
	s.owner, s.viewing = s.signIn("dana@acme.example"), s.signIn("kim@acme.example")
	s.rival, s.staff = s.signIn("bo@bluefin.example"), s.signIn("ops@millrace.example")
	s.tell(wire.Load{Unit: s.sim, Engine: s.sim, State: wire.StateReady, Running: 3, Waiting: 1, KVUsage: 0.25})
	s.tell(wire.Load{Unit: s.real, Engine: s.real, State: wire.StateStarting})
	return s
}

func (s *shop) engines() {
	s.t.Helper()
	var err error
	s.sim, err = s.hub.PlaceSimple(s.t.Context(), hub.Placement{Host: "gpu-1", Name: "small/gpu-1", Model: s.small.ID, Engine: engine.Sim, Upstream: "small", Spec: engine.Spec{Executable: "millrace"}}, s.root)
	s.must(err)
	s.real = s.attach("large/1", s.large, engine.VLLM)
	s.exec(`UPDATE hosts SET seen_at = now(), agent_version = '1.2.3', data_url = 'https://10.0.0.1:9000', domain = 'rack-a', observed = $1 WHERE name = 'gpu-1'`,
		`{"agent_version": "1.2.3", "cpus": 96, "memory_bytes": 274877906944, "simulated": true, "gpus": [{"index": 0, "model": "NVIDIA H200"}, {"index": 1, "model": "NVIDIA H200"}],
		"units": [{"unit": "`+s.sim.String()+`", "state": "ready", "message": "", "started_ms": 1793000000000}]}`)
	s.exec(`INSERT INTO hosts (id, name) VALUES ($1, 'spare-1')`, ids.New())
	s.must(s.models.Load(s.t.Context()))
	hosts, err := s.hub.Hosts(s.t.Context(), s.root)
	s.must(err)
	s.host = hosts[0].ID
}

// credit gives Acme $20 paid and $0.001 promotional, and Bluefin $5.
func (s *shop) credit() {
	s.t.Helper()
	give := func(org tenants.Org, kind credit.GrantKind, amount, reason string) {
		_, _, err := s.desk.Grant(s.t.Context(), s.root, credit.GrantInput{Org: org.ID, Kind: kind, Amount: usd(s.t, amount), Reason: reason, IdempotencyKey: reason})
		s.must(err)
		s.clock.Advance(time.Minute)
	}
	give(s.acme, credit.Paid, "20", "Invoice 7")
	give(s.acme, credit.Promotional, "0.007", "Welcome")
	give(s.bluefin, credit.Paid, "5", "Invoice 8")
}

func (s *shop) keysOfAll() {
	s.t.Helper()
	make1 := func(org tenants.Org, project ids.ID, name string, by tenants.Actor) keys.Key {
		k, _, err := s.keys.Create(s.t.Context(), by, keys.NewKey{Org: org.ID, Project: project, Name: name})
		s.must(err)
		return k
	}
	dana, err := s.tenants.Members(s.t.Context(), s.root, s.acme.ID)
	s.must(err)
	s.ci = make1(s.acme, s.project.ID, "ci-nightly", tenants.Actor{User: dana[0].User, Org: s.acme.ID, Role: tenants.Owner})
	s.bot = make1(s.acme, s.bots.ID, "support-bot", s.root)
	theirs, err := s.tenants.Projects(s.t.Context(), s.root, s.bluefin.ID)
	s.must(err)
	s.theirs = make1(s.bluefin, theirs[0].ID, "theirs", s.root)
	s.played, _, err = s.keys.CreatePlayground(s.t.Context(), s.root, s.acme.ID, s.project.ID)
	s.must(err)
	for _, c := range []struct {
		scope credit.Scope
		id    ids.ID
		usd   string
	}{{credit.OrgScope, s.acme.ID, "1"}, {credit.KeyScope, s.ci.ID, "0.5"}} {
		_, err := s.desk.SetCap(s.t.Context(), s.root, s.acme.ID, credit.Cap{Scope: c.scope, ScopeID: c.id, Period: period.Month, Amount: usd(s.t, c.usd)})
		s.must(err)
	}
}

// sell plays seven requests, from 10 November to ten minutes ago.
func (s *shop) sell() {
	s.t.Helper()
	v := func(input, cached, output int64) usage.Vector {
		return usage.Vector{usage.Input: input, usage.Cached: cached, usage.Output: output}
	}
	at := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 0, 0, time.UTC) }
	const ms = time.Millisecond
	s.calls = s.serve(
		request{at: at(10, 10, 0), who: s.ci, zone: zone, model: s.small, usage: v(1000, 0, 100), first: 100 * ms, took: 2 * time.Second, unit: s.sim},
		request{at: at(28, 12, 0), who: s.bot, zone: zone, model: s.large, usage: v(2000, 0, 200), took: 3 * time.Second, unit: s.real},
		request{at: at(30, 15, 0), who: s.theirs, zone: "UTC", model: s.small, usage: v(1000, 0, 0), first: 500 * ms, took: time.Second, unit: s.sim},
		request{at: at(30, 18, 0), who: s.ci, zone: zone, model: s.small, usage: v(100, 0, 10), first: 120 * ms, took: time.Second, unit: s.sim},
		request{at: at(30, 18, 45), who: s.ci, zone: zone, model: s.small, usage: v(200, 1800, 50), first: 80 * ms, took: time.Second, unit: s.sim, refused: s.real},
		request{at: at(30, 19, 50), who: s.bot, zone: zone, model: s.small, usage: v(300, 0, 5), first: 300 * ms, took: time.Second, ending: usage.EngineFailed, unit: s.sim},
		request{at: at(30, 20, 6), who: s.played, zone: zone, model: s.small, usage: v(10, 0, 20), first: 40 * ms, took: time.Second, unit: s.sim},
	)
}
