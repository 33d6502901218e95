package plan

import "millrace/internal/ids"

// handOver ends units whose place others take: those on hosts that leave, and those of a release that is not wanted any
// more. As many of them stay as others are missing.
func (m *maker) handOver(unmet []int) {
	spare := map[ids.ID]int{} // model -> units missing that no leaving one stands in for
	for i, w := range m.b.wants {
		stay := min(unmet[i], len(m.sets[i].leaving))
		spare[w.d.Model] += unmet[i] - stay
		for j, h := range m.sets[i].leaving[stay:] {
			h.end(m, &m.fresh[i][j%len(m.fresh[i])], h.leaving)
		}
	}
	heirs := map[ids.ID][]*Unit{}
	for i, w := range m.b.wants {
		for j := range m.fresh[i] {
			heirs[w.d.Model] = append(heirs[w.d.Model], &m.fresh[i][j])
		}
	}
	for i, w := range m.b.wants {
		for _, h := range m.sets[i].well {
			heirs[w.d.Model] = append(heirs[w.d.Model], &h.unit)
		}
	}
	next := map[ids.ID]int{}
	for _, h := range m.units {
		of := heirs[h.unit.Model]
		switch {
		case h.want != nil || h.gone != "" || h.unit.Ends != "" || len(of) == 0:
		case spare[h.unit.Model] > 0:
			spare[h.unit.Model]--
		default:
			h.end(m, of[next[h.unit.Model]%len(of)], "another release is wanted")
			next[h.unit.Model]++
		}
	}
	for i, w := range m.b.wants {
		for _, h := range m.sets[i].leaving {
			if h.unit.Ends == "" {
				heirs[w.d.Model] = append(heirs[w.d.Model], &h.unit)
			}
		}
	}
	m.orphans(heirs)
}

// orphans finds other heirs for units whose heir is gone; those for which there is none stay.
func (m *maker) orphans(heirs map[ids.ID][]*Unit) {
	there := map[ids.ID]bool{}
	for _, h := range m.units {
		there[h.unit.ID] = h.gone == ""
	}
	for i := range m.fresh {
		for j := range m.fresh[i] {
			there[m.fresh[i][j].ID] = true
		}
	}
	for _, h := range m.units {
		if h.gone != "" || h.unit.Ends == "" || there[h.unit.Heir] {
			continue
		}
		if of := heirs[h.unit.Model]; len(of) > 0 {
			h.end(m, of[0], "the unit that was to take over is gone")
		} else {
			h.unit.Ends, h.unit.Heir = "", ids.Nil
		}
	}
}

func (h *held) end(m *maker, heir *Unit, why string) {
	h.unit.Ends = why + "; it serves until " + ids.Format(ids.Unit, heir.ID) + " has taken over"
	h.unit.Heir = heir.ID
	m.texts[h.unit.ID] = h.unit.Ends
}
