package plan_test

import (
	"slices"
	"strings"
	"testing"

	"millrace/internal/ids"
	"millrace/serving/plan"
)

// kinds lists a plan's moves: "remove add".
func moved(p *plan.Plan) string {
	var all []string
	for _, m := range p.Moves {
		all = append(all, m.Kind)
	}
	return strings.Join(all, " ")
}

// What happens to units that are there.
func TestChanges(t *testing.T) {
	three := fleet(machine("h1", 8), machine("h2", 8), machine("h3", 8))
	two := three[:2]
	racks := fleet(rack("r1")[:5])
	full := "[0 1 2 3 4 5 6 7]"
	spares := plan.Options{Spares: 4, SparesFrom: 16, AllowUnmet: true, MaxLost: 1}
	never := plan.Options{AllowUnmet: true, MaxLost: 1}
	for _, c := range []struct {
		name       string
		hosts      []plan.Host
		was, is    []plan.Demand
		now        []plan.Host
		o          plan.Options
		want, move string
	}{
		{"what is well stays, though a better place is free", fleet(machine("h1", 8, kind(plan.Spot))), wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))),
			fleet(machine("h1", 8, kind(plan.Spot)), machine("h2", 8)), lenient, "a whole h1" + full + "\n", ""},
		{"a new release is placed beside the old", two, wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8), release("2"))), two, lenient,
			"a whole h1" + full + " ends\na whole h2" + full + "\n", "replace add"},
		{"a new release without room waits", two, wants(demand("a", 2, whole(8))), wants(demand("a", 2, whole(8), release("2"))), two, lenient,
			"a whole h1" + full + "\na whole h2" + full + "\na unmet 2\n", "refuse"},
		{"a new release with some room rolls", three, wants(demand("a", 2, whole(8))), wants(demand("a", 2, whole(8), release("2"))), three, lenient,
			"a whole h1" + full + "\na whole h2" + full + " ends\na whole h3" + full + "\na unmet 1\n", "replace add refuse"},
		{"fewer units", three, wants(demand("a", 3, whole(8))), wants(demand("a", 1, whole(8))), three, lenient, "a whole h1" + full + "\n", "remove remove"},
		{"fewer units: spot goes first", fleet(machine("h1", 8, kind(plan.Spot)), machine("h2", 8)), wants(demand("a", 2, whole(8))), wants(demand("a", 1, whole(8))),
			fleet(machine("h1", 8, kind(plan.Spot)), machine("h2", 8)), lenient, "a whole h2" + full + "\n", "remove"},
		{"a model that nobody wants", two, wants(demand("a", 1, whole(8))), nil, two, lenient, "", "remove"},
		{"a leaving host is left behind another unit", two, wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), with(two, "h1", leaving), lenient,
			"a whole h1" + full + " ends\na whole h2" + full + "\n", "replace add"},
		{"a leaving host without room elsewhere", two[:1], wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), with(two[:1], "h1", leaving), lenient,
			"a whole h1" + full + "\na unmet 1\n", "refuse"},
		{"a cordoned host keeps what it has", two, wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), with(two, "h1", cordoned), lenient, "a whole h1" + full + "\n", ""},
		{"unknown topology keeps what it has", two, wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), with(two, "h1", unknown), lenient, "a whole h1" + full + "\n", ""},
		{"a lost host's unit moves", two, wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), with(two, "h1", lost), never, "a whole h2" + full + "\n", "repair"},
		{"a host that is gone", two, wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), two[1:], never, "a whole h2" + full + "\n", "repair"},
		{"a broken GPU: the replica moves within its host", two, wants(demand("a", 1, whole(4))), wants(demand("a", 1, whole(4))), with(two, "h1", faulty(1)), lenient,
			"a whole h1[0 2 3 4]\n", "repair"},
		{"a broken GPU in a rack: the spares take its shard", racks, wants(demand("a", 1, whole(16))), wants(demand("a", 1, whole(16))), with(racks, "r1-01", faulty(2)), spares,
			"a whole r1-00[0 1 2 3] r1-02[0 1 2 3] r1-03[0 1 2 3] r1-04[0 1 2 3]\n", "repair"},
		{"a broken GPU, and no room: a smaller EP size", two[:1], wants(demand("a", 1, experts(8))), wants(demand("a", 1, experts(8))), with(two[:1], "h1", faulty(2)), lenient,
			"a whole h1[0 1 3 4] EP4\n", "repair"},
		{"a broken GPU, room elsewhere: whole there", two, wants(demand("a", 1, experts(8))), wants(demand("a", 1, experts(8))), with(two, "h1", faulty(2)), lenient,
			"a whole h2" + full + "\n", "repair"},
		{"a broken GPU, and nothing to do", two[:1], wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8))), with(two[:1], "h1", faulty(2)), lenient,
			"a unmet 1\n", "remove refuse"},
		{"only the broken pool moves", linkAll(fleet(machine("h1", 8), machine("h2", 8), machine("h3", 8)), 400), wants(demand("a", 1, pair(8, 200))), wants(demand("a", 1, pair(8, 200))),
			with(linkAll(fleet(machine("h1", 8), machine("h2", 8), machine("h3", 8)), 400), "h2", faulty(0)), lenient,
			"a prefill h1" + full + " decode h3" + full + "\n", "repair"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := planned(t, c.hosts, c.was, nil, c.o)
			p := planned(t, c.now, c.is, before, c.o)
			if got := told(slices.Concat(c.now, c.hosts), p); got != c.want || moved(p) != c.move {
				t.Errorf("became\n%swith moves %q, want\n%swith %q\n%+v", got, moved(p), c.want, c.move, p.Moves)
			}
			for _, m := range p.Moves {
				if len(m.Text) < 20 {
					t.Errorf("a move says %q", m.Text)
				}
			}
		})
	}
}

