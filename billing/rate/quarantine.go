package rate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Quarantined is an event that could not be booked and waits for a person.
type Quarantined struct {
	ID        ids.ID
	Org       ids.ID // ids.Nil when not even that could be read
	Reason    string
	Payload   []byte // the event as it was written, at most 64 KiB of it
	CreatedAt time.Time
}

// MaxListed bounds a list of Quarantine.
const MaxListed = 500

// Quarantine lists what waits, oldest first.
func Quarantine(ctx context.Context, d *db.DB) (waiting []Quarantined, err error) {
	err = d.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).OpenQuarantine(ctx, MaxListed)
		waiting = make([]Quarantined, len(rows))
		for i, r := range rows {
			waiting[i] = Quarantined{ID: r.ID, Reason: r.Reason, Payload: r.Payload, CreatedAt: r.CreatedAt}
			if r.OrgID != nil {
				waiting[i].Org = *r.OrgID
			}
		}
		return err
	})
	return waiting, err
}

// Redrive books a quarantined event after all: its model exists now, or its context was corrected. An event that still
// cannot be booked is a fault of kind Conflict, and stays. by is who decided.
func Redrive(ctx context.Context, d *db.DB, c clock.Clock, id ids.ID, by string) error {
	return d.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		row, err := lockOpen(ctx, tx, id)
		if err != nil {
			return err
		}
		e := readEntry(row.Payload, uint64(row.Seq), int(row.Position), c.Now())
		if e.ev.Progress > 0 {
			return fault.New(fault.Conflict, "It only tells of a stream that was running: there is nothing to book. Dismiss it.")
		}
		w := &work{from: source{row.Incarnation, int(row.Shard)}, now: c.Now(), at: func(string) error { return nil }}
		booked, err := w.settle(ctx, tx, []*entry{e})
		switch {
		case err != nil:
			return err
		case e.reason != "":
			return fault.New(fault.Conflict, "It still cannot be booked: %s.", strings.TrimSuffix(e.reason, "."))
		case len(booked) == 0:
			return fault.New(fault.Conflict, "This request is in the books already. Dismiss the event.")
		}
		return resolve(ctx, tx, id, "booked by "+by)
	})
}

// Dismiss decides that a quarantined event is never charged.
func Dismiss(ctx context.Context, d *db.DB, id ids.ID, by, why string) error {
	if strings.TrimSpace(why) == "" {
		return fault.New(fault.Invalid, "Say why it is dismissed.").WithParam("reason")
	}
	return d.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		if _, err := lockOpen(ctx, tx, id); err != nil {
			return err
		}
		return resolve(ctx, tx, id, "dismissed by "+by+": "+why)
	})
}

func lockOpen(ctx context.Context, tx pgx.Tx, id ids.ID) (q.Quarantine, error) {
	row, err := q.New(tx).LockQuarantined(ctx, id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return row, fault.New(fault.NotFound, "There is no such event in quarantine.")
	case err != nil:
		return row, fmt.Errorf("rate: lock a quarantined event: %w", err)
	case row.ResolvedAt != nil:
		return row, fault.New(fault.Conflict, "This event is decided already.")
	}
	return row, nil
}

func resolve(ctx context.Context, tx pgx.Tx, id ids.ID, how string) error {
	how = clip(how, maxReason)
	if err := q.New(tx).ResolveQuarantined(ctx, q.ResolveQuarantinedParams{ID: id, Resolution: &how}); err != nil {
		return fmt.Errorf("rate: resolve a quarantined event: %w", err)
	}
	return nil
}
