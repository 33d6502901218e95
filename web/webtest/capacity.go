package webtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/agents/wire"
	"millrace/billing/report"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/serving/fleet"
	"millrace/serving/plan"
	"millrace/serving/recipe"
	"millrace/serving/recipe/store"
	"millrace/web/capacity"
	"millrace/web/session"
)

// yard is the fixture as the pages on GPUs see it.
type yard struct{ f *Fixture }

// Shape of the invented fleet.
const (
	rackHosts, rackGPUs     = 18, 4
	serverCount, serverGPUs = 8, 8
)

func (w *world) capacityWorld() {
	big, small := id(kindUnit, 60), id(kindUnit, 61)
	for rack := range 2 {
		role := []string{recipe.Prefill, recipe.Decode}[rack]
		for n := range rackHosts {
			h := w.machine(200+100*rack+n, fmt.Sprintf("fra-%c%02d", 'a'+rack, n+1), "NVIDIA GB200", "sm100", rackGPUs)
			h.Facts = fleet.Facts{Provider: "northwind", Region: "frankfurt", Network: "fra-fabric", Failure: fmt.Sprintf("rack %c", 'A'+rack), Kind: plan.Reserved, GPUHour: 3_100_000_000}
			for g := range h.GPUs {
				h.GPUs[g].Domain = fmt.Sprintf("7d1f2c9ab4e8455e9f00000000000%02d.1", rack)
				if n < rackHosts-2 {
					h.GPUs[g].Unit, h.GPUs[g].Name, h.GPUs[g].Role, h.GPUs[g].State = big, "deepseek-flash/1", role, fleet.Serving
				}
			}
			w.yardHosts = append(w.yardHosts, h)
		}
	}
	for n := range serverCount {
		h := w.machine(500+n, fmt.Sprintf("ber-%02d", n+1), "NVIDIA H200", "sm90", serverGPUs)
		h.Facts = fleet.Facts{Provider: "own", Region: "berlin", Kind: plan.Reserved, GPUHour: 2_200_000_000}
		w.serverWorld(&h, n, small)
		w.yardHosts = append(w.yardHosts, h)
	}
	w.yardUnits = w.unitViews(big, small)
	w.recipes = starters()
}

// serverWorld gives the eight-GPU servers their parts: one unit over two of them, one failed GPU, one host that drains and one
// that is lost.
func (w *world) serverWorld(h *fleet.HostView, n int, unit ids.ID) {
	for g := range h.GPUs {
		switch n {
		case 0:
			h.GPUs[g].Unit, h.GPUs[g].Name, h.GPUs[g].Role, h.GPUs[g].State = unit, "llama-70b/1", recipe.Prefill, fleet.Serving
		case 1:
			h.GPUs[g].Unit, h.GPUs[g].Name, h.GPUs[g].Role, h.GPUs[g].State = unit, "llama-70b/1", recipe.Decode, fleet.Serving
		case 2:
			h.GPUs[g].Unit, h.GPUs[g].Name, h.GPUs[g].Role, h.GPUs[g].State = id(kindUnit, 62), "qwen-32b/2", recipe.Whole, fleet.Starting
		case 4:
			h.GPUs[g].Unit, h.GPUs[g].Name, h.GPUs[g].Role, h.GPUs[g].State = id(kindUnit, 63), "qwen-32b/1", recipe.Whole, fleet.Draining
		}
	}
	switch n {
	case 3:
		h.GPUs[5].Broken = "Xid 79: the GPU has fallen off the bus"
		h.Observed.Problems = []wire.Problem{{Code: wire.ProblemXid, Subject: "gpu:5", Message: "Xid 79: the GPU has fallen off the bus", Fatal: true, SinceMS: ago(11 * time.Minute).UnixMilli()}}
	case 4:
		h.Cordoned, h.Draining, h.Reason, h.CordonedBy, h.CordonedAt = true, true, "kernel update", "ops@millrace.example", ago(3*time.Minute)
	case 7:
		h.Connected, h.Seen = false, 9*time.Minute
	}
}

