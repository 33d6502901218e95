package fleet_test

import (
	"strings"
	"testing"

	"millrace/serving/fleet"
	"millrace/serving/plan"
)

func TestAUnitComesUpServesAndGoes(t *testing.T) {
	b := newBed(t)
	b.model("m")
	release := b.demand("m", b.recipe(simWhole), 1)
	h := b.host("h1", 4)
	e := b.executor()
	b.commit(b.whole("m-1", "m", release, h, 0, 1))
	b.settle(e)
	u := b.unit("m-1")
	if u.State != "serving" || len(u.Parts) != 1 || u.Parts[0].HostName != "h1" || b.count == 0 {
		t.Fatalf("%+v, %d notices", u, b.count)
	}
	_, events, err := b.svc.Unit(t.Context(), operator, u.ID)
	if err != nil {
		t.Fatal(err)
	}
	var path []string
	for i := len(events) - 1; i >= 0; i-- {
		path = append(path, events[i].State)
	}
	if got := strings.Join(path, " "); got != "planned starting ready serving" {
		t.Errorf("it went through %s", got)
	}
	b.commit() // nothing is wanted any more
	b.settle(e)
	if got := b.states(); got != "" {
		t.Errorf("left: %s", got)
	}
}

func TestAGangStartsTogetherAndServesWhenAllOfItIsReady(t *testing.T) {
	b := newBed(t)
	b.model("m")
	release := b.demand("m", b.recipe(simPair), 1)
	h1, h2 := b.host("h1", 8), b.host("h2", 8)
	h2.slow = true
	e := b.executor()
	b.commit(b.pair("m-1", "m", release, on(h1, 0, 1), on(h1, 4, 5, 6, 7), on(h2, 0, 1, 2, 3)))
	b.settle(e)
	if u := b.unit("m-1"); u.State != "starting" || len(u.Parts) != 3 {
		t.Fatalf("%+v", u)
	}
	h2.slow = false
	b.settle(e)
	u := b.unit("m-1")
	if u.State != "serving" {
		t.Fatalf("%+v", u)
	}
	for _, p := range u.Parts {
		if p.State != "serving" {
			t.Errorf("%s %d is %s", p.Role, p.Replica, p.State)
		}
	}
}

func TestAnEngineThatKeepsFailingFaultsTheWholeGangAndIsTriedAgain(t *testing.T) {
	b := newBed(t)
	b.model("m")
	release := b.demand("m", b.recipe(simPair), 1)
	h1, h2 := b.host("h1", 8), b.host("h2", 8)
	h2.fail["sim"] = "CUDA out of memory"
	b.commit(b.pair("m-1", "m", release, on(h1, 0, 1), on(h1, 4, 5, 6, 7), on(h2, 0, 1, 2, 3)))
	b.settle(b.executor())
	u := b.unit("m-1")
	if u.State != "faulted" || !strings.Contains(u.Text, "CUDA out of memory") || u.Parts[0].Tries != quick.Tries {
		t.Fatalf("%+v", u)
	}
	for _, p := range u.Parts {
		if p.State != "faulted" || p.Observed != "stopped" {
			t.Errorf("%s %d is %s, its agent says %s", p.Role, p.Replica, p.State, p.Observed)
		}
	}
}

func TestAUnitThatDoesNotBecomeReadyIsFaultedWithTheReason(t *testing.T) {
	b := newBed(t)
	b.model("m")
	release := b.demand("m", b.recipe(simWhole), 1)
	h := b.host("h1", 2)
	h.slow = true
	e := b.executor()
	b.commit(b.whole("m-1", "m", release, h, 0, 1))
	b.settle(e)
	b.exec(`UPDATE units SET state_at = now() - interval '2 hours', tries = 3 WHERE state = 'starting'`)
	b.settle(e)
	if u := b.unit("m-1"); u.State != "faulted" || !strings.Contains(u.Text, "not ready after") || !strings.Contains(u.Text, "h1") {
		t.Fatalf("%+v", u)
	}
}

func TestASwitchStartsTheNewUnitFirst(t *testing.T) {
	b := newBed(t)
	b.model("m")
	old, other := b.demand("m", b.recipe(simWhole), 1), b.demand("m", b.recipe(simOther), 1)
	h := b.host("h1", 4)
	e := b.executor()
	was := b.whole("m-1", "m", old, h, 0, 1)
	b.commit(was)
	b.settle(e)
	now := b.whole("m-2", "m", other, h, 2, 3)
	was.Ends, was.Heir = "replaced by m-2", now.ID
	h.slow = true
	b.commit(was, now)
	b.settle(e)
	if got := b.states(); !strings.Contains(got, "m-1=serving") || !strings.Contains(got, "m-2=starting") {
		t.Fatal(got)
	}
	h.slow = false
	b.settle(e)
	if got := b.states(); got != "m-2=serving " {
		t.Fatal(got)
	}
}

func TestTheLastServingUnitIsNotStoppedForASwitch(t *testing.T) {
	b := newBed(t)
	b.model("m")
	one, other := b.recipe(simWhole), b.recipe(simOther)
	old := b.demand("m", one, 1)
	h := b.host("h1", 2)
	e := b.executor()
	b.commit(b.whole("m-1", "m", old, h, 0, 1))
	b.settle(e)
	b.demand("m", one, 0)
	now := b.demand("m", other, 1)
	if err := b.svc.CommitFor(t.Context(), plan.Plan{Units: []plan.Unit{b.whole("m-2", "m", now, h, 0, 1)}}); err != nil { // there is no room beside
		t.Fatal(err)
	}
	b.report(h)
	for range 2 {
		if _, err := e.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if u := b.unit("m-2"); u.State != "planned" || !strings.Contains(u.Parts[0].Text, "held by m-1") || b.unit("m-1").State != "serving" {
		t.Fatalf("%s %+v", b.states(), u)
	}
	b.settle(e) // it is planned with what serves
	if o := b.overview(); b.states() != "m-1=serving " || o.Plan.Cause != fleet.ByRepair || o.Plan.Unmet != 1 {
		t.Errorf("%s, plan %+v", b.states(), o.Plan)
	}
}

func TestAnEngineOfNoPlanKeepsItsGPUs(t *testing.T) {
	b := newBed(t)
	b.model("m")
	release := b.demand("m", b.recipe(simWhole), 1)
	h := b.host("h1", 4)
	b.exec(`INSERT INTO units (id, name, model_id, engine, host_id, slot, upstream_model) VALUES (gen_random_uuid(), 'by hand', $1, 'sim', $2, 1, 'm')`, b.models["m"], h.id)
	b.commit(b.whole("m-1", "m", release, h, 0, 1))
	b.settle(b.executor())
	if u := b.unit("m-1"); u.State != "planned" || !strings.Contains(u.Parts[0].Text, "held by by hand") {
		t.Fatalf("%+v", u)
	}
}
