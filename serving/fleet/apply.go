package fleet

import (
	"context"

	"millrace/db/q"
	"millrace/internal/ids"
)

// apply makes a step in one transaction: all of it, or nothing when somebody else has changed what it was decided on.
func (e *Executor) apply(ctx context.Context, w *world, u *unit, s *Step) (bool, error) {
	specs := map[ids.ID][]byte{}
	for _, c := range s.Changes {
		if c.To != Starting {
			continue
		}
		if err := w.render(u, u.groups[c.Group], specs); err != nil {
			*s = fail(w.view(u, w.count()), c.Group, err.Error())
			for i := range s.Changes {
				s.Changes[i].Tries = e.cfg.Limits.Tries // only another plan or recipe helps
			}
			s.State = Faulted
			break
		}
	}
	err := e.proved(ctx, w, func(query *q.Queries) error {
		if s.Remove {
			return removeUnit(ctx, query, u, s.Text)
		}
		for _, c := range s.Changes {
			if err := w.change(ctx, query, u, c, specs); err != nil {
				return err
			}
		}
		if !u.single() && (s.State != u.row.State || s.Text != "") {
			if err := moved(query.MoveFleetUnit(ctx, q.MoveFleetUnitParams{ID: u.id, State: s.State, StateText: s.Text, Wanted: wantedOf(s.State),
				OldState: u.row.State, OldGeneration: u.row.Generation})); err != nil {
				return err
			}
		}
		if !s.tells(u) {
			return nil
		}
		return query.InsertUnitEvent(ctx, q.InsertUnitEventParams{ID: ids.New(), UnitID: u.id, State: s.State, Text: s.Text})
	})
	if err == nil && (s.Remove || s.tells(u)) {
		e.cfg.Log.Info("fleet: a unit moves", "unit", u.name, "from", u.row.State, "to", s.State, "reason", s.Text)
	}
	return err == nil, err
}

// tells reports whether a step is worth a line in the unit's history: a reason that only changed is not.
func (s *Step) tells(u *unit) bool {
	if s.State != u.row.State {
		return true
	}
	for _, c := range s.Changes {
		if c.To != u.groups[c.Group].state() {
			return true
		}
	}
	return false
}

// change moves a group's rows.
func (w *world) change(ctx context.Context, query *q.Queries, u *unit, c Change, specs map[ids.ID][]byte) error {
	g := u.groups[c.Group]
	switch {
	case c.Drop:
		return removeRows(ctx, query, g)
	case c.Shape:
		return w.giveShape(ctx, query, u, g, c)
	}
	for i := range g.rows {
		row := &g.rows[i]
		if err := moved(query.MoveFleetUnit(ctx, q.MoveFleetUnitParams{ID: row.ID, State: c.To, StateText: c.Text, Tries: int32(c.Tries), Wanted: wantedOf(c.To),
			Spec: specs[row.ID], OldState: row.State, OldGeneration: row.Generation})); err != nil {
			return err
		}
	}
	return nil
}

// moved turns a change that met no row into errMoved.
func moved(n int64, err error) error {
	if err == nil && n == 0 {
		return errMoved
	}
	return err
}

func removeUnit(ctx context.Context, query *q.Queries, u *unit, text string) error {
	for _, g := range u.groups {
		if err := removeRows(ctx, query, g); err != nil {
			return err
		}
	}
	if !u.single() {
		if err := moved(query.RemoveFleetUnit(ctx, q.RemoveFleetUnitParams{ID: u.id, OldGeneration: u.row.Generation})); err != nil {
			return err
		}
	}
	return query.InsertUnitEvent(ctx, q.InsertUnitEventParams{ID: ids.New(), UnitID: u.id, State: Stopped, Text: text})
}

func removeRows(ctx context.Context, query *q.Queries, g *group) error {
	for i := range g.rows {
		if err := moved(query.RemoveFleetUnit(ctx, q.RemoveFleetUnitParams{ID: g.rows[i].ID, OldGeneration: g.rows[i].Generation})); err != nil {
			return err
		}
	}
	return nil
}
