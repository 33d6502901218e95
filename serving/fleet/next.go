package fleet

import (
	"fmt"
	"slices"
	"time"

	"millrace/agents/wire"
)

// Next is what happens to a unit now. It is pure, and level-triggered: it asks what is, not what happened.
func Next(u Unit, l Limits) Step {
	var s Step
	if u.Leaving != "" && (u.MayLeave || u.State == Planned || u.State == Draining || u.State == Stopped) {
		s = leave(u, l)
	} else {
		s = stay(u, l)
	}
	if len(u.Groups) == 0 && !s.Remove {
		return Step{State: u.State}
	}
	states := make([]string, len(u.Groups))
	for i, g := range u.Groups {
		states[i] = g.State
	}
	for _, c := range s.Changes {
		states[c.Group] = c.To
		if s.Text == "" {
			s.Text = c.Text
		}
	}
	s.State = unitState(u, states)
	return s
}

// leave takes a unit out of service, and away once nothing of it runs.
func leave(u Unit, l Limits) (s Step) {
	gone := true
	for i, g := range u.Groups {
		to, text := g.State, u.Leaving
		switch g.State {
		case Serving:
			to = Draining
		case Draining:
			if why := drained(g, l); why != "" {
				to, text = Stopped, why
			}
		case Planned, Starting, Ready, Faulted:
			to = Stopped
		}
		if to != g.State {
			s.Changes = append(s.Changes, Change{Group: i, To: to, Text: text})
		}
		gone = gone && to == Stopped && g.State == Stopped && g.gone()
	}
	s.Remove = gone
	if gone {
		s.Text = "gone: " + u.Leaving
	}
	return s
}

// stay brings a unit towards service.
func stay(u Unit, l Limits) (s Step) {
	fresh := isFresh(u)
	for i := range u.Groups {
		g := &u.Groups[i]
		c := Change{Group: i, Tries: g.Tries}
		c.To, c.Text = g.next(l)
		switch {
		case g.Drop && c.To != Serving && c.To != Draining:
			c.To, c.Drop = Stopped, g.State == Stopped && g.goneOrLost()
		case c.To == Faulted && fresh:
			return fail(u, i, c.Text) // a gang that never served fails as a whole
		case c.To == Starting && g.State == Planned && !maySetOut(u, fresh),
			c.To == Serving && g.State == Ready && !mayServe(u, fresh),
			c.To == Planned && g.State == Faulted && !worthIt(u, l):
			continue
		case c.To == Serving:
			c.Tries = 0
		case c.To == Planned:
			c.Shape = g.Reshape != ""
			if c.Shape {
				c.Tries = 0
			} else if g.State == Faulted {
				c.Tries++
			}
		}
		if c.To != g.State || c.Shape || c.Drop || c.Text != g.Text && g.State == Planned {
			s.Changes = append(s.Changes, c)
		}
	}
	return s
}

// isFresh reports whether the unit is coming up for the first time, or all anew: nothing of it serves or was serving.
func isFresh(u Unit) bool {
	return !slices.ContainsFunc(u.Groups, func(g Group) bool { return g.State != Planned && g.State != Starting && g.State != Ready })
}

// fail faults every group because of one.
func fail(u Unit, by int, why string) (s Step) {
	for i, g := range u.Groups {
		text := why
		if i != by {
			text = fmt.Sprintf("%s %d failed: %s", u.Groups[by].Role, u.Groups[by].Replica, why)
		}
		s.Changes = append(s.Changes, Change{Group: i, To: Faulted, Text: text, Tries: g.Tries})
	}
	s.Text = why
	return s
}

// next is where the group would go by itself, with the reason.
func (g *Group) next(l Limits) (to, text string) {
	switch g.State {
	case Planned:
		switch {
		case g.Reshape != "":
			return Planned, g.Reshape
		case g.Room == "":
			return Starting, ""
		}
		return Planned, "waits: " + g.Room
	case Starting, Ready:
		if why := g.failed(l); why != "" {
			return Faulted, why
		}
		switch {
		case g.State == Ready:
			return Serving, ""
		case g.ready():
			return Ready, "every engine has generated"
		case g.Since >= l.Progress:
			return Faulted, fmt.Sprintf("not ready after %s%s", l.Progress, g.behind())
		}
	case Serving:
		broken := g.broken()
		switch {
		case broken != "":
			return Draining, broken
		case g.engineFault() != "":
			return Faulted, g.engineFault()
		case g.Reshape != "" && g.Moves:
			return Draining, g.Reshape
		}
	case Draining:
		switch {
		case g.Reshape == "" && g.broken() == "" && g.alive():
			return Serving, "in service again"
		case drained(*g, l) != "":
			return Stopped, g.Text
		}
	case Stopped:
		return g.again(g.Text)
	case Faulted:
		if g.Reshape == "" && (g.Since < pause(g.Tries, l) || g.Tries >= l.Tries) {
			break
		}
		return g.again(g.Text)
	}
	return g.State, g.Text
}

