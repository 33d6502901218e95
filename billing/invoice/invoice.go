package invoice

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// NanoPerCent turns cents into the ledger's unit.
const NanoPerCent = money.NanoPerUSD / 100

// Times of a month.
const (
	FreezeAfter = 48 * time.Hour      // of the month's end: nothing joins it any more
	draftAfter  = 10 * time.Minute    // of the freeze: what is being booked has been committed by then, and clocks are no further apart
	DueAfter    = 14 * 24 * time.Hour // of an invoice's becoming final, unless Config says otherwise
)

// FreezeOf is when nothing joins a month's invoice any more. month is its first day, UTC.
func FreezeOf(month time.Time) time.Time { return month.AddDate(0, 1, 0).Add(FreezeAfter) }

// State is how far an invoice is.
type State string

// The states. Paid, void and uncollectible end it, unless money arrives after all.
const (
	Draft         State = "draft" // something is wrong with it: Problem
	Ready         State = "ready" // its lines add up
	Open          State = "open"  // final, waits for money
	Paid          State = "paid"
	Void          State = "void" // a credit note took all of it off
	Uncollectible State = "uncollectible"
)

// Final reports whether the invoice has a number and stays as it is.
func (s State) Final() bool { return s != Draft && s != Ready }

// Invoice is what an organization owes for a month.
type Invoice struct {
	ID      ids.ID // ids.Nil: it is not stored (SoFar)
	Org     ids.ID
	OrgName string    // only where All lists it
	Month   time.Time // of usage: its first day, UTC
	State   State
	Number  string // "" until it is final
	Problem string // why a draft cannot become final

	// What was used, by the ledger: Charged = Promo + Prepaid + Receivable.
	Charged, Promo, Prepaid, Receivable money.Nano
	Overrun                             money.Nano // delivered beyond the limit, charged to nobody

	// US cents.
	Subtotal, Tax, Total int64
	Paid                 int64
	Credited             int64 // by credit notes
	Relieved             int64 // ... of it, what had not been paid
	GivenUp              int64

	BillTo      Details
	Seller      Seller
	DraftedAt   time.Time
	FinalizedAt time.Time // zero = it is not final
	DueAt       time.Time // zero = it is not final
	SettledAt   time.Time // zero = it is open
	Version     int64

	Lines    []Line    // only of Get and SoFar
	Payments []Payment // only of Get
	Notes    []Note    // only of Get
}

// Due is what remains to be paid, in cents.
func (i *Invoice) Due() int64 { return i.Total - i.Paid - i.Relieved - i.GivenUp }

// Overdue reports whether money should have come by now.
func (i *Invoice) Overdue(now time.Time) bool { return i.State == Open && now.After(i.DueAt) }

// LineKind says what a line is about.
type LineKind string

// The kinds, in their order on the invoice.
const (
	UsageLine    LineKind = "usage"    // tokens or requests of one class, model, price version and tier
	RoundingLine LineKind = "rounding" // requests are rounded one by one, lines are not
	OverrunLine  LineKind = "overrun"  // delivered beyond the limit, not charged
	PromoLine    LineKind = "promo"    // paid from promotional credit
	PrepaidLine  LineKind = "prepaid"  // paid from credit
	CentsLine    LineKind = "cents"    // lines are rounded one by one, their sum is rounded once
)

// Line is one line of an invoice.
type Line struct {
	Kind     LineKind
	Month    time.Time // of usage; another one than the invoice's is late usage
	Model    ids.ID    // ids.Nil: the line is not about usage
	Name     string    // of the model
	Version  ids.ID
	Service  string // service tier, as pages name it; "" = the ordinary one
	Class    string
	Quantity int64
	Unit     *money.Pico // price of one token or request; nil = it varied by prompt length or time
	Amount   money.Nano
	Cents    int64
}

// Config of a Service.
type Config struct {
	DB     *db.DB
	Bus    *bus.Bus // of the usage log; nil: it is not asked whether something waits in it
	Clock  clock.Clock
	Notify credit.Notifier
	Desk   *credit.Desk // keeps what needs a second operator
	Seller Seller
	Due    time.Duration // of becoming final; 0 = DueAfter

	PublicURL     string // of the console
	InvoicePrefix string // of numbers; "" = INV
	NotePrefix    string // of credit notes' numbers; "" = CN
}

// Service is safe for concurrent use. Its methods check their Actor.
type Service struct {
	c  Config
	at func(step string) error // told every step of the worker; tests fail there

	// database is the database's clock; a clock that stands still stands for all clocks.
	database func(ctx context.Context, r *q.Queries) (time.Time, error)

	running soFars
	rests   rests
}

// New makes a service. It takes over what Desk does with approved credit notes, what is sent of them by hand, and write-offs.
func New(c Config) *Service {
	if c.Due == 0 {
		c.Due = DueAfter
	}
	if c.InvoicePrefix == "" {
		c.InvoicePrefix = invoicePrefix
	}
	if c.NotePrefix == "" {
		c.NotePrefix = notePrefix
	}
	s := &Service{c: c, at: func(string) error { return nil }}
	s.database = func(ctx context.Context, r *q.Queries) (time.Time, error) { return r.DatabaseNow(ctx) }
	if c.Clock != clock.System {
		s.database = func(context.Context, *q.Queries) (time.Time, error) { return s.now(), nil }
	}
	if c.Desk != nil {
		c.Desk.Entrust(credit.NoteRequest, noteDeed{s})
		c.Desk.Entrust(credit.SendNoteRequest, sendDeed{s})
		c.Desk.Entrust(credit.WriteOffRequest, writeOffDeed{s})
	}
	return s
}

func (s *Service) now() time.Time { return s.c.Clock.Now().UTC().Truncate(time.Microsecond) }

func (s *Service) system(ctx context.Context, fn func(tx pgx.Tx, r *q.Queries) error) error {
	return s.c.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error { return fn(tx, q.New(tx)) })
}

func nano(cents int64) money.Nano { return money.Nano(cents) * NanoPerCent }
