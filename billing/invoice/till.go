package invoice

import (
	"context"
	"time"

	"millrace/internal/ids"
)

// Codes of a till's faults that say what a failed change means for the next try.
const (
	// CodeReplayed: the answer repeats that of an earlier try, which failed. Nothing changes it but another attempt, after a
	// look at what is there.
	CodeReplayed = "payment_replayed"
	// CodeRefused: however often it is asked for, it is refused (topup.CodeRefused).
	CodeRefused = "payment_refused"
)

// Till is the payment provider as invoices need it: *stripegw.Till. Its errors are faults, as topup.Gateway's are:
// Unavailable when the outcome of what was asked is unknown, Limited when nothing was done, NotFound. Every change carries a
// key of what it changes and the attempt: asking again with the same words changes nothing more.
type Till interface {
	// Test reports that no money moves.
	Test() bool
	// CreateInvoice makes a draft that nothing is added to by itself, and that does not finalise itself.
	CreateInvoice(ctx context.Context, i TillInvoice) (TillState, error)
	// FindInvoices lists a customer's invoices since a moment that name ours, newest first: what a lost answer made is found
	// again.
	FindInvoices(ctx context.Context, customer string, invoice ids.ID, since time.Time) ([]TillState, error)
	// InvoiceLines lists what an invoice has already.
	InvoiceLines(ctx context.Context, ref string) ([]TillLine, error)
	AddLine(ctx context.Context, draft TillState, l TillLine, attempt int) error
	DeleteDraft(ctx context.Context, ref string) error
	FinalizeInvoice(ctx context.Context, ref string, attempt int) (TillState, error)
	// SendInvoice mails it to the customer, with the address of its page.
	SendInvoice(ctx context.Context, ref string, attempt int) error
	// ChargeInvoice takes the money from a kept card. A decline is a TillState with a Problem, not an error.
	ChargeInvoice(ctx context.Context, ref, method string, attempt int) (TillState, error)
	CloseInvoice(ctx context.Context, ref string, how TillEnd, attempt int) (TillState, error)
	Invoice(ctx context.Context, ref string) (TillState, error)
	// InvoiceOfPayment says which invoice a payment is for; "" = none.
	InvoiceOfPayment(ctx context.Context, payment string) (ref string, err error)
	// CreditNote takes cents off a final invoice.
	CreditNote(ctx context.Context, n TillNote, attempt int) (TillNote, error)
	CreditNotes(ctx context.Context, ref string) ([]TillNote, error)
	// Invoices visits the invoices since a moment that belong to ours.
	Invoices(ctx context.Context, since time.Time, visit func(TillState) error) error
}

// TillInvoice asks for a draft.
type TillInvoice struct {
	Org      ids.ID
	Invoice  ids.ID // ours; part of the key and kept beside the draft
	Number   string // ours: no two invoices at the payment provider have the same
	Attempt  int
	Customer string // the payment provider's
	Charge   bool   // charge the kept card; else the customer pays within Days
	Days     int
	Memo     string
}

// TillLine is one line at the payment provider.
type TillLine struct {
	Key   string // unique in its invoice: what was added is not added again; "" = somebody else's
	Text  string
	Cents int64
}

// The states of an invoice at the payment provider.
const (
	TillDraft         = "draft"
	TillOpen          = "open"
	TillPaid          = "paid"
	TillVoid          = "void"
	TillUncollectible = "uncollectible"
)

// TillEnd is how an invoice ends without its own payment.
type TillEnd string

// The ends.
const (
	PaidOutside TillEnd = "paid_outside" // the money came another way
	Voided      TillEnd = "void"
	GivenUp     TillEnd = "uncollectible"
)

// TillState is an invoice at the payment provider.
type TillState struct {
	Ref       string
	Org       ids.ID
	Invoice   ids.ID // ours; ids.Nil = it names none
	Number    string
	Status    string // TillDraft, …
	Customer  string
	Currency  string // lower case
	Charge    bool   // from the kept card
	Total     int64  // cents
	Due       int64  // cents that remain to be paid
	Paid      int64  // cents that arrived through the payment provider
	Outside   bool   // it was marked as paid another way
	Credited  int64  // cents, by credit notes
	Refunded  int64  // cents of what was paid that went back, by credit notes or without
	Disputed  int64  // cents in disputes that are open or lost
	Fee       int64  // cents; 0 = not known
	Payment   string // the payment's id; "" = none
	URL       string // where the customer pays
	PDF       string
	Problem   string // why the last attempt to finalise or charge failed: the payment provider's code
	NeedsAuth bool   // the bank wants the customer there
	Created   time.Time
}

// TillNote takes a part of an invoice back.
type TillNote struct {
	Ref     string // the payment provider's; "" = to be made
	Invoice string // the payment provider's
	Key     string // ours, unique
	Cents   int64
	Paid    bool // it takes back what was paid: by Refund to the card, else the money went another way
	Refund  bool
	Memo    string
}
