package invoice

import (
	"context"
	"errors"
	"io"
	"time"

	"millrace/billing/credit"
	"millrace/internal/ids"
	"millrace/tenants"
)

var errSoon = errors.New("invoice: not written yet")

// Filter says which invoices an operator wants listed, the newest month first.
type Filter struct {
	State   State     // "" = all
	Month   time.Time // zero = all
	Overdue bool      // only those
	Limit   int
	Before  ids.ID // continue after this one; ids.Nil = from the newest
}

// PaymentInput is money that arrived past the payment provider.
type PaymentInput struct {
	Cents          int64 // at most what is due
	Reference      string
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
}

// Back says where a credit note's part goes that had been paid.
type Back string

// The ways.
const (
	BackAsCredit Back = "credit" // prepaid credit
	BackByHand   Back = "cash"   // the operator sends it past the payment provider
	BackByStripe Back = "stripe" // the payment provider gives it back
)

// NoteInput takes something off a final invoice: first of what was not paid.
type NoteInput struct {
	Cents          int64
	Reason         string // shown to the customer
	Back           Back   // "" = as credit
	IdempotencyKey string
}

// Note is a credit note.
type Note struct {
	ID       ids.ID
	Number   string
	Cents    int64
	Relieved int64 // of it, what had not been paid
	Back     Back
	Reason   string
	By       string
	At       time.Time
	Txn      ids.ID
}

// Outcome is what became of a credit note or write-off: above the limit it waits for a second operator
// (Request.State is credit.Waiting), and the invoice is as it was.
type Outcome struct {
	Invoice Invoice
	Request credit.Request
}

// List gives an organization's invoices, the newest first; drafts are for operators only.
func (s *Service) List(ctx context.Context, by tenants.Actor, org ids.ID, limit int, before ids.ID) ([]Invoice, error) {
	return nil, errSoon
}

// All gives every organization's invoices. Operators only.
func (s *Service) All(ctx context.Context, by tenants.Actor, f Filter) ([]Invoice, error) {
	return nil, errSoon
}

// Get gives an invoice with its lines, payments and credit notes.
func (s *Service) Get(ctx context.Context, by tenants.Actor, org, id ids.ID) (Invoice, error) {
	return Invoice{}, errSoon
}

// SoFar is the running month as an invoice that is not stored. An organization that owes nothing has one of zero.
func (s *Service) SoFar(ctx context.Context, by tenants.Actor, org ids.ID) (Invoice, error) {
	return Invoice{}, errSoon
}

// PDF writes a final invoice as a document.
func (s *Service) PDF(ctx context.Context, by tenants.Actor, org, id ids.ID, w io.Writer) error {
	return errSoon
}

// RecordPayment books money that arrived past the payment provider. Operators only.
func (s *Service) RecordPayment(ctx context.Context, by tenants.Actor, org, id ids.ID, in PaymentInput) (Invoice, error) {
	return Invoice{}, errSoon
}

// CreditNote takes something off a final invoice; all of it makes it void. Operators only.
func (s *Service) CreditNote(ctx context.Context, by tenants.Actor, org, id ids.ID, in NoteInput) (Outcome, error) {
	return Outcome{}, errSoon
}

// WriteOff gives up what is due. Operators only.
func (s *Service) WriteOff(ctx context.Context, by tenants.Actor, org, id ids.ID, reason, key string) (Outcome, error) {
	return Outcome{}, errSoon
}

// Draft makes the invoices of a month that is frozen, and gives how many there are. Operators and the worker; drafting again
// changes nothing that is final.
func (s *Service) Draft(ctx context.Context, by tenants.Actor, month time.Time) (int, error) {
	return 0, errSoon
}

// Finalize gives a ready invoice its number and books it. Operators and the worker; again gives the same invoice.
func (s *Service) Finalize(ctx context.Context, by tenants.Actor, org, id ids.ID) (Invoice, error) {
	return Invoice{}, errSoon
}

// Details tells to whom an organization's invoices are addressed.
func (s *Service) Details(ctx context.Context, by tenants.Actor, org ids.ID) (Details, error) {
	return Details{}, errSoon
}

// SetDetails changes it for the invoices to come. Who manages the organization's money, and operators.
func (s *Service) SetDetails(ctx context.Context, by tenants.Actor, org ids.ID, d Details) error {
	return errSoon
}

// Run drafts and finalises what is due, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
