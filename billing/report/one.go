package report

import (
	"context"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// oneKey is everything that was asked about a step of one organization.
type oneKey struct {
	org, model, key, project ids.ID
	group                    string
	start, stop              int64
}

func (s *Service) ofOne(ctx context.Context, r *q.Queries, in Query, t steps) ([]Cell, error) {
	all, err := s.readOne(ctx, r, in, t)
	if err != nil {
		return nil, err
	}
	var cells []Cell // a copy: what is kept is not changed
	for _, start := range t.starts {
		cells = append(cells, all[start.Unix()]...)
	}
	if cells, err = label(ctx, r, cells); err != nil {
		return nil, err
	}
	return cells, tooMany(cells)
}

// readOne gives the cells of each step, by its start, without labels.
func (s *Service) readOne(ctx context.Context, r *q.Queries, in Query, t steps) (map[int64][]Cell, error) {
	key := func(start, stop int64) oneKey {
		return oneKey{in.Org, in.Model, in.Key, in.Project, in.Group, start, stop}
	}
	return readDays(&s.one, t, s.clock.Now(), key, func(t steps) (map[int64][]Cell, error) { return readCells(ctx, r, in, t) })
}

func readCells(ctx context.Context, r *q.Queries, in Query, t steps) (map[int64][]Cell, error) {
	p := q.ReportCellsParams{Starts: t.starts, Stops: t.stops, Grp: in.Group, Org: in.Org, Model: opt(in.Model), Project: opt(in.Project),
		Key: opt(in.Key), MaxRows: MaxCells + 1}
	if in.Key == Playground {
		p.Key, p.Playground = nil, true
	}
	rows, err := r.ReportCells(ctx, p)
	if len(rows) > MaxCells {
		return nil, errTooMany()
	}
	read := map[int64][]Cell{}
	for _, row := range rows {
		read[row.Start.Unix()] = append(read[row.Start.Unix()], cellOf(row))
	}
	return read, err
}

func cellOf(r q.ReportCellsRow) Cell {
	return Cell{Start: r.Start, Group: r.Grp, Sums: Sums{Requests: r.Requests, Errors: r.Errors, Charged: money.Nano(r.ChargedNano),
		Overrun: money.Nano(r.OverrunNano), Saved: money.Nano(r.SavedNano), Decode: milliseconds(r.DecodeMsSum),
		Streams: r.TtftCount, First: milliseconds(r.TtftMsSum),
		Usage: usage.Vector{usage.Input: r.InputTokens, usage.Cached: r.CachedTokens, usage.CacheWrite: r.CacheWriteTokens, usage.Output: r.OutputTokens,
			usage.Reasoning: r.ReasoningTokens, usage.Image: r.ImageTokens, usage.Audio: r.AudioTokens, usage.Requests: r.Requests}}}
}
