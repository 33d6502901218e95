package fleet_test

import (
	"strings"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/fleet"
)

// planned drafts a plan of the demands by the planner and commits it.
func (b *bed) planned() ids.ID {
	b.Helper()
	id, err := b.svc.Draft(b.Context(), operator, "")
	if err != nil {
		b.Fatal(err)
	}
	if err := b.svc.Commit(b.Context(), operator, id); err != nil {
		b.Fatal(err)
	}
	return id
}

func (b *bed) overview() fleet.Overview {
	b.Helper()
	o, err := b.svc.Overview(b.Context(), operator)
	if err != nil {
		b.Fatal(err)
	}
	return o
}

func TestAFailedGPUFaultsItsGroupOnlyAndTheGroupGoesOnSmaller(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simPair), 1)
	h1, h2 := b.host("h1", 6), b.host("h2", 4)
	e := b.executor()
	b.planned()
	b.settle(e)
	u := b.overview().Units[0]
	if u.State != "serving" || len(u.Parts) != 3 {
		t.Fatalf("%+v", u)
	}
	hit := u.Parts[0] // a decode engine
	for _, p := range u.Parts {
		if p.Host == h2.id {
			hit = p
		}
	}
	if hit.Role != "decode" || len(hit.GPUs) != 4 {
		t.Fatalf("%+v", u.Parts)
	}

	h2.broken[1] = "Xid 79: the GPU has fallen off the bus"
	served := true
	for range 30 { // step by step: the unit serves on without the group
		b.report(h1)
		b.report(h2)
		if _, err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		served = served && b.overview().Units[0].State == "serving"
	}
	if !served {
		t.Error("the unit stopped serving, although another decode engine was there")
	}
	now := b.overview()
	if now.Plan.Cause != fleet.ByRepair || !strings.Contains(now.Plan.Note, "Xid 79") {
		t.Errorf("plan: %+v", now.Plan)
	}
	for _, p := range now.Units[0].Parts {
		if p.Host == h2.id && (p.Expert != 2 || len(p.GPUs) != 2 || p.State != "serving" || contains(p.GPUs, 1)) {
			t.Errorf("%+v", p)
		}
	}
	if now.Units[0].Degraded == "" {
		t.Error("nothing says that it is less than whole")
	}

	delete(h2.broken, 1) // the GPU was replaced
	b.settle(e)
	for _, p := range b.overview().Units[0].Parts {
		if p.Host == h2.id && (p.Expert != 0 || len(p.GPUs) != 4 || p.State != "serving") {
			t.Errorf("rebuilt: %+v", p)
		}
	}
}

func contains(list []int, n int) bool {
	for _, x := range list {
		if x == n {
			return true
		}
	}
	return false
}

func TestAHostThatIsDrainedIsLeftForAnother(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	h1, h2 := b.host("h1", 2), b.host("h2", 2)
	e := b.executor()
	b.planned()
	b.settle(e)
	first := b.overview().Units[0].Parts[0].Host
	at, other := h1, h2
	if first == h2.id {
		at, other = h2, h1
	}
	c, err := b.svc.Consequence(t.Context(), operator, at.id)
	if err != nil || len(c.Units) != 1 || !c.Units[0].Last || c.GPUs != 2 || c.Free != 2 || len(c.Moves) == 0 || len(c.Unmet) != 0 {
		t.Errorf("%+v %v", c, err)
	}
	if err := b.svc.Drain(t.Context(), operator, at.id, "new power supply"); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		b.report(h1)
		b.report(h2)
		if _, err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		serving := 0
		for _, u := range b.overview().Units {
			if u.State == "serving" {
				serving++
			}
		}
		if serving == 0 {
			t.Fatalf("nothing serves: %s", b.states())
		}
	}
	o := b.overview()
	if len(o.Units) != 1 || o.Units[0].State != "serving" || o.Units[0].Parts[0].Host != other.id {
		t.Errorf("%+v", o.Units)
	}
	if err := b.svc.Uncordon(t.Context(), operator, at.id); err != nil {
		t.Fatal(err)
	}
	b.settle(e)
	if got := b.overview(); got.Plan.ID != o.Plan.ID {
		t.Errorf("plan %d moves what is well: %+v", got.Plan.Number, got.Units)
	}
}

func TestAHostThatIsLostIsReplaced(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 2)
	h1, h2, h3 := b.host("h1", 2), b.host("h2", 2), b.host("h3", 2)
	e := b.executor()
	b.planned()
	b.settle(e)
	free := h3
	for _, h := range []*agent{h1, h2} {
		if !b.uses(h) {
			free = h
		}
	}
	gone := h1
	if free == h1 {
		gone = h2
	}
	b.lose(gone)
	b.settle(e)
	if !b.uses(free) || b.serving() != 2 {
		t.Fatalf("%+v", b.overview().Units)
	}
	gone.dead = false // it comes back, with what it ran
	b.settle(e)
	if b.serving() != 2 || b.uses(gone) {
		t.Fatalf("%+v", b.overview().Units)
	}
}

