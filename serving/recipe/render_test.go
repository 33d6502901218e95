package recipe_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"millrace/agents/wire"
	"millrace/serving/engine"
	"millrace/serving/recipe"
)

// What a recipe becomes on hosts: the engines' command lines, with the loopback ports that an agent would choose. Set
// UPDATE_GOLDEN to write them anew.
func TestGoldenRender(t *testing.T) {
	for name, c := range map[string]struct {
		recipe string
		places map[string][]recipe.Place // by role
	}{
		"whole-8":       {wholeEight, map[string][]recipe.Place{recipe.Whole: {{GPUs: gpus(8), Local: true}}}},
		"data8-expert8": {dataExpert, map[string][]recipe.Place{recipe.Whole: {{GPUs: gpus(8), Local: true}}}},
		"1p1d-server": {pairVLLM, map[string][]recipe.Place{
			recipe.Prefill: {{Unit: "unit-p0", GPUs: []int{0, 1, 2, 3}, Local: true, Host: recipe.Fabric{Ports: 24000}}},
			recipe.Decode:  {{Unit: "unit-d0", GPUs: []int{4, 5, 6, 7}, Local: true, Host: recipe.Fabric{Ports: 24032}}}}},
		"64p64d-rack":        {rackSGLang, map[string][]recipe.Place{recipe.Prefill: rackPlaces(0, 16), recipe.Decode: rackPlaces(16, 16)}},
		"64p64d-rack-shrunk": {rackSGLang, map[string][]recipe.Place{recipe.Decode: shrunk(rackPlaces(16, 8), 32)}},
	} {
		r, err := recipe.Parse([]byte(c.recipe))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var b strings.Builder
		for _, role := range []string{recipe.Whole, recipe.Prefill, recipe.Decode} {
			for i, at := range c.places[role] {
				if n := len(c.places[role]); i > 1 && i < n-1 {
					continue // the middle of a rack says nothing new
				}
				fmt.Fprintf(&b, "# %s, host %d of %d\n%s\n", role, i, len(c.places[role]), rendered(t, r, role, at))
			}
		}
		golden(t, name+".txt", b.String())
	}
}