func (w *world) machine(n int, name, model, arch string, gpus int) fleet.HostView {
	h := fleet.HostView{ID: id(kindHost, n), Name: name, Connected: true, Joined: ago(days(60)), Seen: 2 * time.Second, AgentVersion: "0.1.0"}
	for g := range gpus {
		h.GPUs = append(h.GPUs, fleet.GPUView{GPU: wire.GPU{Index: g, Model: model, Arch: arch, MemoryBytes: 141 << 30}})
	}
	return h
}

func (w *world) unitViews(big, small ids.ID) []fleet.UnitView {
	deep := fleet.UnitView{ID: big, Name: "deepseek-flash/1", Model: "acme/deepseek-flash", ModelID: id(kindModel, 1), Engine: "sglang", Recipe: "deepseek-v4.1-flash-sglang-64p64d",
		State: fleet.Serving, Since: ago(days(2)), Planned: true}
	for rack, role := range []string{recipe.Prefill, recipe.Decode} {
		for n := range rackHosts - 2 {
			h := w.yardHosts[rack*rackHosts+n]
			deep.Parts = append(deep.Parts, fleet.PartView{ID: id(kindUnit, 600+100*rack+n), Role: role, Shard: n, Host: h.ID, HostName: h.Name, GPUs: []int{0, 1, 2, 3}, State: fleet.Serving, Observed: "ready"})
		}
	}
	llama := fleet.UnitView{ID: small, Name: "llama-70b/1", Model: "acme/llama-70b", ModelID: id(kindModel, 0), Engine: "vllm", Recipe: "llama-70b-fp8-h100-1p1d", State: fleet.Serving, Since: ago(days(6)), Planned: true,
		Degraded: "decode runs on fewer GPUs than its recipe says"}
	first, second := w.yardHosts[2*rackHosts], w.yardHosts[2*rackHosts+1]
	llama.Parts = []fleet.PartView{
		{ID: id(kindUnit, 800), Role: recipe.Prefill, Host: first.ID, HostName: first.Name, GPUs: []int{0, 1, 2, 3, 4, 5, 6, 7}, State: fleet.Serving, Observed: "ready"},
		{ID: id(kindUnit, 801), Role: recipe.Decode, Host: second.ID, HostName: second.Name, GPUs: []int{0, 1, 2, 3}, Expert: 4, State: fleet.Serving, Observed: "ready"},
	}
	hand := fleet.UnitView{ID: id(kindUnit, 64), Name: "sim/1", Model: "acme/llama-70b", Engine: "sim", State: "serving", Since: ago(days(1)),
		Parts: []fleet.PartView{{ID: id(kindUnit, 64), Role: recipe.Whole, Host: first.ID, HostName: first.Name, State: fleet.Serving}}}
	return []fleet.UnitView{deep, llama, hand}
}

// starters are the first few recipes of the catalogue, one measured and one retired.
func starters() (out []store.Stored) {
	all, err := recipe.Starter()
	if err != nil {
		panic(err) // the catalogue has tests of its own
	}
	for i, r := range all {
		text, err := r.YAML()
		if err != nil {
			panic(err)
		}
		s := store.Stored{ID: id(kindRecipe, i), Recipe: r, Source: string(text), CreatedBy: "millrace", Created: ago(days(40))}
		switch r.Name {
		case "llama-70b-fp8-h100-1p1d":
			s.Demands = 1
			s.Measured = &store.Measurement{ID: id(kindRecipe, 90), Hardware: "8 x H200", By: "ops@millrace.example", At: ago(days(3)),
				Cost: recipe.Cost{A0: 31_200, A1: 52.4, B0: 9_700, B1: 17.5, B2: 0.043, Error: 0.041, From: "measured 2026-11-27 at http://10.0.0.1:8000"}}
			r.Cost = &s.Measured.Cost
		case "qwen3-32b-h100-tp4":
			s.Retired = true
		}
		out = append(out, s)
	}
	return out
}

