package fleet

import (
	"fmt"
	"slices"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/recipe"
)

// models counts what serves, so that what is stopped on purpose never is the last.
type models struct {
	serving map[ids.ID]int // units by model that serve and would go on, those of no plan among them
	wanted  map[ids.ID]int // units by model that the plan wants to stay
}

func (w *world) count() models {
	m := models{map[ids.ID]int{}, map[ids.ID]int{}}
	for _, u := range w.units {
		if w.serves(u) {
			m.serving[u.model]++
		}
	}
	for i := range w.others {
		if p := w.part(&w.others[i], nil); p.Seen.State == wire.StateReady && !p.Seen.Lost {
			m.serving[w.others[i].ModelID]++
		}
	}
	if w.plan != nil {
		for i := range w.plan.body.Units {
			if u := &w.plan.body.Units[i]; u.Ends == "" {
				m.wanted[u.Model]++
			}
		}
	}
	return m
}

// serves reports whether a unit does its work: by its state, and with every needed role on hardware that is there.
func (w *world) serves(u *unit) bool {
	if u.row.State != Serving {
		return false
	}
	for _, role := range w.needed(u) {
		if !slices.ContainsFunc(u.groups, func(g *group) bool { return g.role == role && g.serves() }) {
			return false
		}
	}
	return true
}

func (g *group) serves() bool {
	return g.state() == Serving && !slices.ContainsFunc(g.parts, func(p Part) bool { return p.Seen.Lost || p.Seen.Broken != "" })
}

// needed is the roles without which a unit cannot serve. Decode that may compute short prompts itself does without prefill.
func (w *world) needed(u *unit) (out []string) {
	r := w.recipes[u.release]
	if r == nil {
		return []string{u.row.Role}
	}
	for i := range r.Pools {
		if role := r.Pools[i].Role; role != recipe.Prefill || r.Transfer == nil || r.Transfer.MaxPrompt == 0 {
			out = append(out, role)
		}
	}
	return out
}

// view is a unit as the state machine sees it.
func (w *world) view(u *unit, m models) Unit {
	v := Unit{State: u.row.State, Needed: w.needed(u)}
	switch {
	case u.want == nil:
		v.Leaving = "the plan no longer wants it"
	case u.want.Ends != "":
		v.Leaving = u.want.Ends
	}
	v.MayLeave = v.Leaving != "" && w.mayLeave(u, m)
	moved := false // one group at a time
	for _, g := range u.groups {
		row := g.rows[0]
		x := Group{Role: g.role, Replica: g.replica, State: row.State, Since: millis(row.StateMs), Tries: int(row.Tries), Text: row.StateText, Parts: g.parts}
		if u.want != nil {
			x.Reshape = w.reshape(g)
			x.Drop = g.want == nil
			x.Moves = x.Reshape != "" && !moved && w.mayMove(u, g, m)
			moved = moved || x.Moves
		}
		x.Room = w.room(u, g)
		v.Groups = append(v.Groups, x)
	}
	return v
}

// mayLeave reports whether a unit that is to go may be drained now. What does not serve is no loss.
func (w *world) mayLeave(u *unit, m models) bool {
	if !w.serves(u) || m.wanted[u.model] == 0 {
		return true
	}
	if u.want != nil && u.want.Heir != ids.Nil {
		if heir := w.byID[u.want.Heir]; heir == nil || !w.serves(heir) {
			return false
		}
	}
	return m.serving[u.model] > 1
}

// mayMove reports whether a group that serves may be restarted in another shape: when others do its work meanwhile.
func (w *world) mayMove(u *unit, g *group, m models) bool {
	if !g.serves() || !w.serves(u) || m.serving[u.model] > 1 {
		return true
	}
	return slices.ContainsFunc(u.groups, func(o *group) bool { return o != g && o.role == g.role && o.serves() })
}

// room says what stands in the way of a planned group's start.
func (w *world) room(u *unit, g *group) string {
	switch {
	case g.state() != Planned:
		return ""
	case g.want != nil && w.homeless(g.want):
		return "a host that it was planned on was removed"
	}
	for i := range g.rows {
		row := &g.rows[i]
		h := w.hosts[*row.HostID]
		switch {
		case h == nil:
			return "its host was removed"
		case h.lost:
			return "host " + h.Name + " is not heard of"
		case h.Cordoned && row.Tries == 0 && row.State == Planned && u.row.State == Planned:
			return "host " + h.Name + " is cordoned"
		case h.stray && len(row.Gpus) > 0:
			return "host " + h.Name + " still runs what it was not told to"
		case g.parts[i].Seen.Broken != "":
			return g.parts[i].Seen.Broken
		}
		for _, gpu := range gpusOf(row) {
			if by := h.held[gpu]; by != "" {
				return fmt.Sprintf("GPU %d of host %s is held by %s", gpu, h.Name, by)
			}
		}
	}
	return ""
}

// note counts what a step takes out of service, or gives GPUs to, for the units decided after it.
func (w *world) note(u *unit, s Step, m models) {
	if w.serves(u) && s.State != Serving {
		m.serving[u.model]--
	}
	for _, c := range s.Changes {
		g := u.groups[c.Group]
		if c.To != Starting {
			continue
		}
		for i := range g.rows {
			if h := w.hosts[*g.rows[i].HostID]; h != nil {
				h.hold(gpusOf(&g.rows[i]), u.name)
			}
		}
	}
}
