package bench

import (
	"fmt"

	"github.com/google/uuid"

	"millrace/agents/wire"
	"millrace/internal/ids"
	placement "millrace/serving/plan"
	"millrace/serving/recipe"
)

// The planner's fleets: half of the GPUs in 8-GPU servers of two generations, half in 72-GPU racks of 18 hosts; three
// providers, three kinds of capacity. Each host has measured its links to the next ones of its network.
const (
	serverGPUs = 8
	rackGPUs   = 72
	rackHosts  = 18
	neighbours = 40 // hosts to which each has measured its link
)

func plannerID(text string) ids.ID { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(text)) }

func plannerFleet(gpus int) (hosts []placement.Host) {
	kinds := []string{placement.Reserved, placement.Reserved, placement.Reserved, placement.OnDemand, placement.Spot}
	left := gpus
	for r := 0; left >= gpus/2 && left >= rackGPUs+serverGPUs; r++ {
		for i := range rackHosts {
			hosts = append(hosts, plannerHost(fmt.Sprintf("rack%d-%02d", r, i), r, kinds[r%len(kinds)], fmt.Sprint("rack", r), rackGPUs/rackHosts, "sm100", 184))
		}
		left -= rackGPUs
	}
	for s := 0; left > 0; s++ {
		arch, memory := "sm90", int64(80)
		if s%3 == 0 {
			arch, memory = "sm100", 180
		}
		hosts = append(hosts, plannerHost(fmt.Sprint("server", s), s/16, kinds[s/16%len(kinds)], "", min(serverGPUs, left), arch, memory))
		left -= serverGPUs
	}
	byNet := map[string][]int{}
	for i := range hosts {
		byNet[hosts[i].Provider] = append(byNet[hosts[i].Provider], i)
	}
	for _, of := range byNet {
		for k, i := range of {
			for n := 1; n <= neighbours && n < len(of); n++ {
				hosts[i].Links[hosts[of[(k+n)%len(of)]].ID] = 400
			}
		}
	}
	return hosts
}

func plannerHost(name string, group int, kind, domain string, gpus int, arch string, memoryGiB int64) placement.Host {
	h := placement.Host{ID: plannerID(name), Name: name, Provider: fmt.Sprint("provider", group%3), Region: "eu", Kind: kind, Failure: fmt.Sprint(domain, "row", group),
		Toolchain: map[string]string{wire.ToolCUDA: "13.0"}, Links: map[ids.ID]float64{}}
	for g := range gpus {
		h.GPUs = append(h.GPUs, wire.GPU{Index: g, Arch: arch, MemoryBytes: memoryGiB << 30, Domain: domain, NUMA: g / 4})
	}
	return h
}

// plannerDemands asks for about four fifths of a fleet in seven shapes, or for more than there is.
func plannerDemands(gpus int, full bool) []placement.Demand {
	share := func(part float64, size int) int {
		if full {
			part *= 1.5
		}
		return max(1, int(part*float64(gpus))/size)
	}
	modern := []recipe.Floor{{Arch: []string{"sm100"}, MemoryGiB: 170, Toolchain: map[string]string{wire.ToolCUDA: "13.0"}}}
	any := []recipe.Floor{{Arch: []string{"sm90", "sm100"}, MemoryGiB: 79, Toolchain: map[string]string{wire.ToolCUDA: "12.8"}}}
	one := func(gpus int) []recipe.Pool { return []recipe.Pool{{Role: recipe.Whole, Replicas: 1, GPUs: gpus}} }
	two := func(gpus, domain int) []recipe.Pool {
		return []recipe.Pool{{Role: recipe.Prefill, Replicas: 1, GPUs: gpus, Domain: domain}, {Role: recipe.Decode, Replicas: 1, GPUs: gpus, Domain: domain}}
	}
	link := &recipe.Transfer{Backend: "nixl", Mode: "pull", MinGbps: 200}
	var all []placement.Demand
	add := func(name string, units, weight int, spread bool, r recipe.Recipe) {
		r.Name = name
		all = append(all, placement.Demand{Model: plannerID(name), Release: plannerID(name + "/1"), Name: name, Recipe: &r, Units: units, Weight: weight, Spread: spread})
	}
	add("64p64d", int(0.2*float64(gpus))/128, 4, false, recipe.Recipe{Hardware: modern, Pools: two(64, rackGPUs)})
	add("32-experts", share(0.1, 32), 3, false, recipe.Recipe{Hardware: modern, Pools: one(32)})
	add("8p8d", share(0.1, 16), 2, true, recipe.Recipe{Hardware: any, Pools: two(8, 0), Transfer: link})
	add("8", share(0.12, 8), 2, true, recipe.Recipe{Hardware: any, Pools: one(8)})
	add("4p4d", share(0.08, 8), 1, false, recipe.Recipe{Hardware: any, Pools: two(4, 0), Transfer: link})
	add("4", share(0.12, 4), 1, false, recipe.Recipe{Hardware: any, Pools: one(4)})
	add("1", share(0.05, 1), 1, false, recipe.Recipe{Hardware: any, Pools: one(1)})
	return all
}

// plannerLoss loses one host in a hundred, at least one.
func plannerLoss(hosts []placement.Host) []placement.Host {
	out := append([]placement.Host(nil), hosts...)
	for i := 0; i < len(out); i += 100 {
		out[i].Lost = true
	}
	return out
}

// plannerRelease wants another release of the model of 4 GPUs.
func plannerRelease(demands []placement.Demand) []placement.Demand {
	out := append([]placement.Demand(nil), demands...)
	for i := range out {
		if out[i].Name == "4" {
			out[i].Release = plannerID("4/2")
		}
	}
	return out
}
