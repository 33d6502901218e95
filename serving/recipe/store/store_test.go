package store_test

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/recipe"
	"millrace/serving/recipe/store"
	"millrace/tenants"
)

const mine = `
# as we run it
name: llama
engine: vllm
version: 0.33.0
model: {name: llama, path: meta/llama, context: 8192}
hardware: [{arch: [sm90], memory_gib: 80}]
pools: [{role: whole, gpus: 4, parallel: {tensor: 4}}]
`

func TestRecipesAreKept(t *testing.T) {
	s := &store.Recipes{DB: dbtest.New(t), Clock: clock.System}
	ctx, root := t.Context(), tenants.System()
	if err := s.AddStarter(ctx); err != nil {
		t.Fatal(err)
	}
	starter, err := recipe.Starter()
	if err != nil {
		t.Fatal(err)
	}
	id, added, err := s.Add(ctx, []byte(mine), root)
	if err != nil || !added {
		t.Fatal(added, err)
	}
	if again, added, err := s.Add(ctx, []byte(strings.Replace(mine, "# as", "# just as", 1)), root); err != nil || added || again != id {
		t.Errorf("a comment made it another: %v %v %v", again, added, err)
	}
	newer, added, err := s.Add(ctx, []byte(strings.Replace(mine, "0.33.0", "0.34.0", 1)), root)
	if err != nil || !added || newer == id {
		t.Errorf("a newer version: %v %v %v", newer, added, err)
	}
	all, err := s.List(ctx, root)
	if err != nil || len(all) != len(starter)+2 {
		t.Fatalf("%d recipes, %v", len(all), err)
	}
	one, err := s.Get(ctx, id, root)
	if err != nil || one.Source != mine || one.Recipe.Version != "0.33.0" || one.Retired || one.Measured != nil {
		t.Errorf("%+v %v", one, err)
	}

	// Measured: the last one counts, another's digest is nobody's.
	for _, a1 := range []float64{40, 50} {
		m := store.Measurement{Hardware: "4 x H100", Cost: recipe.Cost{A0: 1, A1: a1, B0: 1, B1: 1, B2: 1, From: "here"}, Report: json.RawMessage(`{"x":1,"lone":"\ud800"}`)}
		if err := s.Measure(ctx, "llama", one.Recipe.Digest(), m, root); err != nil {
			t.Fatal(err)
		}
	}
	if one, err = s.Get(ctx, id, root); err != nil || one.Measured == nil || one.Recipe.Cost.A1 != 50 {
		t.Errorf("%+v %v", one, err)
	}
	if list, err := s.Measurements(ctx, id, root); err != nil || len(list) != 2 || list[0].Cost.A1 != 50 || list[0].Hardware != "4 x H100" {
		t.Errorf("%+v %v", list, err)
	}
	if other, err := s.Get(ctx, newer, root); err != nil || other.Measured != nil {
		t.Errorf("%+v %v", other, err)
	}

	// Retired, kept so over a restart, and back when it is wanted again.
	if err := s.Retire(ctx, id, root); err != nil {
		t.Fatal(err)
	}
	if err := s.AddStarter(ctx); err != nil {
		t.Fatal(err)
	}
	if one, err = s.Get(ctx, id, root); err != nil || !one.Retired {
		t.Errorf("%+v %v", one, err)
	}
	if again, _, err := s.Add(ctx, []byte(mine), root); err != nil || again != id {
		t.Error(again, err)
	}
	if one, err = s.Get(ctx, id, root); err != nil || one.Retired {
		t.Errorf("%+v %v", one, err)
	}
}

func TestWhatTheStoreRefuses(t *testing.T) {
	s := &store.Recipes{DB: dbtest.New(t), Clock: clock.System}
	ctx, root := t.Context(), tenants.System()
	good := store.Measurement{Cost: recipe.Cost{A0: 1, A1: 1, B0: 1, From: "here"}}
	long := good
	long.Report = json.RawMessage(`"` + strings.Repeat("x", store.MaxReportBytes) + `"`)
	negative := good
	negative.Cost.B1 = -1
	broken := good
	broken.Report = json.RawMessage("{")
	huge := good
	huge.Report = json.RawMessage(`{"x":1e400000}`)
	for name, c := range map[string]struct {
		err  error
		kind fault.Kind
	}{
		"no recipe":           {second(s.Add(ctx, []byte("name: x"), root)), fault.Invalid},
		"unknown":             {one(s.Get(ctx, ids.New(), root)), fault.NotFound},
		"retire unknown":      {s.Retire(ctx, ids.New(), root), fault.NotFound},
		"measure unknown":     {s.Measure(ctx, "x", "y", good, root), fault.NotFound},
		"a long report":       {s.Measure(ctx, "x", "y", long, root), fault.Invalid},
		"a negative time":     {s.Measure(ctx, "x", "y", negative, root), fault.Invalid},
		"a huge number":       {s.Measure(ctx, "x", "y", huge, root), fault.Invalid},
		"a broken report":     {s.Measure(ctx, "x", "y", broken, root), fault.Invalid},
		"a stranger":          {second(s.Add(ctx, []byte(mine), tenants.Actor{})), fault.Forbidden},
		"a stranger's look":   {one(s.List(ctx, tenants.Actor{})), fault.Forbidden},
		"a stranger measures": {s.Measure(ctx, "x", "y", good, tenants.Actor{}), fault.Forbidden},
		"a stranger retires":  {s.Retire(ctx, ids.New(), tenants.Actor{}), fault.Forbidden},
	} {
		if f := fault.Of(c.err); c.err == nil || f.Kind != c.kind {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

func second(_ ids.ID, _ bool, err error) error { return err }

func one[T any](_ T, err error) error { return err }
