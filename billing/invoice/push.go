package invoice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// PushState is how far an invoice is at the payment provider.
type PushState string

// The states.
const (
	PushOff     PushState = ""      // it is not there: no payment provider, or nothing that it could take
	PushNew     PushState = "new"   // nothing is there so far
	PushDraft   PushState = "draft" // its lines are being added
	PushFinal   PushState = "final" // nobody was asked for money
	PushAsked   PushState = "asked" // it was sent, or a card was charged
	PushDone    PushState = "done"  // paid, void or given up on both sides
	PushStopped PushState = "stopped"
)

// LeastPush is the smallest sum that a payment provider takes, in cents; less is paid by hand.
const LeastPush int64 = 50

// Customers say who an organization is at the payment provider: *topup.Service.
type Customers interface {
	// InvoiceCustomer makes it known when it is first needed. method is a kept card that may be charged; "" = none.
	InvoiceCustomer(ctx context.Context, org ids.ID) (customer, method string, err error)
	// AnotherCustomer makes it known anew, when the payment provider does not know that one any more.
	AnotherCustomer(ctx context.Context, org ids.ID, gone string) (customer string, err error)
}

// CollectConfig of a Collector.
type CollectConfig struct {
	Till      Till // nil = invoices are paid by hand
	Customers Customers
	PublicURL string // of the console
}

// Collector brings final invoices to the payment provider, and its money back; it reminds whoever does not pay, with or
// without a payment provider. It is safe for concurrent use.
type Collector struct {
	s       *Service
	c       CollectConfig
	glances glances
	inTime  func(ctx context.Context) (context.Context, context.CancelFunc) // bounds what one invoice takes of a turn
}

// NewCollector makes a collector of a service's invoices.
func NewCollector(s *Service, c CollectConfig) *Collector {
	return &Collector{s: s, c: c, inTime: withinTendLimit}
}

// On reports whether there is a payment provider at all; Test, that no money moves there.
func (c *Collector) On() bool   { return c != nil && c.c.Till != nil }
func (c *Collector) Test() bool { return c.On() && c.c.Till.Test() }

var errNoTill = fault.New(fault.Unavailable, "Payments by card are not set up here. Invoices are paid by bank transfer.").WithCode("payments_off")

// Collection is how an invoice's money is asked for, as pages show it.
type Collection struct {
	State     PushState
	Sentence  string
	Problem   string // for operators; "" = none
	URL, PDF  string // of the payment provider, where the customer pays
	Ref       string // the payment provider's id
	Charge    bool   // the kept card is charged
	TakenBack int64  // cents that a refund or a dispute took back
	Next      time.Time
}

// Collection tells how an invoice's money is asked for.
func (c *Collector) Collection(ctx context.Context, by tenants.Actor, org, id ids.ID) (out Collection, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return out, err
	}
	err = c.s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		inv, err := q.New(tx).Invoice(ctx, q.InvoiceParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "invoice")
		}
		push, err := q.New(tx).InvoicePush(ctx, q.InvoicePushParams{OrgID: org, InvoiceID: id})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("invoice: at the payment provider: %w", err)
		}
		out = c.collectionOf(inv, push)
		return nil
	})
	if !by.Operator {
		out.Problem, out.Ref = "", ""
	}
	return out, err
}

func (c *Collector) collectionOf(inv q.Invoice, p q.InvoicePush) Collection {
	out := Collection{State: PushState(p.State), Problem: p.Problem, Ref: text(p.Ref), Charge: p.Charge, TakenBack: p.ClawedCents}
	if p.NextAt != nil {
		out.Next = *p.NextAt
	}
	if open := State(inv.State) == Open || State(inv.State) == Uncollectible; open && c.On() && out.State != PushStopped && p.ClawedCents == 0 { // what went back is shown as paid there
		out.URL = p.Url
	}
	out.PDF = p.PdfUrl
	switch {
	case inv.Number == nil:
		out.Sentence = "This invoice is not final yet."
	case State(inv.State) != Open:
	case !c.On():
		out.Sentence = "Card payments are not set up here. Pay by bank transfer, with the invoice's number."
	case out.State == PushOff && inv.TotalCents < LeastPush:
		out.Sentence = "The sum is too small for a card. Pay by bank transfer, with the invoice's number."
	case out.State == PushStopped:
		out.Sentence = "Card payment of this invoice is on hold. Pay by bank transfer, with the invoice's number, or ask support."
	case p.ClawedCents > 0:
		out.Sentence = "A payment of this invoice went back. Pay by bank transfer, with the invoice's number."
	case out.State != PushAsked:
		out.Sentence = "The page to pay is being made."
	case p.FailedAt != nil:
		out.Sentence = "Your card was declined. Pay on the invoice's page, or give another card."
	case p.Charge:
		out.Sentence = "Your kept card is charged."
	default:
		out.Sentence = "Pay on the invoice's page, or by bank transfer with the invoice's number."
	}
	return out
}

