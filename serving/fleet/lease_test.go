package fleet_test

import (
	"testing"

	"millrace/internal/fault"
)

// A control plane may die between any two steps: another one continues from what is stored, and comes to the same end.
func TestAnyOtherContinuesAfterAnyStep(t *testing.T) {
	b := newBed(t)
	b.model("m")
	pair, other := b.recipe(simPair), b.recipe(simOther)
	b.demand("m", pair, 1)
	for _, n := range []string{"h1", "h2"} {
		b.host(n, 8)
	}
	steps := 0
	run := func() {
		t.Helper()
		quiet := 0
		for range 200 {
			for _, a := range b.hosts {
				b.report(a)
			}
			e := b.executor()
			e.OneStep()
			n, err := e.Pass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			b.exec(`UPDATE control_leases SET expires_at = now()`) // it is killed, and its lease has run out
			if quiet++; n > 0 {
				quiet, steps = 0, steps+1
			}
			if quiet == 3 {
				return
			}
		}
		t.Fatal("the fleet does not come to rest")
	}
	b.planned()
	run()
	if got := b.serving(); got != 1 || steps < 4 {
		t.Fatalf("%d serve after %d steps: %s", got, steps, b.states())
	}
	if err := b.svc.RemoveDemand(t.Context(), operator, b.models["m"], pair); err != nil {
		t.Fatal(err)
	}
	b.demand("m", other, 2)
	b.planned()
	run()
	o := b.overview()
	if b.serving() != 2 || len(o.Units) != 2 || o.Units[0].Recipe != "sim-other" {
		t.Fatalf("%+v", o.Units)
	}
}

func TestOfTwoControlPlanesOneActs(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	b.host("h1", 2)
	b.planned()
	one, two := b.executor(), b.executor()
	if n, err := one.Pass(t.Context()); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := two.Pass(t.Context()); n != 0 || err != nil {
		t.Fatal("the second acted beside the first", n, err)
	}
	before := b.states()

	// The first one is paused between looking and acting; its lease runs out and the second takes over.
	n, err := one.PassAsBefore(t.Context(), func() {
		b.exec(`UPDATE control_leases SET expires_at = now()`)
		if mine, err := two.Renew(t.Context()); !mine || err != nil {
			t.Fatal(mine, err)
		}
	})
	if n != 0 || err == nil || b.states() != before {
		t.Errorf("a holder that woke up late made %d steps (%v): %s", n, err, b.states())
	}
	b.settle(two)
	if b.serving() != 1 {
		t.Error(b.states())
	}
	if mine, err := one.Renew(t.Context()); mine || err != nil {
		t.Error("the first took the lease from a holder that lives", err)
	}
}

func TestAPlanCommittedMeanwhileStopsTheSteps(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	b.host("h1", 4)
	e := b.executor()
	b.planned()
	if _, err := e.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	n, err := e.PassAsBefore(t.Context(), func() { b.commit() })
	if n != 0 || err != nil || b.states() != "" {
		t.Errorf("%d steps of a plan that no longer holds (%v): %s", n, err, b.states())
	}
}

func TestADraftOfAnotherTimeIsRefused(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	h := b.host("h1", 2)
	ctx := t.Context()
	draft := func() (out [2]struct{ err error }) {
		t.Helper()
		a, err := b.svc.Draft(ctx, operator, "")
		if err != nil {
			t.Fatal(err)
		}
		c, err := b.svc.Draft(ctx, operator, "")
		if err != nil {
			t.Fatal(err)
		}
		out[0].err, out[1].err = b.svc.Commit(ctx, operator, a), b.svc.Commit(ctx, operator, c)
		return out
	}
	if got := draft(); got[0].err != nil || !fault.Is(got[1].err, fault.Conflict) {
		t.Errorf("the second of two drafts of one parent: %v", got)
	}
	b.demand("m", b.recipe(simOther), 1)
	b.host("h2", 2)
	id, err := b.svc.Draft(ctx, operator, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range b.hosts {
		if !b.uses(a) && a != h {
			b.lose(a)
		}
	}
	if err := b.svc.Commit(ctx, operator, id); !fault.Is(err, fault.Conflict) {
		t.Errorf("a plan for a host that is lost: %v", err)
	}
}
