// Package topup turns money that customers send into credit: by a page of the payment provider, or from a kept card when
// the balance runs low.
//
// It owns payment_customers, topups and auto_recharges, and what an event of the payment provider means. It does not own
// the payment provider's protocol (billing/stripegw), the events (billing/inbox), the books (billing/ledger) or what may be
// spent (billing/credit).
//
// Words. Top-up: one sum of money that becomes credit at most once; an automatic one is charged from a kept card. Fulfil:
// look at the payment provider and do what follows, whoever asks for it: the page a customer comes back to, an event, the
// worker, the comparison with the payment provider's lists. Claw back: take credit back whose money went back.
//
// Invariants.
//   - Credit is given once per top-up, for the sum and currency that was asked for, and never before the money is there.
//   - What a top-up lost to refunds and disputes is a target, not an event: the ledger moves by the difference to what it
//     took back before, so nothing is taken twice in whatever order events come, and a won dispute gives it again.
//   - A look at the payment provider is acted on only when nobody else acted since it began (topups.version).
//   - A card is charged off session only by consent, for one top-up per organization at a time, at most the month's maximum,
//     and not again after a decline until its time has come. Money that went back by a dispute, or by a refund that makes the
//     balance low, is not charged again before the customer says so.
//   - Whether a charge happened is looked up, never inferred from an error; while that is unknown nothing else is charged. It is
//     looked up under every customer that it was asked for under.
//   - Of the cards that were given, the one that was given last is kept, in whatever order that is heard.
package topup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Currency is the one that is taken.
const Currency = "usd"

// NanoPerCent turns the payment provider's unit into the ledger's.
const NanoPerCent = money.NanoPerUSD / 100

// Limits of one top-up, in US cents.
const (
	MinCents int64 = 5_00
	MaxCents int64 = 10_000_00
)

// Kind says who began a top-up.
type Kind string

// The kinds.
const (
	Manual Kind = "manual"
	Auto   Kind = "auto"
)

// State is how far a top-up is.
type State string

// The states. Succeeded is final; failed and expired are too, unless the money arrives after all.
const (
	Created    State = "created"    // nothing is known at the payment provider
	Open       State = "open"       // the payment page waits for the customer
	Processing State = "processing" // the money is on its way, or the card is being charged
	Retrying   State = "retrying"   // the card was declined, and is tried again
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Expired    State = "expired" // the payment page was left, or the charge was not needed any more
)

// Config of a Service.
type Config struct {
	DB        *db.DB
	Clock     clock.Clock
	Notify    credit.Notifier
	Gateway   Gateway // nil = no payments by card
	PublicURL string  // of the console
}

// Service is safe for concurrent use. Its methods check their Actor.
type Service struct {
	c Config

	recharging sync.Mutex // one walk through the organizations at a time
	recharged  ids.ID     // where it is
}

// New makes a service.
func New(c Config) *Service { return &Service{c: c} }

// On reports whether customers can pay by card at all; Test, that no money moves when they do.
func (s *Service) On() bool   { return s != nil && s.c.Gateway != nil }
func (s *Service) Test() bool { return s.On() && s.c.Gateway.Test() }

var errOff = fault.New(fault.Unavailable, "Payments by card are not set up here. Ask your provider to add credit.").WithCode("payments_off")

func (s *Service) now() time.Time { return s.c.Clock.Now().UTC().Truncate(time.Microsecond) }

func (s *Service) system(ctx context.Context, fn func(tx pgx.Tx, r *q.Queries) error) error {
	return s.c.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error { return fn(tx, q.New(tx)) })
}

func (s *Service) inOrg(ctx context.Context, org ids.ID, fn func(r *q.Queries) error) error {
	return s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// Topup is a top-up as people see it.
type Topup struct {
	ID       ids.ID
	Org      ids.ID
	Kind     Kind
	State    State
	Amount   money.Nano
	Clawed   money.Nano // taken back by refunds and disputes
	Refunded money.Nano
	Disputed money.Nano
	URL      string // of the payment page, while it is open
	Failure  string // code of the last decline
	Payment  string // id at the payment provider; "" = none
	Created  time.Time
	Paid     time.Time // zero = not
	Next     time.Time // of another try; zero = none
}

func topupOf(r q.Topup) Topup {
	t := Topup{ID: r.ID, Org: r.OrgID, Kind: Kind(r.Kind), State: State(r.State), Amount: nano(r.Cents), Clawed: nano(r.ClawedCents),
		Refunded: nano(r.RefundedCents), Disputed: nano(r.DisputedCents), Failure: r.Failure, Created: r.CreatedAt, Payment: text(r.PaymentID)}
	if t.State == Open {
		t.URL = r.SessionUrl
	}
	if r.PaidAt != nil {
		t.Paid = *r.PaidAt
	}
	if t.State == Retrying && r.NextAt != nil {
		t.Next = *r.NextAt
	}
	return t
}

func nano(cents int64) money.Nano { return money.Nano(cents) * NanoPerCent }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// found turns a missing row into NotFound.
func found(err error, what string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.NotFound, "There is no such %s.", what).WithCode("not_found")
	}
	if err != nil {
		return fmt.Errorf("topup: %s: %w", what, err)
	}
	return nil
}
