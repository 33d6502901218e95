package invoice

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Limits of what people write.
const (
	maxReference = 200 // bytes
	maxReason    = 400 // bytes: a memo of the ledger holds it and the number
	maxKey       = 200 // bytes
)

// maxEarly is how long before its invoice a payment may have come: a year that is mistyped is longer ago.
const maxEarly = 366 * 24 * time.Hour

// providersKey begins the keys of what comes by the payment provider: its ids of invoices. No operator takes one away.
const providersKey = "in_"

// PaymentInput is money that arrived past the payment provider.
type PaymentInput struct {
	Cents          int64     // at most what is due
	Reference      string    // of the transfer
	ReceivedAt     time.Time // zero = now
	IdempotencyKey string
}

// Payment is money that arrived for an invoice.
type Payment struct {
	ID         ids.ID
	Cents      int64
	Excess     int64 // of it, what was not due: it became credit
	Fee        int64
	Method     string // hand, stripe
	Reference  string
	ReceivedAt time.Time
	By         string
	Txn        ids.ID

	ReversedAt  time.Time // zero = it stands
	ReversedWhy string
}

// The ways that money comes.
const (
	byHand   = "hand"
	byStripe = "stripe"
)

// RecordPayment books money that arrived past the payment provider, and frees as much of the credit limit. Operators only. A
// repeated key gives the invoice as it is.
func (s *Service) RecordPayment(ctx context.Context, by tenants.Actor, org, id ids.ID, in PaymentInput) (Invoice, error) {
	if err := by.RequireOperator(); err != nil {
		return Invoice{}, err
	}
	in.Reference = strings.TrimSpace(in.Reference)
	if in.ReceivedAt.IsZero() {
		in.ReceivedAt = s.now()
	}
	switch {
	case in.Cents <= 0:
		return Invoice{}, fault.New(fault.Invalid, "Give the amount that arrived, more than 0.").WithParam("amount")
	case in.Reference == "" || len(in.Reference) > maxReference:
		return Invoice{}, fault.New(fault.Invalid, "Give the payment's reference, at most %d bytes.", maxReference).WithParam("reference")
	case in.IdempotencyKey == "" || len(in.IdempotencyKey) > maxKey:
		return Invoice{}, fault.New(fault.Invalid, "Give an idempotency key of at most %d bytes.", maxKey).WithParam("idempotency_key")
	case strings.HasPrefix(in.IdempotencyKey, providersKey):
		return Invoice{}, fault.New(fault.Invalid, "Idempotency keys do not begin with %s.", providersKey).WithParam("idempotency_key")
	case in.ReceivedAt.After(s.now().Add(24 * time.Hour)):
		return Invoice{}, fault.New(fault.Invalid, "The payment cannot have arrived in the future.").WithParam("received_at")
	}
	if err := errors.Join(credit.CheckWords("reference", in.Reference), credit.CheckWords("idempotency_key", in.IdempotencyKey)); err != nil {
		return Invoice{}, err
	}
	return s.arrive(ctx, by, org, id, arrival{cents: in.Cents, method: byHand, reference: in.Reference, key: in.IdempotencyKey, at: in.ReceivedAt})
}

// arrival is money that came for an invoice.
type arrival struct {
	cents, fee     int64
	again          bool  // it went back before: a dispute was won, a refund failed
	refunded       int64 // what is known anew, with it, of refunds past credit notes; < 0: one failed
	method         string
	reference, key string
	at             time.Time
}

// arrive books money, once per key, in a transaction of its own.
func (s *Service) arrive(ctx context.Context, by tenants.Actor, org, id ids.ID, a arrival) (out Invoice, err error) {
	err = s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		row, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "invoice")
		}
		if row, _, err = s.settle(ctx, tx, by, row, a); err != nil {
			return err
		}
		out, err = invoiceOf(row)
		return err
	})
	if err != nil {
		return Invoice{}, wrapped("record a payment", err)
	}
	credit.Tell(ctx, s.c.Notify, org)
	return out, nil
}

