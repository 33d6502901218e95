package export

import (
	"context"
	"fmt"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// usageColumns are one request. Their names and order do not change; new ones come at the end.
var usageColumns = []Column{
	{Name: "request_id", Type: Text}, {Name: "started_at", Type: Time}, {Name: "first_token_at", Type: Time, null: true}, {Name: "ended_at", Type: Time},
	{Name: "org_id", Type: Text, few: true}, {Name: "org_name", Type: Text, few: true},
	{Name: "project_id", Type: Text, few: true}, {Name: "project_name", Type: Text, few: true},
	{Name: "key_id", Type: Text, few: true, null: true}, {Name: "key_name", Type: Text, few: true},
	{Name: "model", Type: Text, few: true}, {Name: "price_version", Type: Text, few: true, null: true},
	{Name: "service_tier", Type: Text, few: true},
	{Name: "ending", Type: Text, few: true}, {Name: "status", Type: Int}, {Name: "streamed", Type: Truth}, {Name: "dialect", Type: Text, few: true},
	{Name: "estimated", Type: Truth}, {Name: "repriced", Type: Truth}, {Name: "requests", Type: Int, sum: true},
	{Name: "input_tokens", Type: Int, sum: true}, {Name: "cached_tokens", Type: Int, sum: true}, {Name: "cache_write_tokens", Type: Int, sum: true},
	{Name: "output_tokens", Type: Int, sum: true}, {Name: "reasoning_tokens", Type: Int, sum: true}, {Name: "image_tokens", Type: Int, sum: true},
	{Name: "audio_tokens", Type: Int, sum: true}, {Name: "charged_usd", Type: USD, sum: true}, {Name: "overrun_usd", Type: USD, sum: true},
	{Name: "saved_usd", Type: USD, sum: true}, {Name: "ledger_txn", Type: Text, null: true},
}

// requests reads partition by partition, each in the order of its key.
func (r *reader) requests(ctx context.Context, each func(page) error) error {
	first, last := dayOf(r.in.From.Add(-slack)), dayOf(r.in.To.Add(slack))
	for at := first; !at.After(last); at = at.Add(day) {
		after := Cursor{Day: at, Org: r.in.Org}
		if !r.in.After.IsZero() {
			if at.Before(r.in.After.Day) {
				continue
			}
			if at.Equal(r.in.After.Day) {
				after = r.in.After
			}
		}
		for {
			p, err := r.requestPage(ctx, at, after)
			if err != nil {
				return err
			}
			if len(p.rows) > 0 {
				if err := each(p); err != nil {
					return err
				}
			}
			if len(p.rows) < pageRows {
				break
			}
			after = p.last
		}
	}
	return nil
}

func (r *reader) requestPage(ctx context.Context, at time.Time, after Cursor) (p page, err error) {
	rows, err := r.q.ExportRequests(ctx, q.ExportRequestsParams{Day: at, AfterOrg: after.Org, AfterID: after.ID,
		Start: r.in.From, Stop: r.in.To, MaxRows: pageRows})
	if err != nil {
		return p, fmt.Errorf("export: requests of %s: %w", at.Format(time.DateOnly), err)
	}
	seen := map[ids.ID]bool{}
	for _, row := range rows {
		seen[row.OrgID], seen[row.ProjectID], seen[row.KeyID], seen[row.ModelID] = true, true, true, true
	}
	if err := r.learn(ctx, seen); err != nil {
		return p, err
	}
	p.rows = make([][]cell, len(rows))
	width := len(usageColumns)
	cells := make([]cell, 0, len(rows)*width)
	for i := range rows {
		cells = r.request(cells, &rows[i])
		p.rows[i] = cells[i*width : (i+1)*width]
		p.last = Cursor{Day: at, Org: rows[i].OrgID, ID: rows[i].ID}
	}
	return p, nil
}

// playground stands for all keys of the console's playground: nothing shows them one by one.
const playground = "Playground"

func (r *reader) request(b []cell, x *q.ExportRequestsRow) []cell {
	key, keyName := id(ids.Key, x.KeyID), r.names[x.KeyID].Label
	if r.names[x.KeyID].Hidden {
		key, keyName = cell{null: true}, playground
	}
	return append(b,
		id(ids.Request, x.ID), moment(x.StartedAt), maybeMoment(x.FirstTokenAt), moment(x.EndedAt),
		id(ids.Org, x.OrgID), text(r.names[x.OrgID].Label), id(ids.Project, x.ProjectID), text(r.names[x.ProjectID].Label), key, text(keyName),
		text(r.names[x.ModelID].Label), id(ids.Price, x.PriceVersionID), text(usage.Service(x.ServiceTier).String()), text(x.Ending), number(int64(x.Status)), truth(x.Streamed), text(x.Dialect),
		truth(x.Estimated), truth(x.Repriced), number(x.Requests), number(x.InputTokens), number(x.CachedTokens), number(x.CacheWriteTokens),
		number(x.OutputTokens), number(x.ReasoningTokens), number(x.ImageTokens), number(x.AudioTokens),
		amount(money.Nano(x.ChargedNano)), amount(money.Nano(x.OverrunNano)), amount(money.Nano(x.SavedNano)), maybeID(ids.Txn, x.TxnID))
}