// rendered is the command of a shard, after the way through the database that every spec goes.
func rendered(t *testing.T, r *recipe.Recipe, role string, at recipe.Place) string {
	t.Helper()
	s, err := r.Render(role, at)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Render(role, at)
	if err != nil || !reflect.DeepEqual(s, again) {
		t.Errorf("rendered twice: %+v, then %+v, %v", s, again, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var stored engine.Spec
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	stored.Port, stored.KVPort, stored.ReplayPort, stored.DataDir = 18000, 18010, 18050, "/d"
	d, err := engine.Lookup(engine.Family(r.Engine))
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Command(stored)
	if err != nil {
		t.Fatal(err)
	}
	return c.Path + " " + strings.Join(c.Args, " ") + "\n" + strings.Join(c.Env, "\n") + "\n"
}

const (
	hardware   = "hardware: [{arch: [sm100], memory_gib: 170}]\n"
	wholeEight = "name: w\nengine: vllm\nversion: 0.33.0\nmodel: {name: llama, path: /w, context: 131072}\n" + hardware +
		"pools: [{role: whole, gpus: 8, parallel: {tensor: 8}, slots: 256, queue: 512, host_cache_gib: 512, flags: [--max-num-batched-tokens, '8192'], env: {VLLM_LOG: warn}}]\n"
	dataExpert = "name: e\nengine: vllm\nversion: 0.33.0\nmodel: {name: moe, path: /w, context: 131072}\n" + hardware +
		"pools: [{role: whole, gpus: 8, parallel: {data: 8, expert: 8}, slots: 512, elastic: 16, expert_to: [4]}]\nspeculative: {method: nextn, draft: 3}\ndeterministic: true\n"
	pairVLLM = "name: p\nengine: vllm\nversion: 0.33.0\nmodel: {name: llama, path: /w, context: 131072}\n" + hardware +
		"pools:\n- {role: prefill, gpus: 4, parallel: {tensor: 4}, slots: 64}\n- {role: decode, gpus: 4, parallel: {tensor: 4}, slots: 256}\ntransfer: {backend: nixl, mode: pull}\n"
	rackSGLang = "name: r\nengine: sglang\nversion: 0.5.23\nmodel: {name: moe, path: /w, context: 131072}\n" + hardware +
		"pools:\n- {role: prefill, gpus: 64, domain: 72, parallel: {data: 64, expert: 64}, expert_to: [32]}\n- {role: decode, gpus: 64, domain: 72, parallel: {data: 64, expert: 64}, expert_to: [32], flags: [--moe-a2a-backend, deepep]}\n" +
		"transfer: {backend: mooncake, mode: push}\nspeculative: {method: nextn, draft: 3}\n"
)

func gpus(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// rackPlaces are hosts of four GPUs each, as a rack has them.
func rackPlaces(from, n int) []recipe.Place {
	host := func(i int) recipe.Fabric {
		return recipe.Fabric{Address: fmt.Sprintf("10.1.0.%d", from+i+1), Interface: "eth0", RDMA: []string{"mlx5_0", "mlx5_1"}, Ports: 24000}
	}
	var all []recipe.Place
	for i := range n {
		all = append(all, recipe.Place{Unit: fmt.Sprintf("unit-%d", from+i), Rank: i, Hosts: n, GPUs: gpus(4), Host: host(i), First: host(0), Apart: true})
	}
	return all
}

func shrunk(all []recipe.Place, expert int) []recipe.Place {
	for i := range all {
		all[i].Expert = expert
	}
	return all
}

// What does not fit is refused with the reason, before a GPU is taken for it.
func TestRenderRefusesWhatDoesNotFit(t *testing.T) {
	rack, err := recipe.Parse([]byte(rackSGLang))
	if err != nil {
		t.Fatal(err)
	}
	good := rackPlaces(0, 16)[3]
	for want, change := range map[string]func(*recipe.Place){
		"takes 64 GPUs":            func(p *recipe.Place) { p.GPUs = gpus(3) },
		"EP size of 16":            func(p *recipe.Place) { p.Expert = 16 },
		"addresses in the fabric":  func(p *recipe.Place) { p.First = recipe.Fabric{} },
		"needs ports":              func(p *recipe.Place) { p.Host.Ports = 0 },
		"is none of 16 hosts":      func(p *recipe.Place) { p.Rank = 16 },
		"the hosts' addresses":     func(p *recipe.Place) { p.Host.Address = "" },
		"takes 32 GPUs, not 4 on ": func(p *recipe.Place) { p.Expert = 32 },
	} {
		at := good
		change(&at)
		if _, err := rack.Render(recipe.Decode, at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, err := rack.Render(recipe.Whole, good); err == nil {
		t.Error("a pool that is not there")
	}
}

// Every recipe of the catalogue becomes a command on hosts of eight GPUs, and those of racks on hosts of four.
func TestCatalogueRenders(t *testing.T) {
	all, err := recipe.Starter()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		for _, pool := range r.Pools {
			per := min(pool.GPUs, 8)
			if pool.GPUs > 8 {
				per = 4
			}
			hosts := 1
			if per > 0 {
				hosts = pool.GPUs / per
			}
			at := rackPlaces(0, hosts)[hosts-1]
			at.GPUs = gpus(per)
			s, err := r.Render(pool.Role, at)
			if err != nil {
				t.Errorf("%s %s: %v", r.Name, pool.Role, err)
				continue
			}
			s.Port, s.DataDir, s.Executable, s.Agent = 1, "/d", "x", "x"
			d, err := engine.Lookup(engine.Family(r.Engine))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Command(s); err != nil {
				t.Errorf("%s %s: %v", r.Name, pool.Role, err)
			}
		}
	}
}

// Peers meet on the fastest interface that is up, and transfers take the devices next to the GPUs.
func TestFabricOfAnInventory(t *testing.T) {
	inv := &wire.Inventory{
		GPUs: []wire.GPU{{Index: 0, NICs: []string{"ib0", "ib1"}}, {Index: 1, NICs: []string{"ib1", "ib0"}, Arch: "ascend950"}, {Index: 2, NICs: []string{"ib2"}}},
		NICs: []wire.NIC{
			{Name: "eth0", Gbps: 25, Up: true, Address: "192.168.0.4"}, {Name: "ib0", Gbps: 400, Up: true, RDMA: "mlx5_0"},
			{Name: "ib1", Gbps: 400, Up: true, RDMA: "mlx5_1", Address: "10.0.0.4"}, {Name: "ib2", Gbps: 400, Up: true, RDMA: "mlx5_2", Address: "10.0.1.4"},
			{Name: "ib3", Gbps: 800, RDMA: "mlx5_3", Address: "10.0.2.4"},
		},
	}
	got := recipe.FabricOf(inv, []int{0, 1}, 24000)
	want := recipe.Fabric{Address: "10.0.0.4", Interface: "ib1", RDMA: []string{"mlx5_0", "mlx5_1"}, Ports: 24000, Ascend: true}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := recipe.FabricOf(&wire.Inventory{}, nil, 1); !reflect.DeepEqual(got, recipe.Fabric{Ports: 1}) {
		t.Errorf("%+v", got)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "render", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
	}
}

// What an engine has no way to do is told when the recipe is read, not when GPUs have been taken for it.
func TestARecipeThatItsEngineCannotRun(t *testing.T) {
	for why, text := range map[string]string{
		"tensor or data": "engine: trtllm\nversion: 1.2.0\nmodel: {name: m, path: /w, context: 100}\n" + hardware + "pools: [{role: whole, gpus: 8, parallel: {tensor: 2, data: 4}}]\n",
		"no determinist": "engine: trtllm\nversion: 1.2.0\nmodel: {name: m, path: /w, context: 100}\n" + hardware + "pools: [{role: whole, gpus: 8, parallel: {tensor: 8}}]\ndeterministic: true\n",
		"deepinfer know": "engine: deepinfer\nversion: 1.0.0\nmodel: {name: m, path: /w, context: 100}\n" + hardware + "pools: [{role: prefill, gpus: 1}, {role: decode, gpus: 1}]\ntransfer: {backend: nixl}\n",
		"no speculative": "engine: deepinfer\nversion: 1.0.0\nmodel: {name: m, path: /w, context: 100}\n" + hardware + "pools: [{role: whole, gpus: 1}]\nspeculative: {method: eagle, draft: 2}\n",
	} {
		if _, err := recipe.Parse([]byte("name: x\n" + text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v does not say %q", err, why)
		}
	}
}
