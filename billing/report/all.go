package report

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// maxAllCells bounds a report over all customers before it is added up.
const maxAllCells = 500_000

// allCell is one customer's use of one model in one step.
type allCell struct {
	org, model ids.ID
	Sums
}

// allKey is a step over all customers.
type allKey struct{ start, stop int64 }

func (c *allCell) group(by string) ids.ID {
	switch by {
	case ByModel:
		return c.model
	case ByOrg:
		return c.org
	}
	return ids.Nil
}

// readAll gives the cells of each step, by its start.
func (s *Service) readAll(ctx context.Context, r *q.Queries, t steps) (map[int64][]allCell, error) {
	key := func(start, stop int64) allKey { return allKey{start, stop} }
	return readDays(&s.all, t, s.clock.Now(), key, func(t steps) (map[int64][]allCell, error) {
		rows, err := r.ReportAllCells(ctx, q.ReportAllCellsParams{Starts: t.starts, Stops: t.stops, MaxRows: maxAllCells + 1})
		if err != nil {
			return nil, err
		}
		if len(rows) > maxAllCells {
			return nil, fault.New(fault.Invalid, "This report adds up more than %d cells. Choose a shorter range or a coarser step.", maxAllCells)
		}
		read := map[int64][]allCell{}
		for _, row := range rows {
			read[row.Start.Unix()] = append(read[row.Start.Unix()], allCellOf(row))
		}
		return read, nil
	})
}

func allCellOf(r q.ReportAllCellsRow) allCell {
	return allCell{org: r.OrgID, model: r.ModelID, Sums: Sums{Requests: r.Requests, Errors: r.Errors, Charged: money.Nano(r.ChargedNano),
		Overrun: money.Nano(r.OverrunNano), Saved: money.Nano(r.SavedNano), Decode: milliseconds(r.DecodeMsSum),
		Streams: r.TtftCount, First: milliseconds(r.TtftMsSum),
		Usage: usage.Vector{usage.Input: r.InputTokens, usage.Cached: r.CachedTokens, usage.CacheWrite: r.CacheWriteTokens, usage.Output: r.OutputTokens,
			usage.Reasoning: r.ReasoningTokens, usage.Image: r.ImageTokens, usage.Audio: r.AudioTokens, usage.Requests: r.Requests}}}
}

// ofAll adds the customers' cells up by the query's group.
func (s *Service) ofAll(ctx context.Context, r *q.Queries, in Query, t steps) ([]Cell, error) {
	all, err := s.readAll(ctx, r, t)
	if err != nil {
		return nil, err
	}
	var only map[ids.ID]bool
	if in.Orgs != nil {
		only = make(map[ids.ID]bool, len(in.Orgs))
		for _, id := range in.Orgs {
			only[id] = true
		}
	}
	var cells []Cell
	for _, start := range t.starts {
		groups := map[ids.ID]*Sums{}
		for _, c := range all[start.Unix()] {
			if in.Model != ids.Nil && c.model != in.Model || only != nil && !only[c.org] {
				continue
			}
			group := c.group(in.Group)
			if groups[group] == nil {
				groups[group] = &Sums{}
			}
			groups[group].Add(&c.Sums)
		}
		first := len(cells)
		for group, sums := range groups {
			cells = append(cells, Cell{Start: start, Group: group, Sums: *sums})
		}
		slices.SortFunc(cells[first:], func(a, b Cell) int { return bytes.Compare(a.Group[:], b.Group[:]) })
	}
	folded := len(cells) > MaxCells
	if folded {
		cells = fold(cells, max(1, MaxCells/len(t.starts)-1))
	}
	if cells, err = label(ctx, r, cells); err != nil {
		return nil, err
	}
	for i := range cells {
		if folded && cells[i].Group == ids.Nil {
			cells[i].Label = Others
		}
	}
	return cells, tooMany(cells)
}

// Others is the label of the groups that a report has no room for, added up; their group is ids.Nil.
const Others = "All others"

// fold keeps the groups that paid most, and adds the others up in each step.
func fold(cells []Cell, most int) []Cell {
	paid := map[ids.ID]money.Nano{}
	for _, c := range cells {
		paid[c.Group] += c.Charged
	}
	groups := slices.SortedFunc(maps.Keys(paid), func(a, b ids.ID) int { return cmp.Or(cmp.Compare(paid[b], paid[a]), bytes.Compare(a[:], b[:])) })
	kept := make(map[ids.ID]bool, most)
	for _, g := range groups[:min(most, len(groups))] {
		kept[g] = true
	}
	out := cells[:0]
	rest := -1 // where the step's others are
	for _, c := range cells {
		switch {
		case kept[c.Group]:
			out = append(out, c)
		case rest >= 0 && rest < len(out) && out[rest].Start.Equal(c.Start):
			out[rest].Add(&c.Sums)
		default:
			c.Group, rest = ids.Nil, len(out)
			out = append(out, c)
		}
	}
	return out
}
