package report

import (
	"context"
	"encoding/json"
	"errors"
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
	Org      ids.ID
	OrgName  string
	Model    string
	Requests int64
	Usage    usage.Vector
	Charged  money.Nano
}

// Activity is one customer's recent usage.
type Activity struct {
	Charged  money.Nano
	Requests int64
	Last     time.Time // start of the last quarter of an hour with a request
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

// Quarantined is an event that was put aside and not charged.
type Quarantined struct {
	ID     ids.ID
	Org    ids.ID // ids.Nil when the event does not even tell
	Reason string
	Event  usage.Event // what of it can be read
	At     time.Time
}

// Attention is what the operator must look at.
type Attention struct {
	Overrun     money.Nano // since the given moment
	Overruns    int64
	Quarantined int64
	Reconcile   q.ReconcileRun // zero At = never run
}

// Revenue reads the usage of [from, to) by customer and model.
func (s *Service) Revenue(ctx context.Context, by tenants.Actor, from, to time.Time) (out []Revenue, err error) {
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportRevenue(ctx, q.ReportRevenueParams{Since: from, Until: to, MaxRows: MaxCells})
		for _, x := range rows {
			out = append(out, Revenue{Org: x.OrgID, OrgName: x.OrgName, Model: x.ModelName, Requests: x.Requests, Charged: money.Nano(x.ChargedNano),
				Usage: usage.Vector{usage.Input: x.InputTokens, usage.Cached: x.CachedTokens, usage.CacheWrite: x.CacheWriteTokens, usage.Output: x.OutputTokens,
					usage.Reasoning: x.ReasoningTokens, usage.Image: x.ImageTokens, usage.Audio: x.AudioTokens, usage.Requests: x.Requests}})
		}
		return err
	})
	return out, err
}

// Activities reads several customers' usage since a moment.
func (s *Service) Activities(ctx context.Context, by tenants.Actor, since time.Time, orgs []ids.ID) (map[ids.ID]Activity, error) {
	out := map[ids.ID]Activity{}
	err := s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportOrgActivity(ctx, q.ReportOrgActivityParams{Since: since, Orgs: orgs})
		for _, x := range rows {
			out[x.OrgID] = Activity{Charged: money.Nano(x.ChargedNano), Requests: x.Requests, Last: x.LastBucket}
		}
		return err
	})
	return out, err
}

// FirstTokens is the median and 95th percentile of the time to first token since a moment, over the newest streams.
func (s *Service) FirstTokens(ctx context.Context, by tenants.Actor, org ids.ID, since time.Time) (p50, p95 time.Duration, n int64, err error) {
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		row, err := r.ReportFirstTokens(ctx, q.ReportFirstTokensParams{SinceDay: since.UTC().Truncate(24 * time.Hour), SinceID: idAt(since), Org: opt(org)})
		p50, p95, n = time.Duration(row.P50)*time.Millisecond, time.Duration(row.P95)*time.Millisecond, row.N
		return err
	})
	return p50, p95, n, err
}

// idAt is the smallest UUIDv7 of a moment.
func idAt(t time.Time) (id ids.ID) {
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// Attention reads what needs looking at; overruns count since the given moment.
func (s *Service) Attention(ctx context.Context, by tenants.Actor, since time.Time) (a Attention, err error) {
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		sum, err := r.ReportOverrunTotal(ctx, since.UTC().Truncate(24*time.Hour))
		if err != nil {
			return err
		}
		a.Overrun, a.Overruns = money.Nano(sum.Nano), sum.N
		if a.Quarantined, err = r.ReportQuarantineCount(ctx); err != nil {
			return err
		}
		if a.Reconcile, err = r.ReportLastReconcile(ctx); errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return err
	})
	return a, err
}

// Overruns lists what the operator bears, newest first.
func (s *Service) Overruns(ctx context.Context, by tenants.Actor, since time.Time, limit int) (out []Overrun, err error) {
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportOverruns(ctx, q.ReportOverrunsParams{SinceDay: since.UTC().Truncate(24 * time.Hour), MaxRows: int32(min(limit, MaxRows))})
		for _, x := range rows {
			out = append(out, Overrun{Request: x.ID, Org: x.OrgID, OrgName: x.OrgName, Amount: money.Nano(x.OverrunNano), At: x.EndedAt, Ending: usage.Ending(x.Ending)})
		}
		return err
	})
	return out, err
}

// Quarantine lists unresolved events, newest first; before is the last row of the page before, ids.Nil for the first.
func (s *Service) Quarantine(ctx context.Context, by tenants.Actor, before ids.ID, limit int) (out []Quarantined, err error) {
	if before == ids.Nil {
		before = newest
	}
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportQuarantine(ctx, q.ReportQuarantineParams{BeforeID: before, MaxRows: int32(min(limit, MaxRows))})
		for _, x := range rows {
			one := Quarantined{ID: x.ID, Reason: x.Reason, At: x.CreatedAt}
			if x.OrgID != nil {
				one.Org = *x.OrgID
			}
			_ = json.Unmarshal(x.Payload, &one.Event) // may be garbage: that is why it is here
			out = append(out, one)
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
		for _, x := range rows {
			out = append(out, OpenEpoch{ID: x.ID, Process: x.Process, StartedAt: x.StartedAt, HeartbeatAt: x.HeartbeatAt, Outstanding: money.Nano(x.OutstandingNano)})
		}
		return err
	})
	return out, err
}
