package catalogue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// join makes the units of several engines, once all engines are known. Parents whose engines are whole ones, each of which
// answers by itself, are nothing to gateways: these are units.
func (c *Catalogue) join(old, s *snapshot, models map[ids.ID]*Model, rows []q.CatalogueUnitsRow) {
	parts := map[ids.ID][]*Unit{}
	for i := range rows {
		row := &rows[i]
		if u := s.units[row.ID]; u != nil && row.PartOf != nil && row.Role != engine.Whole {
			parts[*row.PartOf] = append(parts[*row.PartOf], u)
		}
	}
	for i := range rows {
		row := &rows[i]
		model := models[row.ModelID]
		if row.Parts == 0 || model == nil || len(parts[row.ID]) == 0 {
			continue
		}
		u := old.units[row.ID]
		if u == nil || u.key != keyOf(row) || !slices.Equal(u.Parts, ordered(parts[row.ID])) {
			var err error
			if u, err = newJoined(row, parts[row.ID]); err != nil {
				slog.Error("catalogue: a unit cannot be used", "unit", row.Name, "cause", err)
				continue
			}
		}
		s.units[u.ID] = u
		model.Units = append(model.Units, u)
	}
}

// handing is how a recipe says that engines hand over.
type handing struct {
	Backend   string `json:"backend"`
	Mode      string `json:"mode"`
	MaxPrompt int64  `json:"max_local_prompt"`
}

func newJoined(row *q.CatalogueUnitsRow, parts []*Unit) (*Unit, error) {
	var h handing
	if err := json.Unmarshal(row.Transfer, &h); err != nil {
		return nil, fmt.Errorf("catalogue: the recipe's transfer: %w", err)
	}
	u, err := Join(Spec{ID: row.ID, Name: row.Name, Model: row.ModelID, Engine: engine.Family(row.Engine), UpstreamModel: row.UpstreamModel},
		engine.Transfer{Backend: h.Backend, Mode: h.Mode}, h.MaxPrompt, parts)
	if err == nil {
		u.key = keyOf(row)
	}
	return u, err
}

// Join makes one unit of engines that hand prompts over.
func Join(s Spec, t engine.Transfer, maxPrompt int64, parts []*Unit) (*Unit, error) {
	driver, err := engine.Lookup(s.Engine)
	if err != nil {
		return nil, err
	}
	u := &Unit{ID: s.ID, Name: s.Name, Model: s.Model, Driver: driver, UpstreamModel: s.UpstreamModel, Role: engine.Whole, Parts: ordered(parts), MaxPrompt: maxPrompt}
	if u.Handoff, err = engine.HandoffOf(driver, t); err != nil {
		return nil, err
	}
	first := u.first(engine.Prefill)
	if first == nil || u.first(engine.Decode) == nil {
		return nil, fmt.Errorf("catalogue: %s needs an engine for prefill and one for decode", s.Name)
	}
	u.ids = map[string][]ids.ID{}
	for _, p := range u.Parts {
		u.ids[p.Role] = append(u.ids[p.Role], p.ID)
	}
	u.Base, u.Transport, u.Host, u.Attached = first.Base, first.Transport, first.Host, first.Attached // for questions
	return u, nil
}

func ordered(parts []*Unit) []*Unit {
	sorted := slices.Clone(parts)
	slices.SortFunc(sorted, func(a, b *Unit) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

func (u *Unit) first(role string) *Unit {
	for _, p := range u.Parts {
		if p.Role == role {
			return p
		}
	}
	return nil
}

// Engines gives what serves a unit: its parts, or itself.
func (u *Unit) Engines() []*Unit {
	if len(u.Parts) > 0 {
		return u.Parts
	}
	return []*Unit{u}
}

// IDs gives the parts of a role.
func (u *Unit) IDs(role string) []ids.ID { return u.ids[role] }

// Part finds a part.
func (u *Unit) Part(id ids.ID) *Unit {
	for _, p := range u.Parts {
		if p.ID == id {
			return p
		}
	}
	return nil
}