func (y yard) Overview(context.Context) (fleet.Overview, error) {
	y.f.mu.Lock()
	defer y.f.mu.Unlock()
	if y.f.state == Fresh {
		return fleet.Overview{}, nil
	}
	o := fleet.Overview{Plan: y.plans()[1], Executor: "control-1", Hosts: slices.Clone(y.f.yardHosts), Units: slices.Clone(y.f.yardUnits)}
	h := o.Hosts[2*rackHosts+5]
	o.Windows = []fleet.Window{{ID: id(kindPlan, 70), Host: h.ID, HostName: h.Name, Starts: Now.Add(26 * time.Hour), Ends: Now.Add(30 * time.Hour), Reason: "new power supply", CreatedBy: "ops@millrace.example"}}
	return o, nil
}

func (y yard) PlacedUnit(_ context.Context, want ids.ID) (fleet.UnitView, []fleet.Event, error) {
	for _, u := range y.f.yardUnits {
		if u.ID == want {
			return u, []fleet.Event{{At: ago(days(2)), State: fleet.Serving, Text: "every engine has generated"}, {At: ago(days(2) + 4*time.Minute), State: fleet.Starting, Text: "plan 41 wants it"}}, nil
		}
	}
	return fleet.UnitView{}, nil, errGone
}

func (y yard) Loads(context.Context) (map[ids.ID]wire.Load, error) {
	return map[ids.ID]wire.Load{
		id(kindUnit, 800): {Running: 3, Waiting: 1, KVUsage: 0.22, CacheQueries: 41_220_000, CacheHits: 23_495_000},
		id(kindUnit, 801): {Running: 212, KVUsage: 0.71},
	}, nil
}

func (y yard) Traffic(context.Context) (map[ids.ID]report.UnitTraffic, error) {
	return map[ids.ID]report.UnitTraffic{id(kindUnit, 801): {Requests: 4_100, Errors: 2, Prompt: 41_220_000, Cached: 23_495_000,
		First: report.Quantiles{P50: 212 * time.Millisecond, P95: 640 * time.Millisecond}, Token: report.Quantiles{P50: 21 * time.Millisecond, P95: 33 * time.Millisecond}}}, nil
}

func (y yard) EngineLog(_ context.Context, _, engine ids.ID) (string, error) {
	if engine == id(kindUnit, 800) {
		return "", nil
	}
	return "INFO 11-24 13:36:02 loading weights took 41.20 s\nINFO 11-24 13:38:11 Application startup complete.\n", nil
}

func (y yard) Consequence(_ context.Context, host ids.ID) (fleet.Consequence, error) {
	u := y.f.yardUnits[1]
	return fleet.Consequence{Units: []fleet.Affected{{ID: u.ID, Name: u.Name, Model: u.Model, State: u.State, Last: true}}, GPUs: 8, Free: 22,
		Moves: []plan.Move{{Kind: plan.MoveReplace, Unit: u.ID, Text: "llama-70b/1 moves from ber-01 and ber-02 to ber-06 and ber-07: ber-01 is being drained"}, {Kind: plan.MoveKeep, Unit: y.f.yardUnits[0].ID, Text: "it is well where it is"}},
		Unmet: []plan.Unmet{{Name: "acme/qwen-32b", Units: 1, Reasons: []string{"3 hosts: not enough free GPUs", "18 hosts of fra-a: needs sm90"}}}}, nil
}