// uses reports whether a unit has something on a host.
func (b *bed) uses(a *agent) bool {
	for _, u := range b.overview().Units {
		for _, p := range u.Parts {
			if p.Host == a.id {
				return true
			}
		}
	}
	return false
}

func (b *bed) serving() (n int) {
	for _, u := range b.overview().Units {
		if u.State == "serving" {
			n++
		}
	}
	return n
}

func TestAMassLossMovesNothing(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 4)
	for _, n := range []string{"h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"} {
		b.host(n, 2)
	}
	e := b.executor()
	b.planned()
	b.settle(e)
	before := b.overview()
	for _, h := range b.hosts[:5] {
		b.lose(h)
	}
	b.settle(e)
	now := b.overview()
	if now.Frozen == "" || now.Plan.ID != before.Plan.ID || b.states() != "m/1=serving " && b.serving() != 4 {
		t.Fatalf("%q plan %d, %s", now.Frozen, now.Plan.Number, b.states())
	}
	id, err := b.svc.Draft(t.Context(), operator, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.svc.Commit(t.Context(), operator, id); !fault.Is(err, fault.Conflict) {
		t.Errorf("a frozen fleet took a plan: %v", err)
	}
	for _, h := range b.hosts[:5] {
		h.dead = false
	}
	b.settle(e)
	if now = b.overview(); now.Frozen != "" || now.Plan.ID != before.Plan.ID || b.serving() != 4 {
		t.Errorf("%q plan %d, %s", now.Frozen, now.Plan.Number, b.states())
	}
}

// Hosts come back from a mass loss one by one: the last of them are replaced only when they do not come.
func TestAfterAMassLossTheLastHostsAreWaitedFor(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 4)
	for _, n := range []string{"h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"} {
		b.host(n, 2)
	}
	l, now := quick, clock.NewManual(time.Now())
	l.Wait = time.Minute
	e := fleet.NewExecutor(fleet.ExecutorConfig{DB: b.db, Bus: b, Loads: b, Limits: l, Clock: now})
	b.planned()
	b.settle(e)
	b.exec(`UPDATE control_leases SET since = now() - interval '1 day'`) // this control plane acts for long
	before := b.overview()
	last := b.overview().Units[0].Parts[0].HostName
	for _, h := range b.hosts[:5] {
		b.lose(h)
	}
	for _, h := range b.hosts {
		if h.name == last && !h.dead {
			b.lose(h)
		}
	}
	b.settle(e)
	if b.overview().Frozen == "" {
		t.Fatal("no mass loss")
	}
	for _, h := range b.hosts {
		h.dead = h.name == last
	}
	b.settle(e)
	if o := b.overview(); o.Frozen != "" || o.Plan.ID != before.Plan.ID {
		t.Errorf("%q, plan %d: the last host had no time to come back", o.Frozen, o.Plan.Number)
	}
	now.Advance(time.Minute)
	b.settle(e)
	if o := b.overview(); o.Plan.Cause != fleet.ByRepair || b.serving() != 4 {
		t.Errorf("plan %d, %s: a host that does not come back is not replaced", o.Plan.Number, b.states())
	}
}

func TestAControlPlaneThatHasJustStartedWaitsForAgents(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	b.host("h1", 2)
	b.host("h2", 2)
	b.planned()
	b.settle(b.executor())
	b.exec(`UPDATE control_leases SET expires_at = now()`)
	before := b.overview().Plan
	for _, h := range b.hosts {
		b.lose(h)
	}
	patient := quick
	patient.Wait = time.Hour
	for range 3 {
		if n, err := b.executorWith(patient).Pass(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if now := b.overview().Plan; now.ID != before.ID {
		t.Errorf("a repair before the agents had time to report: %+v", now)
	}
}

func TestWithoutLeaveARepairIsADraft(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	h1, h2 := b.host("h1", 2), b.host("h2", 2)
	e := b.executor()
	first := b.planned()
	b.settle(e)
	if err := b.svc.SetSettings(t.Context(), operator, fleet.Settings{AutoRepair: false, Spares: 8, SparesFrom: 72, MaxLost: 25}); err != nil {
		t.Fatal(err)
	}
	if b.uses(h1) {
		b.lose(h1)
	} else {
		b.lose(h2)
	}
	for range 3 {
		b.settle(e)
	}
	plans, err := b.svc.Plans(t.Context(), operator, 0, 10)
	if err != nil || len(plans) != 2 || plans[0].State != fleet.Draft || plans[0].Cause != fleet.ByRepair || plans[1].ID != first {
		t.Fatalf("%+v %v", plans, err)
	}
	if err := b.svc.Commit(t.Context(), operator, plans[0].ID); err != nil {
		t.Fatal(err)
	}
	b.settle(e)
	if b.serving() != 1 {
		t.Errorf("%+v", b.overview().Units)
	}
}
