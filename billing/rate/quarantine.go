package rate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Decision is what became of an event in quarantine.
type Decision string

// The decisions. There is no way back from either.
const (
	Booked    Decision = "booked"    // charged after all
	Dismissed Decision = "dismissed" // never charged
)

// Desk is where operators decide about events in quarantine. It is safe for concurrent use.
type Desk struct {
	db    *db.DB
	clock clock.Clock
}

// NewDesk makes a desk.
func NewDesk(d *db.DB, c clock.Clock) *Desk { return &Desk{db: d, clock: c} }

// Redrive books a quarantined event after all: its model exists now, or its context was corrected. Operators only. An event
// that still cannot be booked is a fault of kind Conflict, and stays. One that was booked this way is left as it is, so a
// repeated request is harmless; one that was dismissed is a Conflict.
func (d *Desk) Redrive(ctx context.Context, by tenants.Actor, id ids.ID) error {
	return d.decide(ctx, by, id, Booked, "", func(tx pgx.Tx, row q.Quarantine) error {
		e := readEntry(row.Payload, uint64(row.Seq), int(row.Position), d.clock.Now())
		if e.ev.Progress > 0 {
			return fault.New(fault.Conflict, "It only tells of a stream that was running: there is nothing to book. Dismiss it.").WithCode("not_bookable")
		}
		w := &work{from: source{row.Incarnation, int(row.Shard)}, now: d.clock.Now(), at: func(string) error { return nil }}
		booked, err := w.settle(ctx, tx, []*entry{e})
		switch {
		case err != nil:
			return err
		case e.reason != "":
			return fault.New(fault.Conflict, "It still cannot be booked: %s.", strings.TrimSuffix(plain(e.reason), ".")).WithCode("not_bookable")
		case len(booked) == 0:
			return fault.New(fault.Conflict, "This request is in the books already. Dismiss the event.").WithCode("not_bookable")
		}
		return nil
	})
}

// Dismiss decides that a quarantined event is never charged, and why. Operators only. One that was dismissed before keeps its
// first reason; one that was booked is a Conflict.
func (d *Desk) Dismiss(ctx context.Context, by tenants.Actor, id ids.ID, why string) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	if why = strings.TrimSpace(why); why == "" || len(why) > maxReason {
		return fault.New(fault.Invalid, "Say why it is dismissed, in at most %d bytes.", maxReason).WithParam("reason")
	}
	return d.decide(ctx, by, id, Dismissed, why, func(pgx.Tx, q.Quarantine) error { return nil })
}

// decide makes a decision once: what it means, the decision and its audit entry, in one transaction.
func (d *Desk) decide(ctx context.Context, by tenants.Actor, id ids.ID, what Decision, why string, do func(tx pgx.Tx, row q.Quarantine) error) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	return d.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		row, err := q.New(tx).LockQuarantined(ctx, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return fault.New(fault.NotFound, "There is no such event in quarantine.").WithCode("not_found")
		case err != nil:
			return fmt.Errorf("rate: lock a quarantined event: %w", err)
		case row.Decision != nil && *row.Decision == string(what):
			return nil
		case row.Decision != nil:
			return fault.New(fault.Conflict, "This event was %s already.", *row.Decision).WithCode("decided_already")
		}
		if err := do(tx, row); err != nil {
			return err
		}
		if err := decide(ctx, tx, id, what, by, why); err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Action: actions[what], Target: ids.Format(ids.Aside, id), At: d.clock.Now().UTC(), After: verdict(row, why)})
	})
}

// actions are the decisions in the audit log. The entries are the operator's own: customers do not see them.
var actions = map[Decision]string{Booked: "quarantine.redrive", Dismissed: "quarantine.dismiss"}

// Verdict is a decision as the audit log keeps it.
type Verdict struct {
	Request string `json:"request,omitempty"` // formatted, like Org
	Org     string `json:"org,omitempty"`
	Cause   string `json:"cause"` // why the event was set aside
	Reason  string `json:"reason,omitempty"`
}

func verdict(row q.Quarantine, why string) Verdict {
	v := Verdict{Cause: row.Reason, Reason: why}
	if row.EventID != nil {
		v.Request = ids.Format(ids.Request, *row.EventID)
	}
	if row.OrgID != nil {
		v.Org = ids.Format(ids.Org, *row.OrgID)
	}
	return v
}

func decide(ctx context.Context, tx pgx.Tx, id ids.ID, what Decision, by tenants.Actor, why string) error {
	err := q.New(tx).ResolveQuarantined(ctx, q.ResolveQuarantinedParams{ID: id, Decision: string(what), DecidedBy: by.Name(), Resolution: why})
	if err != nil {
		return fmt.Errorf("rate: resolve a quarantined event: %w", err)
	}
	return nil
}
