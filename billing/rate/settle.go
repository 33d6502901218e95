package rate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
)

// errRace means that another transaction booked the same events meanwhile: begin anew.
var errRace = errors.New("rate: another rater is at work on the same events")

// work is what is common to everything that books events inside a transaction.
type work struct {
	from source
	now  time.Time
	at   func(step string) error // told every step; tests fail there
}

// settle books entries inside tx: those that end a request and the news of running ones. What cannot be booked goes to
// quarantine; what was booked before is left out. It gives what this call booked.
func (w *work) settle(ctx context.Context, tx pgx.Tx, entries []*entry) (booked []*entry, err error) {
	var sound []*entry
	for _, e := range entries {
		if e.reason == "" {
			sound = append(sound, e)
		}
	}
	finals, progress := distinct(sound)
	if booked, err = w.try(ctx, tx, finals, progress); err != nil {
		return nil, err
	}
	var ended []*entry
	for _, e := range entries {
		if e.reason == "" {
			continue
		}
		if _, err := w.quarantine(ctx, tx, e); err != nil {
			return nil, err
		}
		if e.ev.Progress == 0 {
			ended = append(ended, e)
		}
	}
	// A person decides about them now: no fence may bill their last progress.
	return booked, forgetStreams(ctx, q.New(tx), ended)
}

// try books under a savepoint. Poison is isolated by halving: what fails alone is marked with its reason.
func (w *work) try(ctx context.Context, tx pgx.Tx, finals, progress []*entry) ([]*entry, error) {
	if len(finals)+len(progress) == 0 {
		return nil, nil
	}
	err := w.bookWhole(ctx, tx, finals, progress)
	if errors.Is(err, errKnown) {
		if finals, err = w.unknown(ctx, tx, finals); err != nil {
			return nil, err
		}
		if err = w.bookWhole(ctx, tx, finals, progress); errors.Is(err, errKnown) {
			return nil, errRace
		}
	}
	switch {
	case err == nil:
		return sane(finals), nil
	case !poison(err):
		return nil, err
	case len(finals)+len(progress) == 1:
		e := append(finals[:len(finals):len(finals)], progress...)[0]
		if e.dropRaw() { // the engine's words are for reading; the vector is what is owed
			return w.try(ctx, tx, finals, progress)
		}
		e.reason = "it cannot be stored: " + err.Error()
		return nil, nil
	}
	cut, cutProgress := len(finals)/2, len(progress)/2
	if len(finals) > 0 && len(progress) > 0 { // first apart, then by halves: every step must leave less on both sides
		cut, cutProgress = len(finals), 0
	}
	left, err := w.try(ctx, tx, finals[:cut], progress[:cutProgress])
	if err != nil {
		return nil, err
	}
	right, err := w.try(ctx, tx, finals[cut:], progress[cutProgress:])
	return append(left, right...), err
}

// sane drops what judging found impossible.
func sane(entries []*entry) (kept []*entry) {
	for _, e := range entries {
		if e.reason == "" {
			kept = append(kept, e)
		}
	}
	return kept
}

// bookWhole books all or nothing.
func (w *work) bookWhole(ctx context.Context, tx pgx.Tx, finals, progress []*entry) error {
	save, err := tx.Begin(ctx)
	if err != nil {
		return fmt.Errorf("rate: savepoint: %w", err)
	}
	if err := book(ctx, save, w.now, finals, progress, w.at); err != nil {
		if rollback := save.Rollback(ctx); rollback != nil {
			return errors.Join(err, rollback)
		}
		return err
	}
	return save.Commit(ctx)
}

// poison reports whether the data themselves are at fault: a value out of range, text that cannot be text, a broken
// constraint. Anything else (a lost race, a server that is away, a missing table) says nothing about the events.
func poison(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code[:2] == "23" || pg.Code == "P0001")
}

// unknown leaves out the finals that are booked. One that was closed as "gateway died" and whose true end arrives now is
// the operator's loss: it is listed, the customer pays what he was told.
func (w *work) unknown(ctx context.Context, tx pgx.Tx, finals []*entry) ([]*entry, error) {
	a := q.KnownEventsParams{}
	for _, e := range finals {
		a.Orgs, a.Days, a.Ids = append(a.Orgs, e.ev.Org), append(a.Days, e.day), append(a.Ids, e.ev.ID)
	}
	rows, err := q.New(tx).KnownEvents(ctx, a)
	if err != nil {
		return nil, fmt.Errorf("rate: look for known events: %w", err)
	}
	type request struct{ org, id ids.ID }
	known := make(map[request]string, len(rows))
	for _, r := range rows {
		known[request{r.OrgID, r.ID}] = r.Ending
	}
	var fresh []*entry
	for _, e := range finals {
		ending, ok := known[request{e.ev.Org, e.ev.ID}]
		if !ok {
			fresh = append(fresh, e)
			continue
		}
		if ending != string(usage.GatewayDied) || e.ev.Ending == usage.GatewayDied {
			continue
		}
		late := *e
		late.reason = "its end arrived after it was closed as gateway_died"
		id, err := w.quarantine(ctx, tx, &late)
		if err != nil {
			return nil, err
		}
		if err := decide(ctx, tx, id, Dismissed, tenants.System(), "the customer pays the last progress, the rest is the operator's"); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// quarantine puts an entry aside, as it was logged, for a person to decide.
func (w *work) quarantine(ctx context.Context, tx pgx.Tx, e *entry) (ids.ID, error) {
	row := q.InsertQuarantineParams{ID: ids.New(), Shard: int32(w.from.shard), Incarnation: w.from.incarnation,
		Seq: int64(e.seq), Position: int32(e.position), Reason: clip(plain(e.reason), maxReason), Payload: e.line}
	if len(row.Payload) > maxQuarantined {
		row.Payload = row.Payload[:maxQuarantined]
	}
	if e.ev.Org != ids.Nil {
		row.OrgID = &e.ev.Org
	}
	if e.ev.ID != ids.Nil {
		row.EventID = &e.ev.ID
	}
	if _, err := q.New(tx).InsertQuarantine(ctx, row); err != nil {
		return ids.Nil, fmt.Errorf("rate: quarantine: %w", err)
	}
	return row.ID, nil
}

// plain is a reason without the package that found it: people read it.
func plain(reason string) string { return strings.TrimPrefix(reason, "usage: ") }

// maxReason bounds the text of a reason, in bytes.
const maxReason = 500
