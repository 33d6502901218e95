package report

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// Revenue is one customer's usage of one model.
type Revenue struct {
	Org     ids.ID
	OrgName string
	Model   string
	Sums
}

// Overrun is a request above its allotment.
type Overrun struct {
	Request ids.ID
	Org     ids.ID
	OrgName string
	Amount  money.Nano
	At      time.Time
	Ending  usage.Ending
}

// Attention is what the operator must look at.
type Attention struct {
	Overrun     money.Nano // since the given moment
	Overruns    int64
	Quarantined int64
	Reconcile   q.ReconcileRun // zero At = never run
}

// Revenue reads the usage of [from, to) by customer and model. Both are UTC midnights.
func (s *Service) Revenue(ctx context.Context, by tenants.Actor, from, to time.Time) (out []Revenue, err error) {
	t, err := Query{From: from, To: to, Step: StepDay}.steps()
	if err != nil {
		return nil, err
	}
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		all, err := s.readAll(ctx, r, t)
		if err != nil {
			return err
		}
		out, err = revenue(ctx, r, all)
		return err
	})
	return out, err
}

func revenue(ctx context.Context, r *q.Queries, all map[int64][]allCell) ([]Revenue, error) {
	type pair struct{ org, model ids.ID }
	sums := map[pair]*Sums{}
	var named []Cell
	for _, cells := range all {
		for _, c := range cells {
			key := pair{c.org, c.model}
			if sums[key] == nil {
				sums[key] = &Sums{}
				named = append(named, Cell{Group: c.org}, Cell{Group: c.model})
			}
			sums[key].Add(&c.Sums)
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

// LastRequests tells when each organization made its newest request; one that never did is missing.
func (s *Service) LastRequests(ctx context.Context, by tenants.Actor, orgs []ids.ID) (map[ids.ID]time.Time, error) {
	out := map[ids.ID]time.Time{}
	err := s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportLastRequests(ctx, orgs)
		for _, x := range rows {
			out[x.OrgID] = ids.Time(x.ID)
		}
		return err
	})
	return out, err
}

// Attention reads what needs looking at; overruns count from the day of the given moment on.
func (s *Service) Attention(ctx context.Context, by tenants.Actor, since time.Time) (a Attention, err error) {
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		sum, err := r.ReportOverrunTotal(ctx, since.UTC().Truncate(wholeDay))
		if err != nil {
			return err
		}
		a.Overrun, a.Overruns = money.Nano(sum.Nano), sum.N
		if a.Quarantined, err = r.ReportQuarantineCount(ctx); err != nil {
			return err
		}
		if a.Reconcile, err = r.ReportLastReconcile(ctx); errors.Is(err, pgx.ErrNoRows) {
			a.Reconcile, err = q.ReconcileRun{}, nil
		}
		return err
	})
	return a, err
}

// Overruns lists what the operator bears since the day of a moment, newest first; before is the request of the last row of
// the page before, ids.Nil for the first.
func (s *Service) Overruns(ctx context.Context, by tenants.Actor, since time.Time, before ids.ID, limit int) (out []Overrun, err error) {
	p := q.ReportOverrunsParams{SinceDay: since.UTC().Truncate(wholeDay), BeforeDay: lastDay, BeforeID: newest, MaxRows: int32(min(limit, MaxRows))}
	if before != ids.Nil {
		p.BeforeDay, p.BeforeID = ids.Day(before), before
	}
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportOverruns(ctx, p)
		out = make([]Overrun, len(rows))
		for i, x := range rows {
			out[i] = Overrun{Request: x.ID, Org: x.OrgID, OrgName: x.OrgName, Amount: money.Nano(x.OverrunNano), At: x.EndedAt, Ending: usage.Ending(x.Ending)}
		}
		return err
	})
	return out, err
}

// OpenEpoch is one life of a gateway whose money has not all come back.
type OpenEpoch struct {
	ID                     ids.ID
	Process                string
	StartedAt, HeartbeatAt time.Time
	Outstanding            money.Nano
}

// OpenEpochs lists the epochs that are not fenced.
func (s *Service) OpenEpochs(ctx context.Context, by tenants.Actor) (out []OpenEpoch, err error) {
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportOpenEpochs(ctx)
		out = make([]OpenEpoch, len(rows))
		for i, x := range rows {
			out[i] = OpenEpoch{ID: x.ID, Process: x.Process, StartedAt: x.StartedAt, HeartbeatAt: x.HeartbeatAt, Outstanding: money.Nano(x.OutstandingNano)}
		}
		return err
	})
	return out, err
}
