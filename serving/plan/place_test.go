package plan_test

import (
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/plan"
	"millrace/serving/recipe"
)

// Where new units go.
func TestPlaces(t *testing.T) {
	h1, h2, h3 := machine("h1", 8), machine("h2", 8), machine("h3", 8)
	for _, c := range []struct {
		name    string
		hosts   []plan.Host
		demands []plan.Demand
		o       plan.Options
		want    string
	}{
		{"fills a started host first", fleet(h1, machine("h2", 8, taken(0, 1, 2, 3))), wants(demand("a", 1, whole(4))), lenient, "a whole h2[4 5 6 7]\n"},
		{"the best fit of two", fleet(machine("h1", 8, taken(0)), machine("h2", 8, taken(0, 1, 2, 3, 4, 5))), wants(demand("a", 1, whole(2))), lenient, "a whole h2[6 7]\n"},
		{"keeps whole hosts for whole units", fleet(h1, h2), wants(demand("small", 3, whole(2)), demand("big", 1, whole(8))), lenient,
			"big whole h1[0 1 2 3 4 5 6 7]\nsmall whole h2[0 1]\nsmall whole h2[2 3]\nsmall whole h2[4 5]\n"},
		{"GPUs of one NUMA node", fleet(machine("h1", 8, taken(0, 1))), wants(demand("a", 1, whole(4))), lenient, "a whole h1[4 5 6 7]\n"},
		{"spreads over failure domains when asked", fleet(machine("h1", 8, failure("x")), machine("h2", 8, failure("x")), machine("h3", 8, failure("y"))),
			wants(demand("a", 2, whole(4), spread)), lenient, "a whole h1[0 1 2 3]\na whole h3[0 1 2 3]\n"},
		{"spreads as far as it goes", fleet(machine("h1", 8, failure("x")), machine("h2", 8, failure("y"))), wants(demand("a", 3, whole(4), spread)), lenient,
			"a whole h1[0 1 2 3]\na whole h2[0 1 2 3]\na whole h1[4 5 6 7]\n"},
		{"reserved before on-demand before spot", fleet(machine("h1", 8, kind(plan.Spot)), machine("h2", 8, kind(plan.OnDemand)), h3), wants(demand("a", 2, whole(8))), lenient,
			"a whole h3[0 1 2 3 4 5 6 7]\na whole h2[0 1 2 3 4 5 6 7]\n"},
		{"only the kinds allowed", fleet(machine("h1", 8, kind(plan.Spot)), h2), wants(demand("a", 2, whole(8), only(plan.Spot))), lenient,
			"a whole h1[0 1 2 3 4 5 6 7]\na unmet 1\n"},
		{"the weightier first", fleet(h1), wants(demand("light", 1, whole(8)), demand("heavy", 1, whole(8), weight(5))), lenient,
			"heavy whole h1[0 1 2 3 4 5 6 7]\nlight unmet 1\n"},
		{"whole gangs or nothing", fleet(h1, machine("h2", 4)), wants(demand("a", 1, pair(8, 0))), lenient, "a unmet 1\n"},
		{"pools in one network", fleet(machine("h1", 8, network("x")), machine("h2", 8, network("y")), machine("h3", 8, network("y"))), wants(demand("a", 1, pair(8, 0))), lenient,
			"a prefill h2[0 1 2 3 4 5 6 7] decode h3[0 1 2 3 4 5 6 7]\n"},
		{"a unit on one host needs no measured link", fleet(h1, h2), wants(demand("a", 1, pair(4, 200))), lenient, "a prefill h1[0 1 2 3] decode h1[4 5 6 7]\n"},
		{"links are never assumed", fleet(h1, h2), wants(demand("a", 1, pair(8, 200))), lenient, "a unmet 1\n"},
		{"links that are fast enough", fleet(linkAll(fleet(machine("h1", 8), machine("h2", 8)), 200)), wants(demand("a", 1, pair(8, 200))), lenient,
			"a prefill h1[0 1 2 3 4 5 6 7] decode h2[0 1 2 3 4 5 6 7]\n"},
		{"links that are too slow", fleet(linkAll(fleet(machine("h1", 8), machine("h2", 8)), 199)), wants(demand("a", 1, pair(8, 200))), lenient, "a unmet 1\n"},
		{"nothing on unknown topology", fleet(machine("h1", 8, unknown), h2), wants(demand("a", 2, whole(8))), lenient, "a whole h2[0 1 2 3 4 5 6 7]\na unmet 1\n"},
		{"nothing on cordoned, lost, leaving hosts and broken GPUs", fleet(machine("h1", 8, cordoned), machine("h2", 8, lost), machine("h3", 8, leaving), machine("h4", 8, faulty(1))),
			wants(demand("a", 1, whole(8)), demand("b", 2, whole(4))), lenient, "b whole h4[4 5 6 7]\na unmet 1\nb unmet 1\n"},
		{"a replica over hosts of a rack only", fleet(rack("r1")[:3], h1, h2), wants(demand("a", 2, whole(12))), lenient,
			"a whole r1-00[0 1 2 3] r1-01[0 1 2 3] r1-02[0 1 2 3]\na unmet 1\n"},
		{"spares stay", fleet(rack("r1")[:4]), wants(demand("a", 3, whole(4)), demand("b", 1, whole(1))), plan.Options{Spares: 4, SparesFrom: 16, AllowUnmet: true},
			"a whole r1-00[0 1 2 3]\na whole r1-01[0 1 2 3]\na whole r1-02[0 1 2 3]\nb unmet 1\n"},
		{"a broken GPU uses up spares, not room", fleet(with(rack("r1")[:4], "r1-01", faulty(0))), wants(demand("a", 3, whole(4))), plan.Options{Spares: 4, SparesFrom: 16, AllowUnmet: true},
			"a whole r1-00[0 1 2 3]\na whole r1-02[0 1 2 3]\na whole r1-03[0 1 2 3]\n"},
		{"engines without GPUs", fleet(machine("h1", 0), machine("h2", 0)), wants(demand("sim", 3, &recipe.Recipe{Pools: []recipe.Pool{{Role: recipe.Whole}}})), lenient,
			"sim whole h1[]\nsim whole h2[]\nsim whole h1[]\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planned(t, c.hosts, c.demands, nil, c.o)
			if got := told(c.hosts, p); got != c.want {
				t.Errorf("placed\n%s, want\n%s", got, c.want)
			}
			for _, u := range p.Units {
				if !strings.Contains(u.Why, "Placed") || len(u.Why) < 40 {
					t.Errorf("a unit is there because: %q", u.Why)
				}
			}
		})
	}
}