// A unit that was made smaller after a fault grows when its GPU works again.
func TestASmallerUnitGrowsAgain(t *testing.T) {
	hosts, demands := fleet(machine("h1", 8)), wants(demand("a", 1, experts(8)))
	first := planned(t, hosts, demands, nil, lenient)
	second := planned(t, with(hosts, "h1", faulty(2)), demands, first, lenient)
	third := planned(t, hosts, demands, second, lenient)
	if told(hosts, third) != told(hosts, first) || moved(third) != "repair" || third.Units[0].ID != first.Units[0].ID {
		t.Errorf("became\n%swith %q", told(hosts, third), moved(third))
	}
}

// A release that is taken back before its units have taken over: the old ones stay after all.
func TestARollbackKeepsWhatStillServes(t *testing.T) {
	hosts := fleet(machine("h1", 8), machine("h2", 8))
	one, two := wants(demand("a", 1, whole(8))), wants(demand("a", 1, whole(8), release("2")))
	first := planned(t, hosts, one, nil, lenient)
	second := planned(t, hosts, two, first, lenient)
	third := planned(t, hosts, one, second, lenient)
	if moved(third) != "keep replace" || third.Units[0].Ends != "" || third.Units[1].Heir != third.Units[0].ID {
		t.Errorf("became\n%swith %q", told(hosts, third), moved(third))
	}
}

// Once a unit has ended it is left out, and the roll goes on with the room that it had.
func TestARollGoesOnWithTheRoomOfTheEnded(t *testing.T) {
	hosts := fleet(machine("h1", 8), machine("h2", 8), machine("h3", 8))
	next := wants(demand("a", 2, whole(8), release("2")))
	p := planned(t, hosts, wants(demand("a", 2, whole(8))), nil, lenient)
	for range 2 {
		p = planned(t, hosts, next, p, lenient)
		var ended []ids.ID
		for _, u := range p.Units {
			if u.Ends != "" {
				ended = append(ended, u.ID)
			}
		}
		p = p.Without(ended...)
	}
	if got := told(hosts, p); got != "a whole h3[0 1 2 3 4 5 6 7]\na whole h2[0 1 2 3 4 5 6 7]\n" || p.Units[0].Release != next[0].Release {
		t.Errorf("ended as\n%s", got)
	}
}

func TestAMassLossFreezes(t *testing.T) {
	hosts := fleet(machine("h1", 8), machine("h2", 8), machine("h3", 8), machine("h4", 8), machine("h5", 8))
	demands := wants(demand("a", 2, whole(8)))
	before := planned(t, hosts, demands, nil, lenient)
	now := with(with(hosts, "h1", lost), "h2", lost)
	p := planned(t, now, demands, before, lenient)
	if !strings.Contains(p.Frozen, "2 of 5 hosts (40 %)") || told(hosts, p) != told(hosts, before) || len(p.Moves) > 0 {
		t.Errorf("frozen %q:\n%s%v", p.Frozen, told(hosts, p), p.Moves)
	}
	one := planned(t, with(hosts, "h1", lost), demands, before, plan.Options{MaxLost: 0.01, AllowUnmet: true})
	if one.Frozen != "" || moved(one) != "repair" {
		t.Errorf("one host is no mass loss: %q, %q", one.Frozen, moved(one))
	}
}

func TestIdsOfNewUnits(t *testing.T) {
	hosts, demands := fleet(machine("h1", 8)), wants(demand("a", 2, whole(4)))
	a, b := planned(t, hosts, demands, nil, lenient), planned(t, hosts, demands, nil, plan.Options{AllowUnmet: true, Seed: "2"})
	if a.Units[0].ID == a.Units[1].ID || a.Units[0].ID == b.Units[0].ID {
		t.Error("ids are shared")
	}
	given := plan.Options{AllowUnmet: true, ID: func(d *plan.Demand, n int) ids.ID { return id(d.Name + string(rune('0'+n))) }}
	if p := planned(t, hosts, demands, nil, given); p.Units[1].ID != id("a1") {
		t.Errorf("the second unit is %v", p.Units[1].ID)
	}
}
