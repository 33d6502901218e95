package plan

// repair deals with broken units before anything else is placed: first all that can be mended, then, the weightiest demand
// first, the others are replaced as a whole, made smaller, or given up. Units that are smaller than they should be grow.
func (m *maker) repair() {
	lasting := make([][]*held, len(m.sets))
	for i := range m.sets {
		m.countCrowd(m.sets[i].well)
		for _, h := range m.sets[i].broken {
			if m.mend(h, false) {
				m.mended(i, h)
			} else {
				lasting[i] = append(lasting[i], h)
			}
		}
	}
	for i, hs := range lasting {
		for _, h := range hs {
			m.replace(i, h)
		}
	}
	for i := range m.sets {
		for _, h := range m.sets[i].well {
			if h.shrunk {
				m.grow(h)
			}
		}
	}
}

// mended files a unit that was put right: it stays, unless others of its hosts leave.
func (m *maker) mended(i int, h *held) {
	h.leaving = ""
	h.each(func(_, _ int, rep *Replica) {
		for _, s := range rep.Shards {
			if host := &m.b.hosts[m.b.byID[s.Host]]; host.Leaving {
				h.leaving = "host " + host.Name + " is leaving"
			}
		}
	})
	if h.leaving != "" {
		m.sets[i].leaving = append(m.sets[i].leaving, h)
		return
	}
	m.sets[i].well = append(m.sets[i].well, h)
	m.countCrowd([]*held{h})
}

// replace puts another unit in the place of a broken one, or makes it smaller, or gives it up.
func (m *maker) replace(i int, h *held) {
	w, why := m.b.wants[i], h.why()
	m.drop(h, why+": another unit replaces it")
	if got := m.b.choices(w, 1); len(got) > 0 {
		m.addUnit(w, got[0].seats, "It replaces a unit that cannot serve ("+why+"). ")
		return
	}
	h.gone = ""
	delete(m.texts, h.unit.ID)
	m.seat(h)
	if m.mend(h, true) {
		m.mended(i, h)
		return
	}
	m.drop(h, why+", and there is no room for it elsewhere")
}
