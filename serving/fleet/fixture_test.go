package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/wire"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/fleet"
	"millrace/serving/plan"
	"millrace/serving/recipe"
	"millrace/serving/recipe/store"
	"millrace/tenants"
)

var operator = tenants.System()

// quick are limits under which a test moves time by the rows' stamps alone: nothing is due by itself but drains.
var quick = fleet.Limits{Progress: time.Hour, Drain: time.Hour, Fault: time.Hour, Tries: 3, Lost: time.Hour, Repair: time.Hour}

// bed is a fleet with fake agents: hosts that report what they were told to run.
type bed struct {
	tester
	db     *db.DB
	svc    *fleet.Service
	hosts  []*agent
	models map[string]ids.ID
	count  int // notices to gateways
	idle   bool
}

func (b *bed) Publish(string, []byte) error { b.count++; return nil }

// Running implements fleet.Loads.
func (b *bed) Running(ids.ID) (int, bool) { return 0, b.idle }

// agent is a fake host: it applies what it reads at once.
type agent struct {
	id      ids.ID
	name    string
	gpus    int
	domain  string
	address string         // in the fabric
	dead    bool           // reports nothing
	slow    bool           // its engines never become ready
	broken  map[int]string // GPU faults
	fail    map[string]string
	runs    map[ids.ID]*engineRun // what really runs there, whoever knows of it
}

// engineRun is a fake engine.
type engineRun struct {
	gpus     []int
	stopping bool // it is gone at the next report
}

// tester is what a fleet needs of a test: *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

func newBed(t testing.TB) *bed { return bedOn(t, dbtest.New(t)) }

func bedOn(t tester, d *db.DB) *bed {
	b := &bed{tester: t, db: d, svc: fleet.New(d, clock.System), models: map[string]ids.ID{}, idle: true}
	b.svc.Within(quick)
	return b
}

func (b *bed) tx(fn func(query *q.Queries, tx pgx.Tx) error) {
	b.Helper()
	if err := b.db.InTx(b.Context(), db.System(), func(tx pgx.Tx) error { return fn(q.New(tx), tx) }); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) exec(sql string, args ...any) {
	b.Helper()
	b.tx(func(_ *q.Queries, tx pgx.Tx) error { _, err := tx.Exec(b.Context(), sql, args...); return err })
}

func (b *bed) model(name string) ids.ID {
	b.Helper()
	id := ids.New()
	b.tx(func(query *q.Queries, _ pgx.Tx) error {
		_, err := query.InsertModel(b.Context(), q.InsertModelParams{ID: id, Name: name, DisplayName: name, ContextTokens: 1000, MaxOutputTokens: 100, DefaultOutput: 10, CreatedAt: time.Now()})
		return err
	})
	b.models[name] = id
	return id
}

// recipe stores one and gives its id.
func (b *bed) recipe(text string) ids.ID {
	b.Helper()
	id, _, err := (&store.Recipes{DB: b.db, Clock: clock.System}).Add(b.Context(), []byte(text), operator)
	if err != nil {
		b.Fatal(err)
	}
	return id
}

func (b *bed) host(name string, gpus int) *agent {
	b.Helper()
	n := len(b.hosts)
	a := &agent{id: ids.New(), address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), name: name, gpus: gpus, broken: map[int]string{}, fail: map[string]string{}, runs: map[ids.ID]*engineRun{}}
	b.tx(func(query *q.Queries, _ pgx.Tx) error {
		_, err := query.EnsureHost(b.Context(), q.EnsureHostParams{ID: a.id, Name: name})
		return err
	})
	b.hosts = append(b.hosts, a)
	b.report(a)
	return a
}

// report is one sync of an agent: it takes what is desired and tells what it runs.
func (b *bed) report(a *agent) {
	b.Helper()
	if a.dead {
		return
	}
	b.tx(func(query *q.Queries, _ pgx.Tx) error {
		h, err := query.GetHost(b.Context(), a.id)
		if err != nil || h.Removed {
			return err
		}
		units, err := query.HostUnits(b.Context(), a.id)
		if err != nil {
			return err
		}
		o := wire.Observed{DataURL: wire.DataByLink}
		o.NICs = []wire.NIC{{Name: "eth0", Gbps: 400, Up: true, Address: a.address}}
		for i := range a.gpus {
			o.GPUs = append(o.GPUs, wire.GPU{Index: i, Model: "B200", Arch: "sm100", MemoryBytes: 180 << 30, Domain: a.domain, Fault: a.broken[i]})
		}
		for _, u := range units {
			o.Units = append(o.Units, b.obey(a, u))
		}
		o.Units = append(o.Units, a.strangers(units)...)
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		_, err = query.ObserveHost(b.Context(), q.ObserveHostParams{ID: a.id, Observed: text, ObservedGeneration: h.Generation, AgentVersion: "test", DataUrl: o.DataURL})
		return err
	})
}

// obey starts and stops as is desired: what is to start, at once, even beside what still stops. Two engines on one GPU are the
// fleet's mistake.
func (b *bed) obey(a *agent, u q.HostUnitsRow) wire.UnitObserved {
	b.Helper()
	o := wire.UnitObserved{Unit: u.ID, Generation: u.Generation, State: wire.StateReady}
	run := a.runs[u.ID]
	switch {
	case u.Wanted == "stopped" && run == nil, run != nil && run.stopping:
		delete(a.runs, u.ID)
		o.State = wire.StateStopped
		return o
	case u.Wanted == "stopped":
		run.stopping = true
		o.State = wire.StateDraining
		return o
	case run == nil:
		var spec engine.Spec
		if err := json.Unmarshal(u.Spec, &spec); err != nil {
			b.Fatal(err)
		}
		for id, other := range a.runs {
			for _, gpu := range spec.Devices {
				if contains(other.gpus, gpu) {
					b.Fatalf("GPU %d of host %s is given to %s while %s runs there", gpu, a.name, u.ID, id)
				}
			}
		}
		a.runs[u.ID] = &engineRun{gpus: spec.Devices}
	}
	switch {
	case a.fail[u.Engine] != "":
		o.State, o.Message = wire.StateFaulted, a.fail[u.Engine]
	case a.slow:
		o.State = wire.StateStarting
	case u.Wanted == "draining":
		o.State = wire.StateDraining
	}
	return o
}

