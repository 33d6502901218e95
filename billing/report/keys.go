package report

import (
	"context"
	"time"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

const (
	// lastModelWithin is how far back a key's last model is looked for, when the month is younger.
	lastModelWithin = 7 * wholeDay
	wholeDay        = 24 * time.Hour
	maxKeyCells     = 100_000
)

// KeySpend is what a key cost, and the model it called last.
type KeySpend struct {
	Charged   money.Nano
	LastModel ids.ID // ids.Nil = none lately
}

// Spend is what an organization's keys and projects cost since a moment.
type Spend struct {
	Total    money.Nano
	Keys     map[ids.ID]KeySpend
	Projects map[ids.ID]money.Nano
}

// keyCell is a key's use of a model in one step.
type keyCell struct {
	key, project, model ids.ID
	charged             money.Nano
	last                time.Time
}

// allKeyOf is a step of one organization.
type allKeyOf struct {
	org         ids.ID
	start, stop int64
}

// Spend reads what keys and projects cost since the beginning of a day in a zone.
func (s *Service) Spend(ctx context.Context, by tenants.Actor, org ids.ID, since time.Time, zone *time.Location) (out Spend, err error) {
	out = Spend{Keys: map[ids.ID]KeySpend{}, Projects: map[ids.ID]money.Nano{}}
	now := s.clock.Now()
	in := Query{From: since, To: now.Truncate(bucket).Add(bucket), Zone: zone, Step: StepDay}
	if model := now.Add(-lastModelWithin).Truncate(bucket); model.Before(since) {
		in.From = model
	}
	t, err := in.steps()
	if err != nil {
		return out, err
	}
	var read map[int64][]keyCell
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		read, err = s.readKeys(ctx, r, org, t)
		return err
	})
	last := map[ids.ID]time.Time{}
	for _, start := range t.starts {
		for _, c := range read[start.Unix()] {
			k := out.Keys[c.key]
			if c.last.After(last[c.key]) {
				last[c.key], k.LastModel = c.last, c.model
			}
			if !start.Before(since) {
				k.Charged += c.charged
				out.Projects[c.project] += c.charged
				out.Total += c.charged
			}
			out.Keys[c.key] = k
		}
	}
	return out, err
}

func (s *Service) readKeys(ctx context.Context, r *q.Queries, org ids.ID, t steps) (map[int64][]keyCell, error) {
	key := func(start, stop int64) allKeyOf { return allKeyOf{org, start, stop} }
	return readDays(&s.keys, t, s.clock.Now(), key, func(t steps) (map[int64][]keyCell, error) {
		rows, err := r.ReportKeySpend(ctx, q.ReportKeySpendParams{Org: org, Starts: t.starts, Stops: t.stops, MaxRows: maxKeyCells + 1})
		if len(rows) > maxKeyCells {
			return nil, fault.New(fault.Invalid, "There are too many keys to add up what they cost.")
		}
		read := map[int64][]keyCell{}
		for _, row := range rows {
			at := row.Start.Unix()
			read[at] = append(read[at], keyCell{row.KeyID, row.ProjectID, row.ModelID, money.Nano(row.ChargedNano), row.LastBucket})
		}
		return read, err
	})
}

// Used reports whether the organization ever made a request.
func (s *Service) Used(ctx context.Context, by tenants.Actor, org ids.ID) (used bool, err error) {
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		used, err = r.ReportHasUsage(ctx, org)
		return err
	})
	return used, err
}
