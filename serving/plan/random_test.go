package plan_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"millrace/internal/ids"
	"millrace/serving/plan"
	"millrace/serving/recipe"
)

// anyFleet draws hosts of all sorts and states.
func anyFleet(t *rapid.T) []plan.Host {
	var hosts []plan.Host
	kinds := []string{plan.Reserved, plan.OnDemand, plan.Spot}
	for i := range rapid.IntRange(1, 8).Draw(t, "servers") {
		h := machine(fmt.Sprintf("h%d", i), rapid.SampledFrom([]int{4, 8}).Draw(t, "size"), kind(rapid.SampledFrom(kinds).Draw(t, "kind")),
			network(rapid.SampledFrom([]string{"n1", "n1", "n2"}).Draw(t, "net")), failure(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "failure")))
		hosts = append(hosts, h)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "racks") {
		hosts = append(hosts, rack(fmt.Sprintf("r%d", i), network("n1"))[:rapid.IntRange(4, 18).Draw(t, "rack hosts")]...)
	}
	for i := range hosts {
		hosts[i].Links = map[ids.ID]float64{}
		for j := range hosts {
			if rapid.IntRange(0, 3).Draw(t, "linked") > 0 {
				hosts[i].Links[hosts[j].ID] = rapid.SampledFrom([]float64{50, 400, 400}).Draw(t, "gbps")
			}
		}
	}
	return hosts
}

// troubled draws what may happen to hosts.
func troubled(t *rapid.T, hosts []plan.Host) []plan.Host {
	for i := range hosts {
		switch rapid.IntRange(0, 12).Draw(t, "trouble") {
		case 0:
			hosts = with(hosts, hosts[i].Name, cordoned)
		case 1:
			hosts = with(hosts, hosts[i].Name, leaving)
		case 2:
			hosts = with(hosts, hosts[i].Name, lost)
		case 3:
			hosts = with(hosts, hosts[i].Name, faulty(rapid.IntRange(0, 3).Draw(t, "gpu")))
		case 4:
			hosts = with(hosts, hosts[i].Name, unknown)
		}
	}
	return hosts
}

func anyDemands(t *rapid.T) []plan.Demand {
	var all []plan.Demand
	for i := range rapid.IntRange(1, 4).Draw(t, "demands") {
		var r *recipe.Recipe
		switch rapid.IntRange(0, 5).Draw(t, "shape") {
		case 0:
			r = pair(rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "gpus"), rapid.SampledFrom([]float64{0, 200}).Draw(t, "gbps"))
		case 1:
			r = experts(rapid.SampledFrom([]int{4, 8, 16}).Draw(t, "gpus"))
		case 2:
			r = whole(rapid.SampledFrom([]int{2, 4}).Draw(t, "gpus"))
			r.Pools[0].Replicas = rapid.IntRange(2, 5).Draw(t, "replicas")
		case 3:
			r = whole(0)
			r.Hardware = nil
		default:
			r = whole(rapid.SampledFrom([]int{1, 2, 3, 4, 8, 12}).Draw(t, "gpus"))
		}
		d := demand(fmt.Sprintf("m%d", i/2), rapid.IntRange(0, 5).Draw(t, "units"), r, weight(rapid.IntRange(0, 3).Draw(t, "weight")))
		d.Release = id(fmt.Sprint(i, r.Pools, r.Transfer != nil && r.Transfer.MinGbps > 0)) // a release never changes
		d.Spread = rapid.Bool().Draw(t, "spread")
		all = append(all, d)
	}
	return all
}

func anyOptions(t *rapid.T) plan.Options {
	return plan.Options{Spares: rapid.SampledFrom([]int{0, 4, 8}).Draw(t, "spares"), SparesFrom: 40, AllowUnmet: true, MaxSteps: 5_000,
		MaxLost: rapid.SampledFrom([]float64{0.25, 1}).Draw(t, "max lost")}
}

// Whatever happens to any fleet, a plan keeps the rules, is the same when it is made again, and planning on it moves nothing.
func TestRulesHoldWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts, o := anyFleet(t), anyOptions(t)
		var current *plan.Plan
		for round := range 4 {
			now, demands := hosts, anyDemands(t)
			if round > 0 {
				now = troubled(t, hosts)
			}
			p, err := plan.Make(now, demands, current, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Check(now, demands, o); err != nil {
				t.Fatalf("%v\n%s", err, told(now, p))
			}
			reversed := rapid.Permutation(now).Draw(t, "order")
			if same, err := plan.Make(reversed, demands, current, o); err != nil || same.Digest() != p.Digest() {
				t.Fatalf("the order of hosts matters (%v):\n%s\n%s", err, told(now, p), told(now, same))
			}
			again, err := plan.Make(now, demands, p, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range again.Moves {
				t.Fatalf("planning again: %s %s\n%s%s", m.Kind, m.Text, told(now, p), told(now, again))
			}
			if moves := p.Diff(current); len(moves) != len(p.Moves) {
				t.Fatalf("the difference is %v, the plan says %v", moves, p.Moves)
			}
			current = p
		}
	})
}
