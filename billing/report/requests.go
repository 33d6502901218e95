package report

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/price"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// Request is one rated request with what explains its charge.
type Request struct {
	Event               usage.Event // Charge is what the gateway took; Charged below is what the customer pays
	Model, Key, Project string      // names; Key and Project may be empty
	Charged             money.Nano
	Overrun             money.Nano
	Saved               money.Nano
	Repriced            bool
	Txn                 ids.ID // the ledger transaction; ids.Nil = nothing was charged

	// Of a request in quarantine, which was not charged: its ending is usage.Quarantined.
	PutAside    string       // says so to whoever asks; "" = it is not there
	Quarantined *Quarantined // why, for operators; nil for everybody else
}

// Filter narrows a list of requests.
type Filter struct {
	Before     ids.ID // the last row of the page before; ids.Nil = the newest
	Model, Key ids.ID // ids.Nil = all; Key may be Playground
	Failed     bool   // only those that did not end complete
	Limit      int
}

// newest is above every id that can exist.
var newest = ids.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// lastDay is after every day that can have usage.
var lastDay = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Requests is a page of an organization's requests, newest first.
func (s *Service) Requests(ctx context.Context, by tenants.Actor, org ids.ID, f Filter) (out []Request, err error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		r := q.New(tx)
		p, err := requestIDs(ctx, r, org, f)
		if err != nil || len(p.Ids) == 0 {
			out = nil
			return err
		}
		rows, err := r.ReportRequests(ctx, p)
		out = make([]Request, len(rows))
		for i, row := range rows {
			out[i] = requestOf(row)
		}
		return err
	})
	return out, err
}

// requestIDs finds a page by the index that fits the filter.
func requestIDs(ctx context.Context, r *q.Queries, org ids.ID, f Filter) (p q.ReportRequestsParams, err error) {
	before, day := newest, lastDay
	if f.Before != ids.Nil {
		before, day = f.Before, ids.Day(f.Before)
	}
	limit := int32(min(max(f.Limit, 1), MaxRows))
	played := f.Key == Playground
	p.Org = org
	add := func(day time.Time, id ids.ID) { p.Days, p.Ids = append(p.Days, day), append(p.Ids, id) }
	switch {
	case f.Key != ids.Nil && !played:
		rows, err := r.ReportRequestIDsOfKey(ctx, q.ReportRequestIDsOfKeyParams{Org: org, Key: f.Key, BeforeID: before, BeforeDay: day,
			Model: opt(f.Model), Failed: f.Failed, MaxRows: limit})
		for _, row := range rows {
			add(row.Day, row.ID)
		}
		return p, err
	case f.Failed:
		rows, err := r.ReportFailedRequestIDs(ctx, q.ReportFailedRequestIDsParams{Org: org, BeforeDay: day, BeforeID: before,
			Model: opt(f.Model), Playground: played, MaxRows: limit})
		for _, row := range rows {
			add(row.Day, row.ID)
		}
		return p, err
	}
	rows, err := r.ReportRequestIDs(ctx, q.ReportRequestIDsParams{Org: org, BeforeDay: day, BeforeID: before, Model: opt(f.Model),
		Playground: played, MaxRows: limit})
	for _, row := range rows {
		add(row.Day, row.ID)
	}
	return p, err
}

// Request is one request, with the prices it was charged by. One in quarantine is told with PutAside.
// Errors: fault.NotFound, also for a request that is not rated yet.
func (s *Service) Request(ctx context.Context, by tenants.Actor, org, id ids.ID) (out Request, v price.Version, err error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return out, v, err
	}
	found := false
	err = s.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).ReportRequests(ctx, q.ReportRequestsParams{Org: org, Days: []time.Time{ids.Day(id)}, Ids: []ids.ID{id}})
		if found = len(rows) > 0; err != nil || !found {
			return err
		}
		out = requestOf(rows[0])
		v, err = price.ByID(ctx, tx, out.Event.PriceVersion)
		return err
	})
	if err != nil || found {
		return out, v, err
	}
	return s.quarantinedRequest(ctx, by, org, id)
}

func requestOf(r q.ReportRequestsRow) Request {
	e := usage.Event{ID: r.ID, Org: r.OrgID, Project: r.ProjectID, Key: r.KeyID, Model: r.ModelID, PriceVersion: r.PriceVersionID, Epoch: r.EpochID,
		Raw: r.Raw, Charge: money.Nano(r.ChargedNano + r.OverrunNano), Ending: usage.Ending(r.Ending), Estimated: r.Estimated, Streamed: r.Streamed, Service: usage.Service(r.ServiceTier),
		Dialect: r.Dialect, Status: int(r.Status), StartedMS: r.StartedAt.UnixMilli(), EndedMS: r.EndedAt.UnixMilli()}
	if r.FirstTokenAt != nil {
		e.FirstTokenMS = r.FirstTokenAt.UnixMilli()
	}
	_ = json.Unmarshal(r.Attempts, &e.Attempts) // written by the rater from the same type
	e.Usage = usage.Vector{usage.Input: r.InputTokens, usage.Cached: r.CachedTokens, usage.CacheWrite: r.CacheWriteTokens, usage.Output: r.OutputTokens,
		usage.Reasoning: r.ReasoningTokens, usage.Image: r.ImageTokens, usage.Audio: r.AudioTokens, usage.Requests: r.Requests}
	out := Request{Event: e, Model: r.ModelName, Charged: money.Nano(r.ChargedNano), Overrun: money.Nano(r.OverrunNano), Saved: money.Nano(r.SavedNano), Repriced: r.Repriced}
	if r.KeyName != nil {
		out.Key = *r.KeyName
	}
	if r.ProjectName != nil {
		out.Project = *r.ProjectName
	}
	if r.TxnID != nil {
		out.Txn = *r.TxnID
	}
	return out
}

// Unit is a unit that requests name, though it may be gone.
type Unit struct{ Name, Engine string }

// Units names the units of attempts, for members and operators alike: a unit is no secret, its address is.
func (s *Service) Units(ctx context.Context, by tenants.Actor, org ids.ID, list []ids.ID) (map[ids.ID]Unit, error) {
	out := map[ids.ID]Unit{}
	if len(list) == 0 {
		return out, nil
	}
	err := s.read(ctx, by, org, func(r *q.Queries) error {
		rows, err := r.ReportUnits(ctx, list)
		for _, row := range rows {
			out[row.ID] = Unit{row.Name, row.Engine}
		}
		return err
	})
	return out, err
}