// again is the way back of a group whose engines are to be gone: to planned when they are, and its hardware works.
func (g *Group) again(text string) (string, string) {
	switch {
	case !g.gone() && g.Reshape == "", !g.goneOrLost():
		return g.State, text
	case g.Reshape != "":
		return Planned, g.Reshape
	case g.broken() != "":
		return Faulted, g.broken()
	}
	return Planned, "tried again"
}

// maySetOut reports whether planned groups may start: all that the unit needs together, or none.
func maySetOut(u Unit, fresh bool) bool {
	if fresh {
		return !slices.ContainsFunc(u.Groups, func(g Group) bool { return g.State == Planned && g.Room != "" })
	}
	return covered(u, func(g Group) bool {
		return g.State == Serving || g.State == Ready || g.State == Starting || g.State == Planned && g.Room == ""
	})
}

// mayServe reports whether ready groups may take work: the whole gang at first, later whatever covers every role.
func mayServe(u Unit, fresh bool) bool {
	up := func(g Group) bool { return g.State == Ready || g.State == Serving }
	if fresh {
		return !slices.ContainsFunc(u.Groups, func(g Group) bool { return !up(g) })
	}
	return covered(u, up)
}

// worthIt reports whether starting failed groups again could make a unit that serves.
func worthIt(u Unit, l Limits) bool {
	return covered(u, func(g Group) bool {
		return g.State != Faulted || g.Reshape != "" || g.broken() == "" && g.Tries < l.Tries
	})
}

// covered reports whether every role that is needed has a group that is so.
func covered(u Unit, is func(Group) bool) bool {
	for _, role := range u.Needed {
		if !slices.ContainsFunc(u.Groups, func(g Group) bool { return g.Role == role && is(g) }) {
			return false
		}
	}
	return true
}

// drained says why a drain is over; "" = it is not.
func drained(g Group, l Limits) string {
	limit := l.Drain
	if g.broken() != "" {
		limit = l.Fault
	}
	over := true
	for _, p := range g.Parts {
		over = over && (p.Seen.Gone || p.Seen.Lost || p.Seen.Idle && g.Since >= l.Settle)
	}
	switch {
	case over:
		return "drained"
	case g.Since >= limit:
		return fmt.Sprintf("not drained after %s", limit)
	}
	return ""
}

// failed says why a group that should come up will not; "" = it may.
func (g *Group) failed(l Limits) string {
	if why := g.broken(); why != "" {
		return why
	}
	if why := g.engineFault(); why != "" {
		return why
	}
	for _, p := range g.Parts {
		if p.Seen.Lost && g.Since >= l.Repair {
			return "host " + p.Name + " is not heard of"
		}
	}
	return ""
}

// broken says what of its hardware failed.
func (g *Group) broken() string {
	for _, p := range g.Parts {
		if p.Seen.Broken != "" {
			return p.Seen.Broken
		}
	}
	return ""
}

func (g *Group) engineFault() string {
	for _, p := range g.Parts {
		if p.Seen.State == wire.StateFaulted && !p.Seen.Lost {
			return "on host " + p.Name + ": " + p.Seen.Text
		}
	}
	return ""
}

// alive reports whether its engines run and work, draining or not.
func (g *Group) alive() bool {
	return !slices.ContainsFunc(g.Parts, func(p Part) bool {
		return p.Seen.Lost || p.Seen.State != wire.StateReady && p.Seen.State != wire.StateDraining
	})
}

func (g *Group) ready() bool {
	return !slices.ContainsFunc(g.Parts, func(p Part) bool { return p.Seen.State != wire.StateReady || p.Seen.Lost })
}

// behind names the first engine that is not ready.
func (g *Group) behind() string {
	for _, p := range g.Parts {
		if p.Seen.State != wire.StateReady {
			text := ": on host " + p.Name + " it is " + p.Seen.State
			if p.Seen.State == "" {
				text = ": host " + p.Name + " has not taken it"
			}
			if p.Seen.Text != "" {
				text += ", " + p.Seen.Text
			}
			return text
		}
	}
	return ""
}

func (g *Group) gone() bool {
	return !slices.ContainsFunc(g.Parts, func(p Part) bool { return !p.Seen.Gone })
}

func (g *Group) goneOrLost() bool {
	return !slices.ContainsFunc(g.Parts, func(p Part) bool { return !p.Seen.Gone && !p.Seen.Lost })
}

func pause(tries int, l Limits) time.Duration {
	return min(l.Pause<<min(tries, 16), l.MaxPause)
}

// unitState is a unit's state by those of its groups.
func unitState(u Unit, states []string) string {
	has := func(state string) bool { return slices.Contains(states, state) }
	next := u
	next.Groups = slices.Clone(u.Groups)
	for i := range states {
		next.Groups[i].State = states[i]
	}
	switch {
	case covered(next, func(g Group) bool { return g.State == Serving }):
		return Serving
	case u.Leaving != "" && (has(Draining) || has(Serving)):
		return Draining
	case u.Leaving != "" && u.MayLeave:
		return Stopped
	case len(states) == 1:
		return states[0]
	case has(Faulted) || has(Stopped) || has(Draining) || has(Serving):
		return Faulted
	case has(Starting):
		return Starting
	case has(Planned):
		return Planned
	}
	return Ready
}
