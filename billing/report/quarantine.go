package report

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/price"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
)

// Quarantined is an event that was set aside and not charged. Operators only: its reason tells of engines.
type Quarantined struct {
	ID         ids.ID
	Org        ids.ID // ids.Nil when the event does not even tell
	OrgName    string // may be empty, like Model and Key
	Model, Key string
	Reason     string      // why it could not be booked, in words
	Event      usage.Event // what of it can be read, as the gateway logged it
	Logged     []byte      // the event as it was written, at most 64 KiB of it
	At         time.Time   // when it was set aside
	Decided    *Decided    // nil = it waits
}

// Decided is what a person decided about an event in quarantine.
type Decided struct {
	Decision string // booked or dismissed, as billing/rate has them
	By       string // user_…, token:name or system
	Why      string
	At       time.Time
}

// setAside is what a customer reads about his request in quarantine.
const setAside = "What was counted for this request could not be billed as usual, so it was set aside and nothing was charged."

// Quarantine lists what waits for a decision, newest first; before is the last row of the page before, ids.Nil for the first.
func (s *Service) Quarantine(ctx context.Context, by tenants.Actor, before ids.ID, limit int) (out []Quarantined, err error) {
	if before == ids.Nil {
		before = newest
	}
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		rows, err := r.ReportQuarantine(ctx, q.ReportQuarantineParams{BeforeID: before, MaxRows: int32(min(limit, MaxRows))})
		if err == nil {
			out, err = quarantined(ctx, r, rows)
		}
		return err
	})
	return out, err
}

// Quarantined is one event in quarantine, also one that was decided about.
func (s *Service) Quarantined(ctx context.Context, by tenants.Actor, id ids.ID) (out Quarantined, err error) {
	err = s.read(ctx, by, ids.Nil, func(r *q.Queries) error {
		row, err := r.ReportQuarantined(ctx, id)
		if err != nil {
			return tenants.Found(err, "event in quarantine")
		}
		list, err := quarantined(ctx, r, []q.Quarantine{row})
		if err == nil {
			out = list[0]
		}
		return err
	})
	return out, err
}

// quarantined reads rows and names what they speak of.
func quarantined(ctx context.Context, r *q.Queries, rows []q.Quarantine) ([]Quarantined, error) {
	out := make([]Quarantined, len(rows))
	var named []Cell
	for i, row := range rows {
		x := Quarantined{ID: row.ID, Reason: row.Reason, Logged: row.Payload, At: row.CreatedAt}
		_ = json.Unmarshal(row.Payload, &x.Event) // may be garbage: that is why it is here
		if row.OrgID != nil {
			x.Org = *row.OrgID
		}
		if row.ResolvedAt != nil && row.Decision != nil && row.DecidedBy != nil {
			x.Decided = &Decided{Decision: *row.Decision, By: *row.DecidedBy, At: *row.ResolvedAt}
			if row.Resolution != nil {
				x.Decided.Why = *row.Resolution
			}
		}
		out[i] = x
		named = append(named, Cell{Group: x.Org}, Cell{Group: x.Event.Model}, Cell{Group: x.Event.Key})
	}
	names, err := labels(ctx, r, named)
	for i, x := range out {
		out[i].OrgName, out[i].Model, out[i].Key = names[x.Org].Label, names[x.Event.Model].Label, names[x.Event.Key].Label
	}
	return out, err
}

// quarantinedRequest looks for a request in quarantine. The caller has checked that who asks may see the organization's
// requests.
func (s *Service) quarantinedRequest(ctx context.Context, by tenants.Actor, org, id ids.ID) (out Request, v price.Version, err error) {
	err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		r := q.New(tx)
		row, err := r.ReportPutAside(ctx, q.ReportPutAsideParams{Org: org, Request: id})
		if errors.Is(err, pgx.ErrNoRows) {
			return fault.New(fault.NotFound, "There is no such request, or it has not been rated yet (that takes a second).").WithCode("not_found")
		}
		if err != nil {
			return err
		}
		list, err := quarantined(ctx, r, []q.Quarantine{row})
		if err != nil {
			return err
		}
		out = withheld(list[0], by)
		if v, err = price.ByID(ctx, tx, out.Event.PriceVersion); fault.Is(err, fault.NotFound) {
			err = nil // it may name a version that never was
		}
		return err
	})
	return out, v, err
}

// withheld is a request in quarantine as a person may see it. What was counted is no truth: it is in the event, for
// operators.
func withheld(x Quarantined, by tenants.Actor) Request {
	out := Request{Event: x.Event, Model: x.Model, Key: x.Key, PutAside: setAside}
	out.Event.Ending, out.Event.Usage, out.Event.Charge = usage.Quarantined, usage.Vector{}, 0
	if by.RequireOperator() == nil {
		out.Quarantined = &x
		return out
	}
	out.Event.Raw, out.Event.Doubt = nil, ""
	return out
}
