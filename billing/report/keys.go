package report

import (
	"context"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// lastModelWithin is how far back a key's last model is looked for, when the month is younger.
const lastModelWithin = 7 * 24 * time.Hour

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

// Spend reads it in one go. The moment is a multiple of 15 minutes.
func (s *Service) Spend(ctx context.Context, by tenants.Actor, org ids.ID, since time.Time) (out Spend, err error) {
	out = Spend{Keys: map[ids.ID]KeySpend{}, Projects: map[ids.ID]money.Nano{}}
	p := q.ReportKeySpendParams{Org: org, SpendSince: since, ModelSince: s.clock.Now().Add(-lastModelWithin)}
	var rows []q.ReportKeySpendRow
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		rows, err = r.ReportKeySpend(ctx, p)
		return err
	})
	last := map[ids.ID]time.Time{}
	for _, row := range rows {
		charged := money.Nano(row.ChargedNano)
		k := out.Keys[row.KeyID]
		k.Charged += charged
		if row.LastBucket.After(last[row.KeyID]) {
			last[row.KeyID], k.LastModel = row.LastBucket, row.ModelID
		}
		out.Keys[row.KeyID] = k
		out.Projects[row.ProjectID] += charged
		out.Total += charged
	}
	return out, err
}

// Used reports whether the organization ever made a request.
func (s *Service) Used(ctx context.Context, by tenants.Actor, org ids.ID) (used bool, err error) {
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		used, err = r.ReportHasUsage(ctx, org)
		return err
	})
	return used, err
}
