package report

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Sums over all organizations read every rollup of their span, and an operator's page asks for a month of them again and
// again. Days that are over hardly change, so they are kept for a while.
const (
	closedAfter  = 48 * time.Hour  // what comes later than this into a day is seen a little later
	closedFor    = 5 * time.Minute // how long a day is kept
	maxKeptCells = 200_000         // about 50 MB
	wholeDay     = 24 * time.Hour
)

// allCell is one customer's use of one model in one step.
type allCell struct {
	org, model ids.ID
	Sums
}

func (c *allCell) group(by string) ids.ID {
	switch by {
	case ByModel:
		return c.model
	case ByOrg:
		return c.org
	}
	return ids.Nil
}

// closedDays remembers the cells of UTC days. The zero value is ready.
type closedDays struct {
	mu    sync.Mutex
	days  map[int64]keptDay // by the day's start in unix seconds
	cells int
}

type keptDay struct {
	cells []allCell
	read  time.Time
}

// get gives the days that are known, by their start.
func (c *closedDays) get(t steps, now time.Time) map[int64][]allCell {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := map[int64][]allCell{}
	for i, start := range t.starts {
		day, ok := c.days[start.Unix()]
		if ok && now.Sub(day.read) < closedFor && isDay(start, t.stops[i]) {
			known[start.Unix()] = day.cells
		}
	}
	return known
}

// put keeps what was read of days that are over.
func (c *closedDays) put(t steps, read map[int64][]allCell, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.days == nil {
		c.days = map[int64]keptDay{}
	}
	for i, start := range t.starts {
		if !isDay(start, t.stops[i]) || now.Sub(t.stops[i]) < closedAfter {
			continue
		}
		cells := read[start.Unix()]
		c.cells += len(cells) - len(c.days[start.Unix()].cells)
		c.days[start.Unix()] = keptDay{cells, now}
	}
	if c.cells > maxKeptCells {
		c.days, c.cells = nil, 0
	}
}

func isDay(start, stop time.Time) bool {
	return stop.Sub(start) == wholeDay && start.Unix()%int64(wholeDay/time.Second) == 0
}

// readAll gives the cells of each step, by its start.
func (s *Service) readAll(ctx context.Context, r *q.Queries, t steps) (map[int64][]allCell, error) {
	now := s.clock.Now()
	all := s.closed.get(t, now)
	var missing steps
	for i, start := range t.starts {
		if _, ok := all[start.Unix()]; !ok {
			missing.starts, missing.stops = append(missing.starts, start), append(missing.stops, t.stops[i])
		}
	}
	if len(missing.starts) == 0 {
		return all, nil
	}
	rows, err := r.ReportAllCells(ctx, q.ReportAllCellsParams{Starts: missing.starts, Stops: missing.stops, MaxRows: maxKeptCells + 1})
	if err != nil {
		return nil, err
	}
	if len(rows) > maxKeptCells {
		return nil, fault.New(fault.Invalid, "This report adds up more than %d cells. Choose a shorter range or a coarser step.", maxKeptCells)
	}
	read := map[int64][]allCell{}
	for _, row := range rows {
		read[row.Start.Unix()] = append(read[row.Start.Unix()], allCellOf(row))
	}
	s.closed.put(missing, read, now)
	maps.Copy(all, read)
	return all, nil
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
	var cells []Cell
	for _, start := range t.starts {
		groups := map[ids.ID]*Sums{}
		for _, c := range all[start.Unix()] {
			if in.Model != ids.Nil && c.model != in.Model {
				continue
			}
			group := c.group(in.Group)
			if groups[group] == nil {
				groups[group] = &Sums{}
			}
			groups[group].add(&c.Sums)
		}
		first := len(cells)
		for group, sums := range groups {
			cells = append(cells, Cell{Start: start, Group: group, Sums: *sums})
		}
		slices.SortFunc(cells[first:], func(a, b Cell) int { return bytes.Compare(a.Group[:], b.Group[:]) })
	}
	if cells, err = label(ctx, r, cells); err != nil {
		return nil, err
	}
	return cells, tooMany(cells)
}
