package report

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

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
