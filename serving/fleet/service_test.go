package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/fleet"
	"millrace/serving/plan"
	"millrace/tenants"
)

func TestOnlyOperatorsTouchTheFleet(t *testing.T) {
	b := newBed(t)
	ctx, stranger, id := t.Context(), tenants.Actor{Org: ids.New(), Role: tenants.Owner}, ids.New()
	window := fleet.Window{Host: id, Starts: time.Now(), Ends: time.Now().Add(time.Hour)}
	for name, err := range map[string]error{
		"overview":    second(b.svc.Overview(ctx, stranger)),
		"settings":    second(b.svc.Settings(ctx, stranger)),
		"change":      b.svc.SetSettings(ctx, stranger, fleet.Settings{SparesFrom: 1, MaxLost: 1}),
		"demands":     second(b.svc.Demands(ctx, stranger)),
		"demand":      second(b.svc.SetDemand(ctx, stranger, fleet.DemandInput{})),
		"no demand":   b.svc.RemoveDemand(ctx, stranger, id, id),
		"draft":       second(b.svc.Draft(ctx, stranger, "")),
		"commit":      b.svc.Commit(ctx, stranger, id),
		"plans":       second(b.svc.Plans(ctx, stranger, 0, 1)),
		"plan":        second(b.svc.Plan(ctx, stranger, id)),
		"consequence": second(b.svc.Consequence(ctx, stranger, id)),
		"cordon":      b.svc.Cordon(ctx, stranger, id, ""),
		"drain":       b.svc.Drain(ctx, stranger, id, ""),
		"uncordon":    b.svc.Uncordon(ctx, stranger, id),
		"facts":       b.svc.SetFacts(ctx, stranger, id, fleet.Facts{}),
		"window":      second(b.svc.AddWindow(ctx, stranger, window)),
		"no window":   b.svc.CancelWindow(ctx, stranger, id, id),
		"windows":     second(b.svc.Windows(ctx, stranger)),
	} {
		if !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	b := newBed(t)
	ctx, unknown := t.Context(), ids.New()
	model, known := b.model("m"), b.recipe(simWhole)
	h := b.host("h1", 2)
	day := time.Now().Add(24 * time.Hour)
	long := strings.Repeat("x", 2000)
	for name, c := range map[string]struct {
		err  error
		kind fault.Kind
	}{
		"units":               {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: model, Recipe: known, Units: -1})), fault.Invalid},
		"too many":            {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: model, Recipe: known, Units: fleet.MaxUnits + 1})), fault.Invalid},
		"kind":                {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: model, Recipe: known, Kinds: []string{"free"}})), fault.Invalid},
		"region":              {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: model, Recipe: known, Regions: []string{""}})), fault.Invalid},
		"no model":            {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: unknown, Recipe: known})), fault.NotFound},
		"no recipe":           {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: model, Recipe: unknown})), fault.NotFound},
		"another version":     {second(b.svc.SetDemand(ctx, operator, fleet.DemandInput{Model: model, Recipe: known, Version: 7})), fault.Conflict},
		"no demand":           {b.svc.RemoveDemand(ctx, operator, model, known), fault.NotFound},
		"no plan":             {b.svc.Commit(ctx, operator, unknown), fault.NotFound},
		"a long note":         {second(b.svc.Draft(ctx, operator, long)), fault.Invalid},
		"no host":             {b.svc.Drain(ctx, operator, unknown, ""), fault.NotFound},
		"a long reason":       {b.svc.Cordon(ctx, operator, h.id, long), fault.Invalid},
		"facts":               {b.svc.SetFacts(ctx, operator, h.id, fleet.Facts{Provider: "own", Region: "ber", Kind: "free"}), fault.Invalid},
		"no region":           {b.svc.SetFacts(ctx, operator, h.id, fleet.Facts{Provider: "own", Kind: plan.Spot}), fault.Invalid},
		"a window backwards":  {second(b.svc.AddWindow(ctx, operator, fleet.Window{Host: h.id, Starts: day, Ends: day.Add(-time.Hour)})), fault.Invalid},
		"a window in history": {second(b.svc.AddWindow(ctx, operator, fleet.Window{Host: h.id, Starts: day.AddDate(-1, 0, 0), Ends: day.AddDate(-1, 0, 1)})), fault.Invalid},
		"a window of a year":  {second(b.svc.AddWindow(ctx, operator, fleet.Window{Host: h.id, Starts: day, Ends: day.AddDate(1, 0, 0)})), fault.Invalid},
		"no window":           {b.svc.CancelWindow(ctx, operator, h.id, unknown), fault.NotFound},
		"percent":             {b.svc.SetSettings(ctx, operator, fleet.Settings{SparesFrom: 1, MaxLost: 101}), fault.Invalid},
	} {
		if !fault.Is(c.err, c.kind) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

func TestADemandIsChangedByVersionAndEveryChangeIsAudited(t *testing.T) {
	b := newBed(t)
	ctx, model := t.Context(), b.model("m")
	known := b.recipe(simWhole)
	in := fleet.DemandInput{Model: model, Recipe: known, Units: 1, Kinds: []string{plan.Reserved}, Regions: []string{"ber"}, Spread: true, Weight: 3}
	first, err := b.svc.SetDemand(ctx, operator, in)
	if err != nil {
		t.Fatal(err)
	}
	in.Units, in.Version = 2, first
	if _, err := b.svc.SetDemand(ctx, operator, in); err != nil {
		t.Fatal(err)
	}
	if _, err := b.svc.SetDemand(ctx, operator, in); !fault.Is(err, fault.Conflict) {
		t.Errorf("a version that was replaced: %v", err)
	}
	list, err := b.svc.Demands(ctx, operator)
	if err != nil || len(list) != 1 || list[0].Units != 2 || list[0].GPUsOfUnit != 2 || list[0].Weight != 3 || !list[0].Spread || list[0].Regions[0] != "ber" {
		t.Errorf("%+v %v", list, err)
	}
	h := b.host("h1", 2)
	if err := b.svc.Cordon(ctx, operator, h.id, "noise"); err != nil {
		t.Fatal(err)
	}
	if err := b.svc.Cordon(ctx, operator, h.id, "noise"); err != nil { // says nothing new
		t.Fatal(err)
	}
	if err := b.svc.SetFacts(ctx, operator, h.id, fleet.Facts{Provider: "own", Region: "ber", Network: "n", Failure: "rack-1", Kind: plan.Spot, GPUHour: 5}); err != nil {
		t.Fatal(err)
	}
	o := b.overview()
	if v := o.Hosts[0]; !v.Cordoned || v.Draining || v.Reason != "noise" || v.CordonedBy == "" || v.Facts.Failure != "rack-1" || v.Facts.Kind != plan.Spot {
		t.Errorf("%+v", v)
	}
	var actions string
	b.tx(func(_ *q.Queries, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT string_agg(action, ' ' ORDER BY id) FROM audit_log WHERE action LIKE 'demand%' OR action LIKE 'host%'").Scan(&actions)
	})
	if actions != "demand.set demand.set host.cordon host.facts" {
		t.Errorf("audited: %s", actions)
	}
}

func TestAMaintenanceWindowMovesWhatIsThere(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simWhole), 1)
	h1, h2 := b.host("h1", 2), b.host("h2", 2)
	e := b.executor()
	b.planned()
	b.settle(e)
	at, other := h1, h2
	if b.uses(h2) {
		at, other = h2, h1
	}
	ahead := fleet.Window{Host: at.id, Starts: time.Now().Add(24 * time.Hour), Ends: time.Now().Add(25 * time.Hour), Reason: "firmware"}
	far, err := b.svc.AddWindow(t.Context(), operator, ahead)
	if err != nil {
		t.Fatal(err)
	}
	b.settle(e)
	if !b.uses(at) {
		t.Fatal("moved a day ahead")
	}
	soon := ahead
	soon.Starts = time.Now().Add(30 * time.Minute)
	if _, err := b.svc.AddWindow(t.Context(), operator, soon); err != nil {
		t.Fatal(err)
	}
	b.settle(e)
	if b.uses(at) || !b.uses(other) || b.serving() != 1 {
		t.Fatalf("%+v", b.overview().Units)
	}
	if err := b.svc.CancelWindow(t.Context(), operator, at.id, far); err != nil {
		t.Fatal(err)
	}
	if list, err := b.svc.Windows(t.Context(), operator); err != nil || len(list) != 1 || list[0].HostName != at.name {
		t.Errorf("%+v %v", list, err)
	}
}

