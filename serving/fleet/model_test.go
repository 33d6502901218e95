package fleet_test

import (
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/db/dbtest"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/recipe"
)

// sequences is how many random histories of a fleet are lived through; -rapid.checks asks for more.
const sequences = 12

// Whatever happens to hosts, GPUs, demands and control planes, in whatever order: no GPU is given to two engines (the fake agents
// look), the last serving unit of a model is not stopped for a switch, and once nothing more happens, what runs is what is planned.
func TestAFleetComesToItsPlanWhateverHappens(t *testing.T) {
	slog.SetLogLoggerLevel(slog.LevelError)
	defer slog.SetLogLoggerLevel(slog.LevelInfo)
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(fmt.Sprint(sequences)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Value.Set(f.DefValue) }()
	}
	rapid.Check(t, func(r *rapid.T) {
		m := &history{bed: bedOn(r, dbtest.New(t)), r: r}
		m.begin()
		for range rapid.IntRange(5, 40).Draw(r, "events") {
			m.event()
		}
		m.end()
	})
}

type history struct {
	*bed
	r       *rapid.T
	e       *fleet.Executor
	recipes map[string]ids.ID
	drained map[*agent]bool
	seen    string
	born    int // hosts that came later
}

func (m *history) begin() {
	m.model("a")
	m.model("b")
	m.recipes = map[string]ids.ID{"whole": m.recipe(simWhole), "other": m.recipe(simOther), "pair": m.recipe(simPair)}
	for i := range 6 {
		m.host(fmt.Sprintf("h%d", i), 5)
	}
	m.drained = map[*agent]bool{}
	m.e = m.executor()
	m.want("a", "whole", 2)
	m.want("b", "pair", 1)
	m.draft()
}

func (m *history) want(model, recipe string, units int) {
	m.demand(model, m.recipes[recipe], units)
}

// draft plans for the demands as they are now. That a fleet in motion refuses a plan is no mistake.
func (m *history) draft() {
	m.Helper()
	id, err := m.svc.Draft(m.Context(), operator, "")
	if err == nil {
		err = m.svc.Commit(m.Context(), operator, id)
	}
	if err != nil && !fault.Is(err, fault.Conflict) {
		m.Fatal(err)
	}
}

func (m *history) pick() *agent {
	return m.hosts[rapid.IntRange(0, len(m.hosts)-1).Draw(m.r, "host")]
}

// event is one thing that happens.
func (m *history) event() {
	switch rapid.IntRange(0, 14).Draw(m.r, "event") {
	case 0: // a host is lost, with what runs there: never so many that the fleet freezes
		dead := 0
		for _, a := range m.hosts {
			if a.dead {
				dead++
			}
		}
		if a := m.pick(); !a.dead && dead < 2 {
			m.lose(a)
		}
	case 1: // or comes back
		m.pick().dead = false
	case 2:
		m.pick().broken[rapid.IntRange(0, 4).Draw(m.r, "gpu")] = "Xid 79"
	case 3:
		clear(m.pick().broken)
	case 4:
		m.want("a", rapid.SampledFrom([]string{"whole", "other"}).Draw(m.r, "recipe"), rapid.IntRange(0, 3).Draw(m.r, "units"))
		m.draft()
	case 5:
		m.want("b", "pair", rapid.IntRange(0, 2).Draw(m.r, "units"))
		m.draft()
	case 6:
		m.drain(m.pick())
	case 7: // the control plane is killed; another one starts when its lease has run out
		m.exec(`UPDATE control_leases SET expires_at = now()`)
		m.e = m.executor()
	case 8: // or is paused, and wakes when another one has the lease
		late, other := m.e, m.executor()
		if _, err := late.PassAsBefore(m.Context(), func() {
			m.exec(`UPDATE control_leases SET expires_at = now()`)
			if mine, err := other.Renew(m.Context()); !mine || err != nil {
				m.Fatal(mine, err)
			}
			m.before()
		}); err == nil && m.moved() {
			m.Fatal("a holder without the lease changed something")
		}
		m.e = other
	case 9:
		m.exchange(rapid.IntRange(0, len(m.hosts)-1).Draw(m.r, "host"))
	default:
		m.pass()
	}
}

