package topup

import (
	"context"
	"time"

	"millrace/billing/inbox"
	"millrace/internal/ids"
)

// CodeRefused marks the fault of a call that the payment provider refuses however often it is made.
const CodeRefused = "payment_refused"

// Gateway is the payment provider: *stripegw.Gateway. Its errors are faults: Unavailable when it cannot be asked (the
// outcome of what was asked is then unknown), NotFound, Conflict for what it refuses for good. Every change carries a key:
// asking again with the same key and the same words changes nothing more.
type Gateway interface {
	// Test reports that no money moves.
	Test() bool
	CreateCustomer(ctx context.Context, c NewCustomer) (id string, err error)
	// OpenCheckout makes a page where a person pays, or gives a card to keep.
	OpenCheckout(ctx context.Context, c Checkout) (Session, error)
	Session(ctx context.Context, id string) (Session, error)
	// Charge takes money from a kept card while nobody is there. A decline is a Payment, not an error.
	Charge(ctx context.Context, c Charge) (Payment, error)
	Payment(ctx context.Context, id string) (Payment, error)
	// FindPayment finds the payment of a top-up that counts, among a customer's: one that succeeded, else one on its way, else
	// the newest; NotFound when there is none.
	FindPayment(ctx context.Context, customer string, topup ids.ID) (Payment, error)
	// Forget removes a kept card.
	Forget(ctx context.Context, method string) error
	// Portal makes a page where a person sees receipts, cards and tax ids; back is where it leads at last.
	Portal(ctx context.Context, customer, back string) (url string, err error)
	// Payments visits the payments since a moment that belong to top-ups.
	Payments(ctx context.Context, since time.Time, visit func(p Payment) error) error
	// Events visits the events since a moment, oldest last.
	Events(ctx context.Context, since time.Time, visit func(e inbox.Event) error) error
}

// NewCustomer is an organization to the payment provider.
type NewCustomer struct {
	Org   ids.ID
	Name  string
	Email string // may be empty
	After string // the customer that it replaces, which the payment provider knows no more; "" = none
}

// Checkout asks for a page.
type Checkout struct {
	Key      string // of idempotency
	Customer string
	Topup    ids.ID // ids.Nil: nothing is paid, a card is kept
	Cents    int64
	KeepCard bool
	Done     string // where the person comes back to
	Back     string // ... without having paid
	Expires  time.Time
}

// SessionState is how far a page is.
type SessionState string

// The states.
const (
	SessionOpen     SessionState = "open"
	SessionComplete SessionState = "complete" // the person is through; the money may still be on its way
	SessionExpired  SessionState = "expired"
)

// Session is a page.
type Session struct {
	ID, URL  string
	State    SessionState
	Setup    bool // nothing is paid, a card is kept
	Paid     bool
	Topup    ids.ID
	Customer string
	Cents    int64
	Currency string // lower case
	Payment  string // "" = there is none yet
	Card     *Card  // what a setup kept
}

// Charge takes money from a kept card.
type Charge struct {
	Key      string // of idempotency
	Customer string
	Method   string
	Topup    ids.ID
	Attempt  int
	Cents    int64
}

// PaymentState is how far a payment is.
type PaymentState string

// The states.
const (
	PaymentWaiting    PaymentState = "waiting" // for a person or a method
	PaymentProcessing PaymentState = "processing"
	PaymentSucceeded  PaymentState = "succeeded"
	PaymentDeclined   PaymentState = "declined"
	PaymentCanceled   PaymentState = "canceled"
)

// Payment is money on its way, and what became of it.
type Payment struct {
	ID       string
	Topup    ids.ID // ids.Nil: not a top-up's
	Attempt  int    // of an automatic one
	Customer string
	State    PaymentState
	Cents    int64 // received, once it succeeded
	Currency string
	Refunded int64 // cents given back so far
	Disputed int64 // cents in disputes that are open or lost
	Fee      int64 // cents of the payment provider's fee; 0 = not known, or not in this currency
	Decline  Decline
	Card     *Card // that was kept with it; nil = none
	Created  time.Time
}

// Decline says why a card was not charged.
type Decline struct {
	Code    string // the payment provider's: insufficient_funds, authentication_required, …
	Message string // for the customer
}

// Card is a kept card.
type Card struct {
	Method string // its id at the payment provider
	Brand  string
	Last4  string
	Expiry time.Time // its last day; zero = not known
	Given  time.Time // when a person gave it, by the payment provider's clock
}