// settle is the one way that money reaches an invoice: by hand, by an event, by a page or by a comparison. The row is locked.
// What is not due any more becomes prepaid credit, except by hand, where it is refused. fresh=false: the key was used before.
func (s *Service) settle(ctx context.Context, tx pgx.Tx, by tenants.Actor, row q.Invoice, a arrival) (after q.Invoice, fresh bool, err error) {
	r := q.New(tx)
	was, err := r.InvoicePaymentByKey(ctx, q.InvoicePaymentByKeyParams{OrgID: row.OrgID, IdempotencyKey: a.key})
	switch {
	case err == nil && was.InvoiceID == row.ID && was.Cents == a.cents && was.Method == a.method:
		return row, false, nil
	case err == nil:
		return row, false, fault.New(fault.Conflict, "The idempotency key was used for another payment.").WithCode("idempotency_key_reused").WithParam("idempotency_key")
	case !errors.Is(err, pgx.ErrNoRows):
		return row, false, fmt.Errorf("invoice: payments: %w", err)
	case row.Number == nil:
		return row, false, fault.New(fault.Conflict, "This invoice is not final yet.").WithCode("invoice_not_final")
	case a.method == byHand && row.FinalizedAt.Sub(a.at) > maxEarly:
		return row, false, fault.New(fault.Invalid, "The payment cannot have arrived more than a year before its invoice was final.").WithParam("received_at")
	}
	due := unpaid(row)
	pays := min(a.cents, due)
	recovers := min(a.cents-pays, row.GivenUpCents) // what was given up comes after all
	excess := a.cents - pays - recovers
	if excess > 0 && a.method == byHand {
		return row, false, fault.New(fault.Conflict, "Only %s USD are due. Grant the rest as paid credit.", nano(due+row.GivenUpCents)).WithCode("more_than_due").WithParam("amount")
	}
	now := s.now()
	id := ids.At(now)
	from := ledger.Cash
	if a.method == byStripe {
		from = ledger.StripeClearing
	}
	kind, memo := ledger.Payment, "Payment of "+*row.Number
	if a.again { // as what took it back was booked: nothing was returned in the end
		kind, memo = ledger.Refund, "Payment came again, "+*row.Number
	}
	t := ledger.Txn{ID: id, Org: row.OrgID, Kind: kind, Memo: memo, Key: "invoice:" + row.ID.String() + ":paid:" + a.method + ":" + a.key,
		Entries: []ledger.Entry{ledger.Debit(from, nano(a.cents)), ledger.Credit(ledger.Receivable, nano(pays)), ledger.Credit(ledger.BadDebt, nano(recovers)),
			ledger.Credit(ledger.PrepaidPaid, nano(excess)), ledger.Debit(ledger.Fees, nano(a.fee)), ledger.Credit(from, nano(a.fee))}}
	if err := s.post(ctx, tx, t); err != nil {
		return row, false, err
	}
	err = r.InsertInvoicePayment(ctx, q.InsertInvoicePaymentParams{OrgID: row.OrgID, ID: id, InvoiceID: row.ID, Cents: a.cents, ExcessCents: excess, FeeCents: a.fee,
		Method: a.method, Reference: a.reference, IdempotencyKey: a.key, TxnID: id, ReceivedAt: a.at, CreatedBy: by.Name(), CreatedAt: now})
	if err != nil {
		return row, false, fmt.Errorf("invoice: keep a payment: %w", err)
	}
	moved := row
	moved.PaidCents += pays + recovers
	moved.GivenUpCents -= recovers
	after, err = s.move(ctx, tx, row, moved, a.refunded)
	if err != nil {
		return row, false, err
	}
	return after, true, s.audit(ctx, tx, by, row.OrgID, "invoice.pay", row.ID, nil,
		map[string]any{"number": *row.Number, "cents": a.cents, "excess_cents": excess, "method": a.method, "reference": a.reference})
}

// move stores what was paid, credited or given up since before, and what follows from it: the state, and whether days count
// anew. refunded is what of it the operator gave back past credit notes; less than 0: such a refund failed.
func (s *Service) move(ctx context.Context, tx pgx.Tx, before, row q.Invoice, refunded int64) (q.Invoice, error) {
	due := unpaid(row)
	state := Paid
	switch {
	case due > 0:
		state = Open
	case row.GivenUpCents > 0:
		state = Uncollectible
	case row.CreditedCents == row.TotalCents && row.TotalCents > 0:
		state = Void
	}
	if row.State = string(state); state == Open {
		row.SettledAt = nil
	} else if row.SettledAt == nil {
		now := s.now()
		row.SettledAt = &now
	}
	after, err := q.New(tx).MoveInvoice(ctx, q.MoveInvoiceParams{OrgID: row.OrgID, ID: row.ID, State: row.State, PaidCents: row.PaidCents, CreditedCents: row.CreditedCents,
		RelievedCents: row.RelievedCents, GivenUpCents: row.GivenUpCents, SettledAt: row.SettledAt})
	if err != nil {
		return row, fmt.Errorf("invoice: move: %w", err)
	}
	if err := s.owedAnew(ctx, tx, before, after, refunded); err != nil {
		return row, err
	}
	if err := q.New(tx).FlagPush(ctx, q.FlagPushParams{OrgID: row.OrgID, InvoiceID: row.ID}); err != nil {
		return row, fmt.Errorf("invoice: wake the collector: %w", err)
	}
	return after, nil
}
