package plan

import (
	"fmt"

	"millrace/serving/recipe"
)

// maxPairs bounds how many pairs of domains a refusal looks at.
const maxPairs = 2_000

// refusePairs says why pools that each have a place have none together: the links between them, or the room beside.
func (m *maker) refusePairs(w *want, t *tally) {
	if len(w.needs) < 2 && w.needs[0].count < 2 {
		return
	}
	pairs := 0
	for a := range m.b.cells {
		first := m.b.fill(w, 0, a, 1, nil, -1)
		if first == nil || m.b.cells[a].size < w.needs[0].domain {
			continue
		}
		beside := false
		for i := range w.needs {
			if i == 0 && w.needs[0].count < 2 {
				continue
			}
			for c := range m.b.cells {
				if pairs++; pairs > maxPairs {
					return
				}
				second := m.b.fill(w, i, c, 1, nil, -1)
				if second == nil || c == a && m.b.cells[a].room() < w.needs[0].gpus+w.needs[i].gpus {
					continue
				}
				if m.b.cells[c].net != m.b.cells[a].net {
					continue
				}
				beside = true
				m.refuseLink(w, i, &first[0], &second[0], t)
			}
		}
		if !beside {
			t.add("domain", m.b.cells[a].label, reason{"the pools of a unit are in one network", "without room for the others in its network"})
		}
	}
}

// refuseLink adds the first link between two places that is too slow or not known.
func (m *maker) refuseLink(w *want, i int, a, b *seat, t *tally) {
	if w.reach == nil || !linked(w.needs[a.need].role, w.needs[i].role) {
		return
	}
	want := fmt.Sprintf("%s and %s need a link of %g Gbit/s", recipe.Prefill, recipe.Decode, w.d.Recipe.Transfer.MinGbps)
	for _, s := range a.slots {
		for _, q := range b.slots {
			x, y := m.b.slots[s].host, m.b.slots[q].host
			if w.reach.has(x, y) {
				continue
			}
			h, k := &m.b.hosts[x], &m.b.hosts[y]
			pair := min(h.Name, k.Name) + "-" + max(h.Name, k.Name)
			g, there := h.Links[k.ID]
			back, too := k.Links[h.ID]
			switch {
			case there && too:
				t.addOnce("link", pair, reason{want, fmt.Sprintf("measured at %g", min(g, back))})
			case there || too:
				t.addOnce("link", pair, reason{want, fmt.Sprintf("measured at %g", max(g, back))})
			default:
				t.addOnce("link", pair, reason{want, "not measured, and nothing is assumed"})
			}
			return
		}
	}
}

// addOnce is add for what is met from both sides.
func (t *tally) addOnce(noun, name string, r reason) {
	t.seen[refused{noun, r}] = appendNew(t.seen[refused{noun, r}], name)
}