// Stuck is an invoice that does not get on at the payment provider.
type Stuck struct {
	Org     ids.ID
	OrgName string
	Invoice ids.ID
	Number  string
	State   PushState
	Problem string
	Next    time.Time
}

const maxStuck = 200

// Problems lists the invoices that do not get on at the payment provider. Operators only.
func (c *Collector) Problems(ctx context.Context, by tenants.Actor) (out []Stuck, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	err = c.s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).InvoicePushes(ctx, maxStuck)
		out = make([]Stuck, len(rows))
		for i, r := range rows {
			out[i] = Stuck{Org: r.OrgID, OrgName: r.OrgName, Invoice: r.InvoiceID, Number: text(r.Number), State: PushState(r.State), Problem: r.Problem}
			if r.NextAt != nil {
				out[i].Next = *r.NextAt
			}
		}
		return err
	})
	return out, wrapped("problems at the payment provider", err)
}

// Retry looks at an invoice anew, now, in the same words: what is under way is not done twice. startOver drops what is there
// when it is a draft, void, or not known any more, and begins again. Operators only; audited.
func (c *Collector) Retry(ctx context.Context, by tenants.Actor, org, id ids.ID, startOver bool) (Collection, error) {
	switch err := by.RequireOperator(); {
	case err != nil:
		return Collection{}, err
	case !c.On():
		return Collection{}, errNoTill
	}
	v, err := c.look(ctx, org, id)
	if err != nil {
		return Collection{}, err
	}
	next := v.push
	next.Failures = 0
	if startOver {
		if err := c.leave(ctx, v); err != nil {
			return Collection{}, err
		}
		next.Attempt++
		next.Ref, next.State, next.Asks, next.Url, next.PdfUrl = nil, string(PushNew), 0, "", ""
	}
	err = c.s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		if err := r.RetryCreditNotes(ctx, q.RetryCreditNotesParams{OrgID: org, InvoiceID: id}); err != nil {
			return fmt.Errorf("invoice: credit notes: %w", err)
		}
		if err := c.keep(ctx, tx, v.push, next); err != nil {
			return err
		}
		return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: "invoice.push_again", Target: ids.Format(ids.Invoice, id), After: map[string]any{"start_over": startOver}, At: c.s.now()})
	})
	if err != nil {
		return Collection{}, err
	}
	if err := c.Tend(ctx, org, id); err != nil {
		return Collection{}, err
	}
	return c.Collection(ctx, by, org, id)
}

// leave sees to it that what is at the payment provider asks nobody for money any more: a draft is deleted, and what is void,
// or not known there (nil), stays so.
func (c *Collector) leave(ctx context.Context, v view) error {
	switch seen := v.seen; {
	case State(v.inv.State) != Open:
		return fault.New(fault.Conflict, "Nothing is due on this invoice.").WithCode("nothing_due")
	case v.push.ReceivedCents > 0: // what comes for another one would not be told apart from it
		return fault.New(fault.Conflict, "Money came for it there before. What is due now is paid by hand.").WithCode("paid_there")
	case seen == nil || seen.Status == TillVoid:
		return nil
	case seen.Status == TillDraft:
		return c.c.Till.DeleteDraft(ctx, seen.Ref)
	}
	return fault.New(fault.Conflict, "It is final at the payment provider. Void it there first.").WithCode("final_there")
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
