// Package inbox keeps what the payment provider tells: every event is stored as it came, once, before anything is done
// about it, and then worked off in the order in which it happened.
//
// It owns stripe_events. It does not own what an event means (its Handler does) nor how its signature is checked
// (billing/stripegw). An event is a hint: a handler looks at the payment provider itself, so that order, delay and
// repetition do not matter.
//
// Invariants: an event that is stored was acknowledged to the sender only after the commit; an event becomes done in the
// transaction of its effect, so that neither exists without the other; one that fails is tried again, ever more slowly,
// until it is dead; a dead one waits for a person, whose decision is audited.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
)

// MaxPayload bounds an event's text, in bytes.
const MaxPayload = 512 << 10

// Times and counts of working off.
const (
	MaxAttempts  = 20
	firstDelay   = 2 * time.Second // doubles with every attempt
	longestDelay = time.Hour
	handleLimit  = 45 * time.Second
	pollEvery    = time.Second         // for events that another process stored
	keepPayload  = 90 * 24 * time.Hour // of events that are over; the row stays
	tidyEvery    = 6 * time.Hour
)

// Source says how an event got here.
type Source string

// The sources.
const (
	Webhook Source = "webhook"
	List    Source = "list" // it never arrived, and was found in the payment provider's own list
)

// Event is one thing that the payment provider tells.
type Event struct {
	ID      string
	Type    string
	Object  string    // id of the thing that it is about
	Created time.Time // by the payment provider's clock
	Payload []byte    // as it came
}

// Effect is what an event leads to.
type Effect struct {
	Apply func(ctx context.Context, tx pgx.Tx) error // in the transaction that makes the event done; nil = nothing
	Done  func(ctx context.Context)                  // after the commit; nil = nothing
}

// Handler knows what events mean. It looks at the payment provider in Handle, outside any transaction. A fault of kind
// Conflict says that trying again will not help.
type Handler interface {
	Knows(eventType string) bool
	Handle(ctx context.Context, e Event) (Effect, error)
}

// Inbox stores events and works them off. It is safe for concurrent use.
type Inbox struct {
	db      *db.DB
	clock   clock.Clock
	handler Handler
	wake    chan struct{}
}

// New makes an inbox.
func New(d *db.DB, c clock.Clock, h Handler) *Inbox {
	return &Inbox{db: d, clock: c, handler: h, wake: make(chan struct{}, 1)}
}

func (b *Inbox) now() time.Time { return b.clock.Now().UTC().Truncate(time.Microsecond) }

// Store keeps an event; fresh=false says that it is kept already. Events of types that nobody handles are kept and ignored.
func (b *Inbox) Store(ctx context.Context, from Source, e Event) (fresh bool, err error) {
	if e.ID == "" || e.Type == "" || len(e.Payload) > MaxPayload {
		return false, fault.New(fault.Invalid, "This is not an event.")
	}
	state := "ignored"
	if b.handler.Knows(e.Type) {
		state = "new"
	}
	p := q.StoreInboxEventParams{ID: e.ID, Type: e.Type, ObjectID: e.Object, CreatedAt: e.Created, Source: string(from), Payload: string(e.Payload),
		State: state, Now: b.now()}
	err = b.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		n, err := q.New(tx).StoreInboxEvent(ctx, p)
		fresh = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("inbox: store an event: %w", err)
	}
	b.poke()
	return fresh, nil
}

func (b *Inbox) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Run works events off until ctx ends.
func (b *Inbox) Run(ctx context.Context) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var tidied time.Time
	for ctx.Err() == nil {
		worked, err := b.One(ctx)
		if err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "inbox: events wait", "cause", err)
		}
		if worked && err == nil {
			continue
		}
		if now := b.now(); now.Sub(tidied) >= tidyEvery && b.tidy(ctx) == nil {
			tidied = now
		}
		select {
		case <-ctx.Done():
		case <-b.wake:
		case <-poll.C:
		}
	}
	return ctx.Err()
}

// tidy forgets the text of what has long been over; it holds customers' addresses.
func (b *Inbox) tidy(ctx context.Context) error {
	return b.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		return q.New(tx).EmptyOldInboxEvents(ctx, b.now().Add(-keepPayload))
	})
}

// One works off the oldest event that is due; false = there is none. An event's own failure is noted in its row and is no
// error here.
func (b *Inbox) One(ctx context.Context) (worked bool, err error) {
	var row q.StripeEvent
	err = b.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
		row, err = q.New(tx).NextInboxEvent(ctx, b.now())
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inbox: next event: %w", err)
	}
	failure := b.handle(ctx, row)
	if failure == nil || ctx.Err() != nil {
		return true, ctx.Err()
	}
	return true, b.delay(ctx, row, failure)
}

func (b *Inbox) handle(ctx context.Context, row q.StripeEvent) error {
	ctx, cancel := context.WithTimeout(ctx, handleLimit)
	defer cancel()
	effect, err := b.handler.Handle(ctx, Event{ID: row.ID, Type: row.Type, Object: row.ObjectID, Created: row.CreatedAt, Payload: []byte(row.Payload)})
	if err != nil {
		return err
	}
	err = b.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		now, err := q.New(tx).LockInboxEvent(ctx, row.ID)
		if err != nil || now.State != "new" { // another process was faster
			return err
		}
		if effect.Apply != nil {
			if err := effect.Apply(ctx, tx); err != nil {
				return err
			}
		}
		return q.New(tx).FinishInboxEvent(ctx, q.FinishInboxEventParams{ID: row.ID, State: "done"})
	})
	if err == nil && effect.Done != nil {
		effect.Done(ctx)
	}
	return err
}

// delay notes a failure. What cannot heal by itself is dead at once.
func (b *Inbox) delay(ctx context.Context, row q.StripeEvent, failure error) error {
	p := q.DelayInboxEventParams{ID: row.ID, State: "new", NextAt: b.now().Add(pause(int(row.Attempts))), Problem: clip(failure.Error(), maxProblem)}
	if int(row.Attempts)+1 >= MaxAttempts || fault.Is(failure, fault.Conflict) {
		p.State = "dead"
		slog.ErrorContext(ctx, "inbox: an event of the payment provider is given up; it waits for a person", "event", row.ID, "type", row.Type, "cause", failure)
	}
	err := b.db.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		_, err := q.New(tx).DelayInboxEvent(ctx, p)
		return err
	})
	if err != nil {
		return fmt.Errorf("inbox: note a failure: %w", err)
	}
	return nil
}

func pause(attempts int) time.Duration {
	d := firstDelay
	for range attempts {
		if d *= 2; d >= longestDelay {
			return longestDelay
		}
	}
	return d
}

const maxProblem = 1000 // bytes

// clip makes any text one that the database takes, of at most n bytes.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 { // not inside a character
		n--
	}
	return s[:n]
}
