package report

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/price"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
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
}

// Filter narrows a list of requests.
type Filter struct {
	Before     ids.ID // the last row of the page before; ids.Nil = the newest
	Model, Key ids.ID // ids.Nil = all
	Failed     bool   // only those that did not end complete
	Limit      int
}

var newest = ids.ID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// Requests is a page of an organization's requests, newest first.
func (s *Service) Requests(ctx context.Context, by tenants.Actor, org ids.ID, f Filter) (out []Request, err error) {
	before, day := newest, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if f.Before != ids.Nil {
		before, day = f.Before, ids.Day(f.Before)
	}
	limit := min(max(f.Limit, 1), MaxRows)
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		rows, err := r.ReportRequests(ctx, q.ReportRequestsParams{Org: org, BeforeDay: day, BeforeID: before, Model: opt(f.Model), Key: opt(f.Key),
			Failed: f.Failed, MaxRows: int32(limit)})
		for _, row := range rows {
			out = append(out, requestOf(row))
		}
		return err
	})
	return out, err
}

// Request is one request, with the prices it was charged by.
func (s *Service) Request(ctx context.Context, by tenants.Actor, org, id ids.ID) (out Request, v price.Version, err error) {
	if err := by.Require(tenants.UsageRead, org); err != nil {
		return out, v, err
	}
	err = s.db.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).ReportRequests(ctx, q.ReportRequestsParams{Org: org, BeforeDay: ids.Day(id), BeforeID: after(id), MaxRows: 1})
		if err != nil {
			return err
		}
		if len(rows) == 0 || rows[0].ID != id {
			return fault.New(fault.NotFound, "There is no such request, or it has not been rated yet (that takes a second).").WithCode("not_found")
		}
		out = requestOf(rows[0])
		v, err = price.ByID(ctx, tx, out.Event.PriceVersion)
		return err
	})
	return out, v, err
}

// after is the next id in order.
func after(id ids.ID) ids.ID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

func requestOf(r q.ReportRequestsRow) Request {
	e := usage.Event{ID: r.ID, Org: r.OrgID, Project: r.ProjectID, Key: r.KeyID, Model: r.ModelID, PriceVersion: r.PriceVersionID, Epoch: r.EpochID,
		Raw: r.Raw, Charge: money.Nano(r.ChargedNano + r.OverrunNano), Ending: usage.Ending(r.Ending), Estimated: r.Estimated, Streamed: r.Streamed,
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
