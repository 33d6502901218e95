package plan

import (
	"fmt"
	"strings"
)

// whyHere says why a unit is put where it is, and not at the next best place.
func (m *maker) whyHere(w *want, seats []seat) string {
	before := m.b.score
	m.b.place(w, seats)
	cost, left := m.b.score.minus(before), 0
	if c := seats[0].cell; c >= 0 {
		left = m.b.cells[c].room()
	}
	m.b.unplace(w, seats)
	var text strings.Builder
	fmt.Fprintf(&text, "Placed %s", m.seatsText(w, seats))
	if seats[0].cell < 0 {
		return text.String() + ", which has fewest engines without a GPU."
	}
	c := &m.b.cells[seats[0].cell]
	switch {
	case c.used > 0:
		fmt.Fprintf(&text, ": %s was started already, %s of its room stay free.", c.label, gpus(left))
	default:
		fmt.Fprintf(&text, ": no started domain was better, %s of its room stay free.", gpus(left))
	}
	for others := m.b.pools(w, 0, nil, -1, false); len(others) > 0; {
		if alt := others.pop(); alt.seats[0].cell != seats[0].cell {
			fmt.Fprintf(&text, " Next best was %s: %s.", m.b.cells[alt.seats[0].cell].label, worse(alt.delta, cost, alt.left, left))
			return text.String()
		}
	}
	return text.String() + " Every other place is like it, or closed to it."
}

// worse says in what a place is worse than another: the first term that differs.
func worse(a, b Score, leftA, leftB int) string {
	switch {
	case a.Kind > b.Kind:
		return "dearer capacity"
	case a.Scatter > b.Scatter:
		return "it would be over more domains"
	case a.Crowd > b.Crowd:
		return "it shares a failure domain with more units of the demand"
	case a.Stranded > b.Stranded:
		return fmt.Sprintf("it would leave %s more in started domains and hosts", gpus(int(a.Stranded-b.Stranded)))
	case a.Stranded == b.Stranded && leftA > leftB:
		return fmt.Sprintf("a looser fit, %s would stay free", gpus(leftA))
	case a == b:
		return "as good, and later in the order of names"
	}
	return "it is kept for units that come after this one, or does not suit its other pools"
}

// seatsText says where a unit's pools are: "prefill on h1 (reserved), decode on h2 (reserved)".
func (m *maker) seatsText(w *want, seats []seat) string {
	var parts []string
	for n := range w.needs {
		var names []string
		kind := ""
		for i := range seats {
			if seats[i].need != n {
				continue
			}
			for _, s := range seats[i].slots {
				h := s
				if seats[i].cell >= 0 {
					h = m.b.slots[s].host
				}
				names = appendNew(names, m.b.hosts[h].Name)
				kind = words(m.b.hosts[h].Kind)
			}
		}
		text := "on " + short(names)
		if kind != "" {
			text += " (" + kind + ")"
		}
		if len(w.needs) > 1 {
			text = w.needs[n].role + " " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