// 24 replicas of one pool over racks that hold 18 each are 12 and 12.
func TestAPoolOverTwoDomainsIsSplitEvenly(t *testing.T) {
	r := whole(4)
	r.Pools[0].Replicas = 24
	hosts := fleet(rack("r1"), rack("r2"), rack("r3"))
	p := planned(t, hosts, wants(demand("a", 1, r)), nil, lenient)
	count := map[string]int{}
	for _, rep := range p.Units[0].Pools[0].Replicas {
		count[rep.Domain]++
	}
	if len(count) != 2 || count["r1"] != 12 || count["r2"] != 12 {
		t.Errorf("split as %v", count)
	}
}

// Two of the largest units need four racks of 72, and each keeps its spares.
func TestLargestUnits(t *testing.T) {
	all, err := recipe.Starter()
	if err != nil {
		t.Fatal(err)
	}
	var large *recipe.Recipe
	for _, r := range all {
		if r.Name == "deepseek-v4.1-flash-sglang-64p64d" {
			large = r
		}
	}
	if large == nil {
		t.Fatal("the recipe is gone from the catalogue")
	}
	hosts := linkAll(fleet(rack("r1"), rack("r2"), rack("r3"), rack("r4"), rack("r5")), 400)
	p := planned(t, hosts, wants(demand("ds", 3, large)), nil, plan.Options{Spares: 8, SparesFrom: 72, AllowUnmet: true})
	if len(p.Units) != 2 || len(p.Unmet) != 1 || p.Unmet[0].Units != 1 {
		t.Errorf("placed\n%s", told(hosts, p))
	}
	for _, u := range p.Units {
		for _, pool := range u.Pools {
			if r := pool.Replicas; len(r) != 1 || len(r[0].Shards) != 16 {
				t.Errorf("a pool has %d replicas, the first of %d shards", len(r), len(r[0].Shards))
			}
		}
	}
}

