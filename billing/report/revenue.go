package report

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// maxRevenueCells bounds a revenue report: customers times models, up to twice.
const maxRevenueCells = 500_000

// Revenue is one customer's usage of one model.
type Revenue struct {
	Org     ids.ID
	OrgName string
	Model   string
	Sums
}

// pair is a customer and a model.
type pair struct{ org, model ids.ID }

type revenueCell struct {
	pair
	Sums
}

// spanKey is a span of time.
type spanKey struct{ start, stop int64 }

// Revenue reads the usage of [from, to) by customer and model. Both are UTC midnights. What is over is kept for a while, as days
// are, in one piece.
func (s *Service) Revenue(ctx context.Context, by tenants.Actor, from, to time.Time) (out []Revenue, err error) {
	if err := (Query{From: from, To: to, Step: StepDay}).check(); err != nil {
		return nil, err
	}
	var t steps
	over := s.clock.Now().Add(-closedAfter).UTC().Truncate(wholeDay)
	if over.After(to) {
		over = to
	}
	if over.After(from) {
		t.add(from, over, true)
		from = over
	}
	if from.Before(to) {
		t.add(from, to, false)
	}
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		all, err := s.readRevenue(ctx, r, t)
		if err != nil {
			return err
		}
		out, err = revenue(ctx, r, all)
		return err
	})
	return out, err
}

func (s *Service) readRevenue(ctx context.Context, r *q.Queries, t steps) (map[int64][]revenueCell, error) {
	key := func(start, stop int64) spanKey { return spanKey{start, stop} }
	return readDays(&s.sold, t, s.clock.Now(), key, func(t steps) (map[int64][]revenueCell, error) {
		rows, err := r.ReportRevenue(ctx, q.ReportRevenueParams{Starts: t.starts, Stops: t.stops, MaxRows: maxRevenueCells + 1})
		if err != nil {
			return nil, err
		}
		if len(rows) > maxRevenueCells {
			return nil, fault.New(fault.Invalid, "This report adds up more than %d cells. Export it instead.", maxRevenueCells)
		}
		read := map[int64][]revenueCell{}
		for _, x := range rows {
			c := revenueCell{pair: pair{x.OrgID, x.ModelID}, Sums: Sums{Requests: x.Requests, Errors: x.Errors, Charged: money.Nano(x.ChargedNano),
				Overrun: money.Nano(x.OverrunNano), Saved: money.Nano(x.SavedNano), Decode: milliseconds(x.DecodeMsSum), Streams: x.TtftCount, First: milliseconds(x.TtftMsSum),
				Usage: usage.Vector{usage.Input: x.InputTokens, usage.Cached: x.CachedTokens, usage.CacheWrite: x.CacheWriteTokens, usage.Output: x.OutputTokens,
					usage.Reasoning: x.ReasoningTokens, usage.Image: x.ImageTokens, usage.Audio: x.AudioTokens, usage.Requests: x.Requests}}}
			read[x.Start.Unix()] = append(read[x.Start.Unix()], c)
		}
		return read, nil
	})
}

func revenue(ctx context.Context, r *q.Queries, all map[int64][]revenueCell) ([]Revenue, error) {
	sums := map[pair]*Sums{}
	var named []Cell
	for _, cells := range all {
		for _, c := range cells {
			if sums[c.pair] == nil {
				sums[c.pair] = &Sums{}
				named = append(named, Cell{Group: c.org}, Cell{Group: c.model})
			}
			sums[c.pair].Add(&c.Sums)
		}
	}
	names, err := labels(ctx, r, named)
	if err != nil {
		return nil, err
	}
	out := make([]Revenue, 0, len(sums))
	for key, sum := range sums {
		out = append(out, Revenue{Org: key.org, OrgName: names[key.org].Label, Model: names[key.model].Label, Sums: *sum})
	}
	slices.SortFunc(out, func(a, b Revenue) int {
		return cmp.Or(cmp.Compare(a.OrgName, b.OrgName), bytes.Compare(a.Org[:], b.Org[:]), cmp.Compare(a.Model, b.Model))
	})
	return out, nil
}

// Active counts the organizations that used anything in [from, to).
func (s *Service) Active(ctx context.Context, by tenants.Actor, from, to time.Time) (n int64, err error) {
	if err := (Query{From: from, To: to, Step: StepTotal}).check(); err != nil {
		return 0, err
	}
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		n, err = r.ReportActiveOrgs(ctx, q.ReportActiveOrgsParams{Since: from, Until: to})
		return err
	})
	return n, err
}
