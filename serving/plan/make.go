package plan

import (
	"fmt"
	"slices"
	"strings"

	"millrace/internal/fault"
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