// Refusals say what is wrong with which hosts, the most common first.
func TestRefusalsTell(t *testing.T) {
	floor := &recipe.Recipe{Name: "x", Hardware: []recipe.Floor{{Arch: []string{"sm100"}, Toolchain: map[string]string{"cuda": "13.0"}}}, Pools: []recipe.Pool{{Role: recipe.Whole, GPUs: 4}}}
	old := machine("b1", 8, blackwell)
	old.Toolchain["cuda"] = "12.10"
	for _, c := range []struct {
		name    string
		hosts   []plan.Host
		demands []plan.Demand
		o       plan.Options
		want    []string
	}{
		{"floor", fleet(machine("h7", 8)), wants(demand("a", 1, floor)), lenient, []string{"needs SM100 with CUDA 13.0; host h7 has SM90, CUDA 12.8"}},
		{"the most common first", fleet(old, machine("h1", 8), machine("h2", 8), machine("h3", 8), machine("h4", 8), machine("h5", 8)), wants(demand("a", 1, floor)), lenient,
			[]string{"needs SM100 with CUDA 13.0; 5 hosts (h1, h2, h3 and 2 more) have SM90, CUDA 12.8", "needs SM100 with CUDA 13.0; host b1 has CUDA 12.10"}},
		{"states", fleet(machine("h1", 8, cordoned), machine("h2", 8, lost), machine("h3", 8, leaving), machine("h4", 8, unknown)), wants(demand("a", 1, whole(8))), lenient,
			[]string{"host h1 is cordoned", "host h3 is leaving: drained, or soon in maintenance", "host h2 is lost: not heard of", "host h4 is of unknown topology: the fabric does not tell its state"}},
		{"kind", fleet(machine("h1", 8, kind(plan.Spot))), wants(demand("a", 1, whole(8), only(plan.Reserved, plan.OnDemand))), lenient, []string{"allows reserved or on-demand capacity; host h1 is spot"}},
		{"room", fleet(machine("h1", 8, taken(0, 1))), wants(demand("a", 1, whole(8))), lenient, []string{"a replica needs 8 GPUs in one domain; host h1 has 6 free"}},
		{"spares", fleet(rack("r1")[:4]), wants(demand("a", 1, whole(16))), plan.Options{Spares: 4, SparesFrom: 16, AllowUnmet: true},
			[]string{"a replica needs 16 GPUs in one domain; domain r1 has 12 free beside 4 spares"}},
		{"unmeasured", fleet(machine("h1", 8), machine("h2", 8)), wants(demand("a", 1, pair(8, 200))), lenient,
			[]string{"prefill and decode need a link of 200 Gbit/s; link h1-h2 is not measured, and nothing is assumed"}},
		{"slow", linkAll(fleet(machine("h1", 8), machine("h2", 8)), 40), wants(demand("a", 1, pair(8, 200))), lenient,
			[]string{"prefill and decode need a link of 200 Gbit/s; link h1-h2 is measured at 40"}},
		{"networks", fleet(machine("h1", 8, network("x")), machine("h2", 8, network("y"))), wants(demand("a", 1, pair(8, 0))), lenient,
			[]string{"the pools of a unit are in one network; 2 domains (h1 and h2) are without room for the others in its network"}},
		{"nothing at all", nil, wants(demand("a", 1, whole(8))), lenient, []string{"there are no hosts"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := planned(t, c.hosts, c.demands, nil, c.o)
			if len(p.Unmet) != 1 || strings.Join(p.Unmet[0].Reasons, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("refused with\n%q, want\n%q", p.Unmet[0].Reasons, c.want)
			}
			strict := c.o
			strict.AllowUnmet = false
			if _, err := plan.Make(c.hosts, c.demands, nil, strict); fault.Of(err).Kind != fault.Conflict || !strings.Contains(err.Error(), c.want[0]) {
				t.Errorf("when all must be placed: %v", err)
			}
		})
	}
}

func TestSenselessDemandsAreRefused(t *testing.T) {
	for name, demands := range map[string][]plan.Demand{
		"no recipe": wants(demand("a", 1, nil)),
		"twice":     wants(demand("a", 1, whole(1)), demand("a", 2, whole(1))),
		"negative":  wants(demand("a", -1, whole(1))),
	} {
		if _, err := plan.Make(fleet(machine("h1", 8)), demands, nil, lenient); fault.Of(err).Kind != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