const simRack = `
name: sim-rack
engine: sim
version: "1"
model: {name: m, context: 4096}
pools: [{role: whole, replicas: 1, gpus: 8, domain: 8, parallel: {tensor: 8}}]
`

// A replica over two hosts of a rack: one row a host, rank 0's address in both.
func TestAReplicaOverTwoHosts(t *testing.T) {
	b := newBed(t)
	b.model("m")
	b.demand("m", b.recipe(simRack), 1)
	h1, h2 := b.host("h1", 4), b.host("h2", 4)
	for _, h := range b.hosts {
		h.domain = "rack"
		b.report(h)
	}
	e := b.executor()
	b.planned()
	b.settle(e)
	u := b.overview().Units[0]
	if u.State != fleet.Serving || len(u.Parts) != 2 || u.Parts[0].Host == u.Parts[1].Host || u.Parts[1].Shard != 1 {
		t.Fatalf("%+v", u)
	}
	masters := map[string]bool{}
	for _, h := range []*agent{h1, h2} {
		b.tx(func(query *q.Queries, _ pgx.Tx) error {
			rows, err := query.HostUnits(t.Context(), h.id)
			if err != nil || len(rows) != 1 {
				t.Fatalf("%+v %v", rows, err)
			}
			var s engine.Spec
			if err := json.Unmarshal(rows[0].Spec, &s); err != nil {
				return err
			}
			masters[s.Nodes.Master] = true
			if s.Nodes.Count != 2 || len(s.Devices) != 4 || s.Address == "" {
				t.Errorf("%+v", s)
			}
			return nil
		})
	}
	if len(masters) != 1 {
		t.Errorf("rank 0 is at %v", masters)
	}
	if _, ok := masters[""]; ok {
		t.Error("nobody knows where rank 0 is")
	}
	h2.broken[0] = "Xid 79"
	b.settle(e)
	if o := b.overview(); b.serving() != 0 || o.Plan.Unmet != 1 {
		t.Errorf("it serves without a part: %s, plan %+v", b.states(), o.Plan)
	}
	plans := b.overview().Plan.Number
	b.settle(e)
	if now := b.overview().Plan.Number; now != plans {
		t.Errorf("plans %d to %d say the same", plans, now)
	}
	clear(h2.broken)
	b.settle(e)
	if got := b.serving(); got != 1 {
		t.Errorf("%s", b.states())
	}
}