func (y yard) Demands(context.Context) ([]fleet.Demand, error) {
	if y.f.state == Fresh {
		return nil, nil
	}
	return []fleet.Demand{
		{ModelID: id(kindModel, 1), Model: "acme/deepseek-flash", RecipeID: y.f.recipeID("deepseek-v4.1-flash-sglang-64p64d"), Recipe: "deepseek-v4.1-flash-sglang-64p64d", Units: 1, Kinds: []string{plan.Reserved}, Spread: true, Weight: 5, UpdatedBy: "ops@millrace.example", GPUsOfUnit: 128},
		{ModelID: id(kindModel, 0), Model: "acme/llama-70b", RecipeID: y.f.recipeID("llama-70b-fp8-h100-1p1d"), Recipe: "llama-70b-fp8-h100-1p1d", Units: 1, Regions: []string{"berlin"}, Spread: true, Weight: 1, UpdatedBy: "ops@millrace.example", GPUsOfUnit: 8},
	}, nil
}

func (w *world) recipeID(name string) ids.ID {
	for _, s := range w.recipes {
		if s.Recipe.Name == name {
			return s.ID
		}
	}
	return ids.Nil
}

func (y yard) ModelNames(context.Context) ([]capacity.Model, error) {
	return []capacity.Model{{ID: id(kindModel, 1), Name: "acme/deepseek-flash"}, {ID: id(kindModel, 0), Name: "acme/llama-70b"}}, nil
}

func (y yard) plans() []fleet.PlanInfo {
	return []fleet.PlanInfo{
		{ID: id(kindPlan, 42), Number: 42, Parent: 41, Cause: fleet.ByOperator, Note: "a second qwen", State: fleet.Draft, CreatedBy: "ops@millrace.example", CreatedAt: ago(time.Minute), Units: 4, Moves: 4, Unmet: 1},
		{ID: id(kindPlan, 41), Number: 41, Parent: 40, Cause: fleet.ByRepair, State: fleet.Committed, CreatedBy: "system", CreatedAt: ago(days(2)), CommittedBy: "system", CommittedAt: ago(days(2)), Units: 3, Moves: 3},
		{ID: id(kindPlan, 40), Number: 40, Cause: fleet.ByOperator, State: fleet.Superseded, CreatedBy: "ops@millrace.example", CreatedAt: ago(days(6)), CommittedBy: "ops@millrace.example", CommittedAt: ago(days(6)), Units: 3, Moves: 3},
	}
}

func (y yard) Plans(_ context.Context, before int64, _ int) ([]fleet.PlanInfo, error) {
	if y.f.state == Fresh {
		return nil, nil
	}
	return slices.DeleteFunc(y.plans(), func(p fleet.PlanInfo) bool { return before > 0 && p.Number >= before }), nil
}

func (y yard) Plan(_ context.Context, want ids.ID) (fleet.PlanView, error) {
	i := slices.IndexFunc(y.plans(), func(p fleet.PlanInfo) bool { return p.ID == want })
	if i < 0 {
		return fleet.PlanView{}, errGone
	}
	v := fleet.PlanView{PlanInfo: y.plans()[i], Hosts: map[ids.ID]string{}, Outdated: i > 1}
	for _, h := range y.f.yardHosts {
		v.Hosts[h.ID] = h.Name
	}
	for _, u := range y.f.yardUnits[:2] {
		pu := plan.Unit{ID: u.ID, Name: u.Name, Why: "the only network with a free rack for each pool, 400 Gbit/s measured between them"}
		for _, role := range []string{recipe.Prefill, recipe.Decode} {
			pool := plan.Pool{Role: role, Replicas: []plan.Replica{{}}}
			for _, x := range u.Parts {
				if x.Role == role {
					pool.Replicas[0].Shards = append(pool.Replicas[0].Shards, plan.Shard{Host: x.Host, GPUs: x.GPUs})
				}
			}
			pu.Pools = append(pu.Pools, pool)
		}
		v.Body.Units = append(v.Body.Units, pu)
		v.Body.Moves = append(v.Body.Moves, plan.Move{Kind: plan.MoveKeep, Unit: u.ID, Text: "it is well where it is"})
	}
	added := plan.Unit{ID: id(kindUnit, 65), Name: "qwen-32b/3", Why: "ber-07 is the fullest host with 4 free GPUs; ber-06 is kept whole for larger units",
		Pools: []plan.Pool{{Role: recipe.Whole, Replicas: []plan.Replica{{Shards: []plan.Shard{{Host: y.f.yardHosts[2*rackHosts+6].ID, GPUs: []int{0, 1, 2, 3}}}}}}}}
	v.Body.Units = append(v.Body.Units, added)
	v.Body.Moves = append(v.Body.Moves, plan.Move{Kind: plan.MoveAdd, Unit: added.ID, Text: "acme/qwen-32b wants 3 units and has 2"},
		plan.Move{Kind: plan.MoveRefuse, Text: "acme/qwen-32b: one of 3 units finds no place"})
	v.Body.Unmet = []plan.Unmet{{Name: "acme/qwen-32b", Units: 1, Reasons: []string{"36 hosts of fra-a and fra-b: needs sm90; these have sm100", "ber-08: its agent is not heard of", "ber-04: 4 GPUs of one domain are not free"}}}
	return v, nil
}

