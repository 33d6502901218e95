package report

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// maxAllCells bounds what is read of all customers at once. Where there are more customers than that, the database adds up
// those that paid least.
const maxAllCells = 100_000

var errCrowded = fault.New(fault.Invalid, "This report adds up more than %d cells. Choose a shorter range or a coarser step.", maxAllCells)

// allKey is everything that was asked about a step of all customers.
type allKey struct {
	group       string
	model       ids.ID
	start, stop int64
}

// ofAll gives the cells of all customers, or of some of them.
func (s *Service) ofAll(ctx context.Context, r *q.Queries, in Query, t steps) ([]Cell, error) {
	all, err := s.readAll(ctx, r, in, t)
	folded := errors.Is(err, errCrowded) && in.Group == ByOrg && in.Orgs == nil
	if folded {
		all, err = readFolded(ctx, r, in, t)
	}
	if err != nil {
		return nil, err
	}
	var cells []Cell // a copy: what is kept is not changed
	for _, start := range t.starts {
		cells = append(cells, all[start.Unix()]...)
	}
	if len(cells) > MaxCells {
		cells, folded = fold(cells, keptGroups(t)), true
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

// readAll gives the cells of each step, by its start, without labels. Only those of all customers are kept.
func (s *Service) readAll(ctx context.Context, r *q.Queries, in Query, t steps) (map[int64][]Cell, error) {
	if in.Orgs != nil {
		rows, err := r.ReportSomeCells(ctx, q.ReportSomeCellsParams{Starts: t.starts, Stops: t.stops, Grp: in.Group, Orgs: in.Orgs, Model: opt(in.Model), MaxRows: maxAllCells + 1})
		return byStart(rows, func(x q.ReportSomeCellsRow) Cell { return cellOf(q.ReportCellsRow(x)) }, err)
	}
	key := func(start, stop int64) allKey { return allKey{in.Group, in.Model, start, stop} }
	return readDays(&s.all, t, s.clock.Now(), key, func(t steps) (map[int64][]Cell, error) {
		rows, err := r.ReportAllCells(ctx, q.ReportAllCellsParams{Starts: t.starts, Stops: t.stops, Grp: in.Group, Model: opt(in.Model), MaxRows: maxAllCells + 1})
		return byStart(rows, func(x q.ReportAllCellsRow) Cell { return cellOf(q.ReportCellsRow(x)) }, err)
	})
}

// readFolded is readAll by customer where there are too many of them: those that paid most, and the others added up.
func readFolded(ctx context.Context, r *q.Queries, in Query, t steps) (map[int64][]Cell, error) {
	top, err := r.ReportTopOrgs(ctx, q.ReportTopOrgsParams{Since: t.starts[0], Until: t.stops[len(t.stops)-1], Model: opt(in.Model), MaxRows: int32(keptGroups(t))})
	if err != nil {
		return nil, err
	}
	rows, err := r.ReportFoldedCells(ctx, q.ReportFoldedCellsParams{Starts: t.starts, Stops: t.stops, Kept: top, Model: opt(in.Model), MaxRows: maxAllCells + 1})
	return byStart(rows, func(x q.ReportFoldedCellsRow) Cell { return cellOf(q.ReportCellsRow(x)) }, err)
}

// byStart puts rows into their steps.
func byStart[R any](rows []R, of func(R) Cell, err error) (map[int64][]Cell, error) {
	switch {
	case err != nil:
		return nil, err
	case len(rows) > maxAllCells:
		return nil, errCrowded
	}
	read := map[int64][]Cell{}
	for _, row := range rows {
		c := of(row)
		read[c.Start.Unix()] = append(read[c.Start.Unix()], c)
	}
	return read, nil
}

// keptGroups is how many groups are told apart where there is no room for all: with the others, as many as fit.
func keptGroups(t steps) int { return max(1, MaxCells/len(t.starts)-1) }

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