// exchange takes a host out of the fleet for good, with what runs there, and puts another one in its place.
func (m *history) exchange(i int) {
	old := m.hosts[i]
	m.tx(func(query *q.Queries, _ pgx.Tx) error {
		if _, err := query.RemoveHost(m.Context(), old.id); err != nil {
			return err
		}
		return query.RemoveHostUnits(m.Context(), old.id)
	})
	m.hosts = slices.Delete(m.hosts, i, i+1)
	m.born++
	m.host(fmt.Sprintf("n%d", m.born), 5)
}

func (m *history) drain(a *agent) {
	var err error
	if m.drained[a] = !m.drained[a]; m.drained[a] {
		err = m.svc.Drain(m.Context(), operator, a.id, "")
	} else {
		err = m.svc.Uncordon(m.Context(), operator, a.id)
	}
	if err != nil {
		m.Fatal(err)
	}
}

// before and moved compare the rows around what must not change them.
func (m *history) before() { m.seen = m.states() }

func (m *history) moved() bool { return m.states() != m.seen }

// pass lets some agents report and the executor act, and looks that it took no model out of service.
func (m *history) pass() {
	for _, a := range m.hosts {
		if rapid.IntRange(0, 3).Draw(m.r, "reports") > 0 {
			m.report(a)
		}
	}
	before, plan := m.serve(), m.overview().Plan.ID
	if _, err := m.e.Pass(m.Context()); err != nil {
		m.Fatal(err)
	}
	if m.overview().Plan.ID != plan {
		return // it did nothing but to commit a repair
	}
	after, wanted := m.serve(), m.wantedModels()
	for model, n := range before {
		if n > 0 && after[model] == 0 && wanted[model] {
			m.Fatalf("the last serving unit of %s was stopped: %s", model, m.states())
		}
	}
}

// serve counts units that really serve, by model.
func (m *history) serve() map[string]int {
	byHost := map[ids.ID]*agent{}
	for _, a := range m.hosts {
		byHost[a.id] = a
	}
	out := map[string]int{}
	for _, u := range m.overview().Units {
		roles := map[string]bool{}
		for _, p := range u.Parts {
			a := byHost[p.Host]
			if a == nil {
				continue // it was removed
			}
			well := p.State == fleet.Serving && !a.dead && p.Trouble == ""
			for _, gpu := range p.GPUs {
				well = well && a.broken[gpu] == ""
			}
			if well {
				roles[p.Role] = true
			}
		}
		if u.State == fleet.Serving && (roles[recipe.Whole] || roles[recipe.Prefill] && roles[recipe.Decode]) {
			out[u.Model]++
		}
	}
	return out
}

// wantedModels are those of which the current plan wants units to stay.
func (m *history) wantedModels() map[string]bool {
	out := map[string]bool{}
	o := m.overview()
	if o.Plan.ID == ids.Nil {
		return out
	}
	v, err := m.svc.Plan(m.Context(), operator, o.Plan.ID)
	if err != nil {
		m.Fatal(err)
	}
	for _, u := range v.Body.Units {
		for name, id := range m.models {
			if u.Model == id && u.Ends == "" {
				out[name] = true
			}
		}
	}
	return out
}

// end lets everything come back, and rest: then every demand is met as planned, and nothing else is there.
func (m *history) end() {
	for _, a := range m.hosts {
		a.dead = false
		clear(a.broken)
		if m.drained[a] {
			m.drain(a)
		}
	}
	m.settle(m.e)
	m.draft()
	m.settle(m.e)
	o := m.overview()
	v, err := m.svc.Plan(m.Context(), operator, o.Plan.ID)
	if err != nil {
		m.Fatal(err)
	}
	stay := 0
	for _, u := range v.Body.Units {
		if u.Ends == "" {
			stay++
		}
	}
	if len(o.Units) != stay {
		m.Fatalf("%d units are planned to stay, there are %s", stay, m.states())
	}
	for _, u := range o.Units {
		if u.State != fleet.Serving || u.Leaving != "" {
			m.Fatalf("%s is %s: %s %s; of all %s; plan %+v", u.Name, u.State, u.Text, u.Leaving, m.states(), v.Body)
		}
		for _, p := range u.Parts {
			if p.State != fleet.Serving {
				m.Fatalf("%s: %+v", u.Name, p)
			}
		}
	}
}