func (y yard) Recipes(context.Context) ([]store.Stored, error) { return slices.Clone(y.f.recipes), nil }

func (y yard) Recipe(_ context.Context, want ids.ID) (store.Stored, []store.Measurement, error) {
	for _, s := range y.f.recipes {
		if s.ID == want {
			if s.Measured != nil {
				return s, []store.Measurement{*s.Measured}, nil
			}
			return s, nil, nil
		}
	}
	return store.Stored{}, nil, errGone
}

func (y yard) SetDemand(_ context.Context, _ session.Viewer, in fleet.DemandInput) error {
	if in.Units < 0 || in.Units > fleet.MaxUnits {
		return fault.New(fault.Invalid, "Give 0 to %d units.", fleet.MaxUnits).WithParam("units")
	}
	return nil
}

func (y yard) RemoveDemand(context.Context, session.Viewer, ids.ID, ids.ID) error { return nil }

func (y yard) DraftPlan(context.Context, session.Viewer, string) (ids.ID, error) {
	return id(kindPlan, 42), nil
}

func (y yard) CommitPlan(context.Context, session.Viewer, ids.ID) error { return nil }

func (y yard) Cordon(context.Context, session.Viewer, ids.ID, string) error { return nil }

func (y yard) Drain(context.Context, session.Viewer, ids.ID, string) error { return nil }

func (y yard) Uncordon(context.Context, session.Viewer, ids.ID) error { return nil }

func (y yard) SetFacts(_ context.Context, _ session.Viewer, _ ids.ID, f fleet.Facts) error {
	if f.Provider == "" {
		return fault.New(fault.Invalid, "Say the host's provider and region.").WithParam("provider")
	}
	return nil
}

func (y yard) AddWindow(_ context.Context, _ session.Viewer, w fleet.Window) error {
	if !w.Starts.Before(w.Ends) {
		return fault.New(fault.Invalid, "A window ends after it begins.").WithParam("ends_at")
	}
	return nil
}

func (y yard) CancelWindow(context.Context, session.Viewer, ids.ID, ids.ID) error { return nil }

func (y yard) AddRecipe(_ context.Context, _ session.Viewer, text string) (ids.ID, error) {
	if _, err := recipe.Parse([]byte(text)); err != nil {
		f := *fault.Of(err)
		f.Param = "text"
		return ids.Nil, &f
	}
	return id(kindRecipe, 0), nil
}

func (y yard) RetireRecipe(context.Context, session.Viewer, ids.ID) error { return nil }

// yardHost is where something is done to a host of the invented fleet: racks come first, then servers.
func yardHost(n int) string {
	number := 500 + n - 2*rackHosts
	if n < 2*rackHosts {
		number = 200 + 100*(n/rackHosts) + n%rackHosts
	}
	return path(capacity.Root+"/hosts/", ids.Host, id(kindHost, number))
}

func starterID(name string) ids.ID { return (&world{recipes: starters()}).recipeID(name) }