// strangers are engines that are no longer desired: they stop.
func (a *agent) strangers(units []q.HostUnitsRow) (out []wire.UnitObserved) {
	wanted := map[ids.ID]bool{}
	for _, u := range units {
		wanted[u.ID] = true
	}
	for id, run := range a.runs {
		switch {
		case wanted[id]:
		case run.stopping:
			delete(a.runs, id)
		default:
			run.stopping = true
			out = append(out, wire.UnitObserved{Unit: id, State: wire.StateDraining})
		}
	}
	return out
}

// lose makes a host not heard of.
func (b *bed) lose(a *agent) {
	a.dead = true
	b.exec(`UPDATE hosts SET seen_at = now() - interval '1 day' WHERE id = $1`, a.id)
}

func (b *bed) executor() *fleet.Executor { return b.executorWith(quick) }

func (b *bed) executorWith(l fleet.Limits) *fleet.Executor {
	return fleet.NewExecutor(fleet.ExecutorConfig{DB: b.db, Bus: b, Loads: b, Limits: l})
}

// settle lets agents report and the executor act until nothing moves any more.
func (b *bed) settle(e *fleet.Executor) {
	b.Helper()
	quiet := 0
	for range 150 {
		for _, a := range b.hosts {
			b.report(a)
		}
		n, err := e.Pass(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if quiet++; n > 0 {
			quiet = 0
		}
		if quiet == 3 { // what stops takes two reports
			return
		}
	}
	b.Fatal("the fleet does not come to rest")
}

// states gives the placed units that are not gone, as name=state.
func (b *bed) states() string {
	b.Helper()
	o, err := b.svc.Overview(b.Context(), operator)
	if err != nil {
		b.Fatal(err)
	}
	text := ""
	for _, u := range o.Units {
		text += plain(u.Name) + "=" + u.State + " "
	}
	return text
}

// plain is a unit's name without the end of its id.
func plain(name string) string {
	if i := strings.LastIndexByte(name, '-'); i > 0 {
		return name[:i]
	}
	return name
}

func (b *bed) unit(name string) fleet.UnitView {
	b.Helper()
	o, err := b.svc.Overview(b.Context(), operator)
	if err != nil {
		b.Fatal(err)
	}
	for _, u := range o.Units {
		if plain(u.Name) == name {
			return u
		}
	}
	b.Fatalf("there is no unit %q, but %s", name, b.states())
	return fleet.UnitView{}
}

// demand makes a model want units of a recipe, and gives the wish's release.
func (b *bed) demand(model string, recipe ids.ID, units int) ids.ID {
	b.Helper()
	if _, err := b.svc.SetDemand(b.Context(), operator, fleet.DemandInput{Model: b.models[model], Recipe: recipe, Units: units, Spread: true}); err != nil {
		b.Fatal(err)
	}
	var release ids.ID
	b.tx(func(query *q.Queries, _ pgx.Tx) (err error) {
		release, err = query.ReleaseOf(b.Context(), q.ReleaseOfParams{ModelID: b.models[model], RecipeID: recipe})
		return err
	})
	return release
}

func (b *bed) commit(units ...plan.Unit) {
	b.Helper()
	if err := b.svc.CommitBody(b.Context(), plan.Plan{Units: units}); err != nil {
		b.Fatal(err)
	}
}

// whole is a planned unit of one engine.
func (b *bed) whole(name, model string, release ids.ID, at *agent, gpus ...int) plan.Unit {
	return plan.Unit{ID: ids.New(), Name: name, Model: b.models[model], Release: release, Why: "room",
		Pools: []plan.Pool{{Role: recipe.Whole, Replicas: []plan.Replica{on(at, gpus...)}}}}
}

func on(at *agent, gpus ...int) plan.Replica {
	return plan.Replica{Domain: at.id.String(), Shards: []plan.Shard{{Host: at.id, GPUs: gpus}}}
}

// pair is a planned unit of one prefill and so many decode engines.
func (b *bed) pair(name, model string, release ids.ID, prefill plan.Replica, decode ...plan.Replica) plan.Unit {
	return plan.Unit{ID: ids.New(), Name: name, Model: b.models[model], Release: release, Why: "room", Pools: []plan.Pool{
		{Role: recipe.Prefill, Replicas: []plan.Replica{prefill}}, {Role: recipe.Decode, Replicas: decode}}}
}

const simWhole = `
name: sim-whole
engine: sim
version: "1"
model: {name: m, context: 4096}
pools: [{role: whole, replicas: 1, gpus: 2}]
`

const simOther = `
name: sim-other
engine: sim
version: "2"
model: {name: m, context: 4096}
pools: [{role: whole, replicas: 1, gpus: 2}]
`

const simPair = `
name: sim-pair
engine: sim
version: "1"
model: {name: m, context: 4096}
pools:
  - {role: prefill, replicas: 1, gpus: 2}
  - {role: decode, replicas: 2, gpus: 4, parallel: {data: 4, expert: 4}, expert_to: [2]}
transfer: {backend: nixl, mode: pull}
`
