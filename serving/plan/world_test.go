package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/serving/recipe"
)

func id(name string) ids.ID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)) }

// machine makes a host of so many GPUs of 80 GiB (sm90) in its own domain.
func machine(name string, gpus int, change ...func(*plan.Host)) plan.Host {
	h := plan.Host{ID: id(name), Name: name, Provider: "p", Region: "eu", Kind: plan.Reserved, Toolchain: map[string]string{wire.ToolCUDA: "12.8"}, Links: map[ids.ID]float64{}}
	for g := range gpus {
		h.GPUs = append(h.GPUs, wire.GPU{Index: g, Model: "H100", Arch: "sm90", MemoryBytes: 80 << 30, NUMA: g / 4})
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

// rack makes 18 hosts of 4 GPUs (sm100) in one domain.
func rack(name string, change ...func(*plan.Host)) []plan.Host {
	var hosts []plan.Host
	for i := range 18 {
		hosts = append(hosts, machine(fmt.Sprintf("%s-%02d", name, i), 4, append([]func(*plan.Host){blackwell, in(name)}, change...)...))
	}
	return hosts
}

func blackwell(h *plan.Host) {
	h.Toolchain = map[string]string{wire.ToolCUDA: "13.0"}
	for i := range h.GPUs {
		h.GPUs[i].Arch, h.GPUs[i].MemoryBytes, h.GPUs[i].Model = "sm100", 184<<30, "B200"
	}
}

func in(domain string) func(*plan.Host) {
	return func(h *plan.Host) {
		h.Failure = "power-" + domain
		for i := range h.GPUs {
			h.GPUs[i].Domain = domain
		}
	}
}

func kind(k string) func(*plan.Host)    { return func(h *plan.Host) { h.Kind = k } }
func network(n string) func(*plan.Host) { return func(h *plan.Host) { h.Network = n } }
func failure(f string) func(*plan.Host) { return func(h *plan.Host) { h.Failure = f } }
func taken(g ...int) func(*plan.Host)   { return func(h *plan.Host) { h.Taken = g } }
func cordoned(h *plan.Host)             { h.Cordoned = true }
func lost(h *plan.Host)                 { h.Lost = true }
func leaving(h *plan.Host)              { h.Leaving = true }
func unknown(h *plan.Host)              { in(wire.DomainUnknown)(h) }

func faulty(g int) func(*plan.Host) {
	return func(h *plan.Host) { h.GPUs[g].Fault = "Xid 79" }
}

func fleet(parts ...any) (hosts []plan.Host) {
	for _, p := range parts {
		switch p := p.(type) {
		case plan.Host:
			hosts = append(hosts, p)
		case []plan.Host:
			hosts = append(hosts, p...)
		}
	}
	return hosts
}

// with changes one host of a copy of a fleet.
func with(hosts []plan.Host, name string, change ...func(*plan.Host)) []plan.Host {
	out := append([]plan.Host(nil), hosts...)
	for i := range out {
		if out[i].Name == name {
			out[i].GPUs = append([]wire.GPU(nil), out[i].GPUs...)
			for _, c := range change {
				c(&out[i])
			}
			return out
		}
	}
	panic("no host " + name)
}

// linkAll measures every pair of hosts.
func linkAll(hosts []plan.Host, gbps float64) []plan.Host {
	for i := range hosts {
		hosts[i].Links = map[ids.ID]float64{}
		for j := range hosts {
			if i != j {
				hosts[i].Links[hosts[j].ID] = gbps
			}
		}
	}
	return hosts
}

// whole is a recipe of one engine on so many GPUs.
func whole(gpus int) *recipe.Recipe {
	return &recipe.Recipe{Name: fmt.Sprintf("w%d", gpus), Pools: []recipe.Pool{{Role: recipe.Whole, Replicas: 1, GPUs: gpus}},
		Hardware: []recipe.Floor{{Arch: []string{"sm90", "sm100"}, MemoryGiB: 79}}}
}

// experts is a recipe of one engine whose EP size may be halved, twice.
func experts(gpus int) *recipe.Recipe {
	r := whole(gpus)
	r.Pools[0].Parallel = recipe.Parallel{Data: gpus, Expert: gpus}
	r.Pools[0].ExpertTo = []int{gpus / 2, gpus / 4}
	return r
}

// pair is a recipe of prefill and decode of so many GPUs each.
func pair(gpus int, gbps float64) *recipe.Recipe {
	return &recipe.Recipe{Name: "pd", Hardware: []recipe.Floor{{Arch: []string{"sm90", "sm100"}}},
		Pools:    []recipe.Pool{{Role: recipe.Prefill, Replicas: 1, GPUs: gpus}, {Role: recipe.Decode, Replicas: 1, GPUs: gpus}},
		Transfer: &recipe.Transfer{Backend: "nixl", MinGbps: gbps}}
}

func demand(name string, units int, r *recipe.Recipe, change ...func(*plan.Demand)) plan.Demand {
	d := plan.Demand{Model: id(name), Name: name, Release: id(name + "/1"), Recipe: r, Units: units}
	for _, c := range change {
		c(&d)
	}
	return d
}

func release(n string) func(*plan.Demand) {
	return func(d *plan.Demand) { d.Release = id(d.Name + "/" + n) }
}
func spread(d *plan.Demand)               { d.Spread = true }
func weight(w int) func(*plan.Demand)     { return func(d *plan.Demand) { d.Weight = w } }
func only(k ...string) func(*plan.Demand) { return func(d *plan.Demand) { d.Kinds = k } }

func wants(d ...plan.Demand) []plan.Demand { return d }

var lenient = plan.Options{AllowUnmet: true}

// planned makes a plan, and checks that it keeps the rules and that planning again changes nothing.
func planned(t *testing.T, hosts []plan.Host, demands []plan.Demand, current *plan.Plan, o plan.Options) *plan.Plan {
	t.Helper()
	p, err := plan.Make(hosts, demands, current, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(hosts, demands, o); err != nil {
		t.Fatalf("%v\n%s", err, told(hosts, p))
	}
	again, err := plan.Make(hosts, demands, p, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Moves) > 0 {
		t.Fatalf("planning again moves: %+v\n%s", again.Moves, told(hosts, p))
	}
	return p
}

// told writes a plan for people: "chat whole h1[0 1]", one line a unit.
func told(hosts []plan.Host, p *plan.Plan) string {
	names := map[ids.ID]string{}
	for _, h := range hosts {
		names[h.ID] = h.Name
	}
	var b strings.Builder
	for _, u := range p.Units {
		fmt.Fprint(&b, u.Name)
		for _, pool := range u.Pools {
			fmt.Fprintf(&b, " %s", pool.Role)
			for _, r := range pool.Replicas {
				for _, s := range r.Shards {
					fmt.Fprintf(&b, " %s%v", names[s.Host], s.GPUs)
				}
				if r.Expert > 0 {
					fmt.Fprintf(&b, " EP%d", r.Expert)
				}
			}
		}
		if u.Ends != "" {
			fmt.Fprint(&b, " ends")
		}
		fmt.Fprintln(&b)
	}
	for _, u := range p.Unmet {
		fmt.Fprintf(&b, "%s unmet %d\n", u.Name, u.Units)
	}
	return b.String()
}
