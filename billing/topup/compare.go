package topup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/inbox"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// How the comparison with the payment provider's lists is made.
const (
	compareEvery   = time.Hour
	compareBack    = 72 * time.Hour  // how old what is compared may be: it repeats an event that long
	compareGrace   = 5 * time.Minute // what is younger may be on its way
	compareLimit   = 10 * time.Minute
	maxDifferences = 200
)

// Store keeps an event: *inbox.Inbox.
type Store interface {
	Store(ctx context.Context, from inbox.Source, e inbox.Event) (fresh bool, err error)
}

// Difference is something that our books and the payment provider's lists do not agree about.
type Difference struct {
	Payment string `json:"payment"` // the payment provider's id; "" = it knows none
	Topup   string `json:"topup"`
	What    string `json:"what"`
}

// Comparison is what a comparison found.
type Comparison struct {
	At          time.Time
	Payments    int64 // looked at
	Missed      int64 // events that had never arrived; they were stored and are worked off
	Differences []Difference
	Problem     string // why it could not be finished; "" = it was
}

// Compare reads the payment provider's own lists of the last days: events that never arrived are stored, payments whose
// credit is missing are fulfilled, and what still differs then is listed.
func (s *Service) Compare(ctx context.Context, store Store) (Comparison, error) {
	if !s.On() {
		return Comparison{}, errOff
	}
	ctx, cancel := context.WithTimeout(ctx, compareLimit)
	defer cancel()
	c := &comparison{s: s, Comparison: Comparison{At: s.now(), Differences: []Difference{}}, seen: map[string]bool{}}
	err := c.run(ctx, store)
	if err != nil {
		c.Problem = fault.Of(err).Message
	}
	list, jsonErr := json.Marshal(c.Differences)
	if jsonErr != nil {
		return c.Comparison, jsonErr
	}
	saved := s.system(context.WithoutCancel(ctx), func(_ pgx.Tx, r *q.Queries) error {
		return r.InsertStripeCheck(ctx, q.InsertStripeCheckParams{ID: ids.New(), At: c.At, Payments: c.Payments, Missed: c.Missed, Differences: list, Problem: c.Problem})
	})
	return c.Comparison, errors.Join(err, saved)
}

type comparison struct {
	Comparison
	s    *Service
	seen map[string]bool // payments that the payment provider listed
}

func (c *comparison) run(ctx context.Context, store Store) error {
	since := c.At.Add(-compareBack)
	err := c.s.c.Gateway.Events(ctx, since, func(e inbox.Event) error {
		if !c.s.Knows(e.Type) {
			return nil
		}
		fresh, err := store.Store(ctx, inbox.List, e)
		if fresh {
			c.Missed++
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := c.s.c.Gateway.Payments(ctx, since, func(p Payment) error { return c.payment(ctx, p) }); err != nil {
		return err
	}
	return c.unlisted(ctx, since)
}

func (c *comparison) differ(payment string, topup ids.ID, format string, args ...any) {
	if len(c.Differences) < maxDifferences {
		c.Differences = append(c.Differences, Difference{Payment: payment, Topup: ids.Format(ids.Topup, topup), What: fmt.Sprintf(format, args...)})
	}
}

// payment compares one payment with its top-up, after having fulfilled it if anything is missing.
func (c *comparison) payment(ctx context.Context, p Payment) error {
	if p.Topup == ids.Nil {
		return nil
	}
	c.Payments++
	c.seen[p.ID] = true
	read := func() (t q.Topup, err error) {
		err = c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
			t, err = r.TopupByID(ctx, p.Topup)
			return found(err, "top-up")
		})
		return t, err
	}
	t, err := read()
	if fault.Is(err, fault.NotFound) {
		c.differ(p.ID, p.Topup, "the payment provider has a payment for a top-up that is not known here")
		return nil
	}
	if err != nil || agrees(t, p) {
		return err
	}
	switch _, err := c.s.fulfil(ctx, t.OrgID, t.ID, p.ID); {
	case err == nil, fault.Is(err, fault.Conflict): // a mismatch is told below, with the sums
	case ctx.Err() != nil:
		return err
	default: // the other payments are compared all the same
		slog.WarnContext(ctx, "topup: a payment could not be compared", "payment", p.ID, "topup", ids.Format(ids.Topup, t.ID), "cause", err)
		c.differ(p.ID, p.Topup, "could not be compared: %s", fault.Of(err).Message)
		return nil
	}
	if t, err = read(); err != nil || agrees(t, p) {
		return err
	}
	if c.At.Sub(p.Created) < compareGrace {
		return nil
	}
	if again(t, p) {
		c.differ(p.ID, p.Topup, "a second payment of %s for a top-up that %s paid already: give it back at the payment provider", dollars(p.Cents), text(t.PaymentID))
		return nil
	}
	c.differ(p.ID, p.Topup, "paid %s, back %s, by the payment provider; here it is %s with %s, back %s", dollars(p.Cents), dollars(p.Refunded+p.Disputed), t.State, dollars(t.Cents), dollars(t.ClawedCents))
	return nil
}

// agrees reports that a top-up is where its payment is, the fee included, which may become known late. A payment that failed
// proves nothing: others may follow.
func agrees(t q.Topup, p Payment) bool {
	if p.State != PaymentSucceeded {
		return text(t.PaymentID) != p.ID || State(t.State) != Succeeded
	}
	if again(t, p) {
		return p.Refunded+p.Disputed >= p.Cents
	}
	return State(t.State) == Succeeded && text(t.PaymentID) == p.ID && t.Cents == p.Cents && t.ClawedCents == min(t.Cents, p.Refunded+p.Disputed) &&
		(t.FeeCents != 0 || p.Fee == 0)
}

// again reports that money came by more than one attempt of a top-up. It gives no credit.
func again(t q.Topup, p Payment) bool {
	return State(t.State) == Succeeded && text(t.PaymentID) != p.ID
}

// unlisted finds credit that was given for payments that the payment provider does not list. What was paid since the
// comparison began may be missing in a list that was read before.
func (c *comparison) unlisted(ctx context.Context, since time.Time) error {
	return c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		rows, err := r.PaidTopups(ctx, q.PaidTopupsParams{Since: since, Until: c.At})
		for _, t := range rows {
			if id := text(t.PaymentID); !c.seen[id] && t.CreatedAt.After(since.Add(compareGrace)) {
				c.differ(id, t.ID, "credit of %s was given, but the payment provider lists no such payment", dollars(t.Cents))
			}
		}
		return err
	})
}

// LastComparison is what the last comparison found; the zero Comparison when there was none. Operators only.
func (s *Service) LastComparison(ctx context.Context, by tenants.Actor) (c Comparison, err error) {
	if err := by.RequireOperator(); err != nil {
		return c, err
	}
	err = s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		row, err := q.New(tx).LastStripeCheck(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		c = Comparison{At: row.At, Payments: row.Payments, Missed: row.Missed, Problem: row.Problem}
		return json.Unmarshal(row.Differences, &c.Differences)
	})
	return c, err
}
