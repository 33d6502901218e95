package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Entry is an event as operators see it.
type Entry struct {
	ID, Type, Object string
	Created          time.Time
	Received         time.Time
	Source           Source
	State            string // new, done, ignored, dead or dismissed
	Attempts         int
	NextAt           time.Time
	Problem          string
	DecidedBy        string
	Reason           string
	Payload          string // only from Get
}

func entryOf(r q.StripeEvent) Entry {
	e := Entry{ID: r.ID, Type: r.Type, Object: r.ObjectID, Created: r.CreatedAt, Received: r.ReceivedAt, Source: Source(r.Source), State: r.State,
		Attempts: int(r.Attempts), NextAt: r.NextAt, Problem: r.Problem, Reason: r.Reason, Payload: r.Payload}
	if r.DecidedBy != nil {
		e.DecidedBy = *r.DecidedBy
	}
	return e
}

// MaxList bounds a list of events.
const MaxList = 200

const maxReason = 500 // characters

// Waiting lists the dead events and those that failed and are tried again; Recent lists the newest. Operators only.
func (b *Inbox) Waiting(ctx context.Context, by tenants.Actor) ([]Entry, error) {
	return b.list(ctx, by, func(r *q.Queries) ([]q.StripeEvent, error) { return r.WaitingInboxEvents(ctx, MaxList) })
}

// Recent lists the newest events, at most limit.
func (b *Inbox) Recent(ctx context.Context, by tenants.Actor, limit int) ([]Entry, error) {
	return b.list(ctx, by, func(r *q.Queries) ([]q.StripeEvent, error) {
		return r.NewestInboxEvents(ctx, int32(min(max(limit, 1), MaxList)))
	})
}

func (b *Inbox) list(ctx context.Context, by tenants.Actor, read func(r *q.Queries) ([]q.StripeEvent, error)) (out []Entry, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = b.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := read(q.New(tx))
		out = make([]Entry, len(rows))
		for i, r := range rows {
			out[i] = entryOf(r)
			out[i].Payload = ""
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("inbox: list: %w", err)
	}
	return out, nil
}

// Get shows one event whole. Operators only.
func (b *Inbox) Get(ctx context.Context, by tenants.Actor, id string) (e Entry, err error) {
	if err := by.RequireOperator(); err != nil {
		return Entry{}, err
	}
	err = b.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		row, err := q.New(tx).InboxEvent(ctx, id)
		e = entryOf(row)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Entry{}, fault.New(fault.NotFound, "There is no such event.").WithCode("not_found")
	}
	return e, err
}

// Retry lets a dead event be tried again, from its first attempt. Operators only; audited.
func (b *Inbox) Retry(ctx context.Context, by tenants.Actor, id string) error {
	err := b.decide(ctx, by, id, "payment_event.retry", "", func(r *q.Queries, now time.Time) (int64, error) {
		return r.RetryInboxEvent(ctx, q.RetryInboxEventParams{ID: id, Now: now, DecidedBy: new(by.Name())})
	})
	if err == nil {
		b.poke()
	}
	return err
}

// Dismiss decides that a dead event is never worked off, and why. Operators only; audited.
func (b *Inbox) Dismiss(ctx context.Context, by tenants.Actor, id, reason string) error {
	reason = strings.TrimSpace(reason)
	if n := utf8.RuneCountInString(reason); n == 0 || n > maxReason {
		return fault.New(fault.Invalid, "Say why, in at most %d characters.", maxReason).WithParam("reason")
	}
	return b.decide(ctx, by, id, "payment_event.dismiss", reason, func(r *q.Queries, now time.Time) (int64, error) {
		return r.DismissInboxEvent(ctx, q.DismissInboxEventParams{ID: id, Now: &now, DecidedBy: new(by.Name()), Reason: reason})
	})
}

func (b *Inbox) decide(ctx context.Context, by tenants.Actor, id, action, reason string, change func(r *q.Queries, now time.Time) (int64, error)) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	return b.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		now := b.now()
		n, err := change(q.New(tx), now)
		if err != nil {
			return fmt.Errorf("inbox: decide: %w", err)
		}
		if n != 1 {
			return fault.New(fault.Conflict, "This event does not wait for a decision (any more).").WithCode("not_waiting")
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: ids.Nil, Action: action, Target: id, After: map[string]string{"reason": reason}, At: now})
	})
}
