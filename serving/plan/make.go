package plan

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Make plans. current is what was planned before, nil for nothing; units that have ended since should be left out of it
// (Without). It fails on demands that make no sense, and on what is unmet unless that is allowed.
func Make(hosts []Host, demands []Demand, current *Plan, o Options) (*Plan, error) {
	o = o.defaults()
	if p := frozen(hosts, current, &o); p != nil {
		return p, nil
	}
	f := newFleet(hosts, o)
	wants, err := newWants(f, demands)
	if err != nil {
		return nil, err
	}
	b := newBoard(f, wants)
	m := &maker{roster: newRoster(b, current), o: &o, parent: current.Digest(), fresh: make([][]Unit, len(wants)), counts: make([]int, len(wants))}
	m.sets = m.settle()
	m.repair()
	m.add()
	p := m.plan()
	p.Moves = p.diff(current, m.texts)
	if len(p.Unmet) > 0 && !o.AllowUnmet {
		u := &p.Unmet[0]
		return nil, fault.New(fault.Conflict, "%s of %s cannot be placed: %s.", units(u.Units), u.Name, strings.Join(u.Reasons, "; ")).WithCode("unplaceable")
	}
	return p, nil
}

// frozen is the current plan as it is, when too many hosts are lost at once: what looks like their end is likelier that of
// the way to them.
func frozen(hosts []Host, current *Plan, o *Options) *Plan {
	lost := 0
	for i := range hosts {
		if hosts[i].Lost {
			lost++
		}
	}
	if lost < minLost || float64(lost) <= o.MaxLost*float64(len(hosts)) {
		return nil
	}
	p := &Plan{Units: []Unit{}, Moves: []Move{}}
	if current != nil {
		for i := range current.Units {
			p.Units = append(p.Units, current.Units[i].clone())
		}
		p.Unmet, p.Score = slices.Clone(current.Unmet), current.Score
	}
	p.Frozen = fmt.Sprintf("%d of %d hosts (%d %%) are not heard of, which is more than %d %% at once: nothing is moved until they are back, or are taken out of the fleet", lost, len(hosts), lost*100/len(hosts), int(o.MaxLost*100))
	return p
}

// maker is one call of Make.
type maker struct {
	*roster
	o      *Options
	parent string
	sets   []sorted
	fresh  [][]Unit // by want, new units
	counts []int    // by want, ids given
}

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

// add places what is missing. It searches again until nothing more is found: what a search that ran out of steps passed
// over would else be found by the next plan.
func (m *maker) add() {
	score := m.b.score
	for {
		missing, some := make([]int, len(m.b.wants)), false
		for i, w := range m.b.wants {
			missing[i] = max(0, w.d.Units-len(m.sets[i].well)-len(m.fresh[i]))
			some = some || missing[i] > 0
		}
		m.b.score, m.b.steps = score, 0
		if !some {
			return
		}
		found := m.b.search(missing, m.o.MaxSteps)
		for _, u := range found.units {
			m.addUnit(m.b.wants[u.want], u.seats, "")
		}
		score = found.score
		if len(found.units) == 0 {
			m.b.score = score
			return
		}
		score.Unplaced = 0
	}
}

// addUnit places a unit and says why there.
func (m *maker) addUnit(w *want, seats []seat, because string) {
	why := because + m.whyHere(w, seats)
	m.b.place(w, seats) // for the score and the crowd
	for i := len(seats) - 1; i >= 0; i-- {
		score := m.b.score
		m.b.put(&seats[i], -1)
		m.b.score = score
	}
	id := newID(m.o, w.d, m.counts[w.index], m.parent)
	m.counts[w.index]++
	m.fresh[w.index] = append(m.fresh[w.index], m.build(w, seats, id, why))
}

// plan puts everything together.
func (m *maker) plan() *Plan {
	p := &Plan{Units: []Unit{}, Score: m.b.score}
	unmet := make([]int, len(m.b.wants))
	for i, w := range m.b.wants {
		unmet[i] = max(0, w.d.Units-len(m.sets[i].well)-len(m.fresh[i]))
	}
	m.handOver(unmet)
	for _, h := range m.units {
		if h.gone == "" {
			p.Units = append(p.Units, h.unit)
		}
	}
	for i := range m.fresh {
		p.Units = append(p.Units, m.fresh[i]...)
	}
	for i, w := range m.b.wants {
		if unmet[i] > 0 {
			p.Unmet = append(p.Unmet, Unmet{Model: w.d.Model, Release: w.d.Release, Name: w.d.Name, Units: unmet[i], Reasons: m.refusal(w, unmet[i])})
		}
	}
	return p
}

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
