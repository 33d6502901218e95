package stripegw

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v76"

	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// wanted are the parts of a payment that are read whole.
var wanted = []string{"latest_charge.balance_transaction", "payment_method"}

// Charge takes money from a kept card while nobody is there.
func (g *Gateway) Charge(ctx context.Context, c topup.Charge) (topup.Payment, error) {
	p := &stripe.PaymentIntentParams{Params: params(ctx, c.Key), Amount: stripe.Int64(c.Cents), Currency: stripe.String(topup.Currency), Customer: stripe.String(c.Customer),
		PaymentMethod: stripe.String(c.Method), OffSession: stripe.Bool(true), Confirm: stripe.Bool(true), ErrorOnRequiresAction: stripe.Bool(true),
		PaymentMethodTypes: stripe.StringSlice([]string{"card"}), Description: stripe.String(itemName)}
	p.AddMetadata(metaTopup, ids.Format(ids.Topup, c.Topup))
	p.AddMetadata(metaAttempt, strconv.Itoa(c.Attempt))
	for _, part := range wanted {
		p.AddExpand(part)
	}
	x, err := g.intents.New(p)
	var e *stripe.Error
	if errors.As(err, &e) && e.Type == stripe.ErrorTypeCard && e.PaymentIntent != nil {
		return declined(e, c), nil
	}
	if err != nil {
		return topup.Payment{}, translate(err)
	}
	return g.payment(ctx, x)
}

func declined(e *stripe.Error, c topup.Charge) topup.Payment {
	return topup.Payment{ID: e.PaymentIntent.ID, Topup: c.Topup, Attempt: c.Attempt, Customer: c.Customer, State: topup.PaymentDeclined, Currency: topup.Currency,
		Decline: declineOf(e), Created: time.Unix(e.PaymentIntent.Created, 0)}
}

func declineOf(e *stripe.Error) topup.Decline {
	d := topup.Decline{Code: string(e.DeclineCode), Message: e.Msg}
	if d.Code == "" || e.Code == stripe.ErrorCodeAuthenticationRequired {
		d.Code = string(e.Code)
	}
	return d
}

// Payment reads a payment.
func (g *Gateway) Payment(ctx context.Context, id string) (topup.Payment, error) {
	p := &stripe.PaymentIntentParams{Params: params(ctx, "")}
	for _, part := range wanted {
		p.AddExpand(part)
	}
	x, err := g.intents.Get(id, p)
	if err != nil {
		return topup.Payment{}, translate(err)
	}
	return g.payment(ctx, x)
}

// lookBack is how many of a customer's payments are looked through for one top-up's.
const lookBack = 100

// FindPayment finds the payment of a top-up that counts. It reads a list, which is never behind, as a search may be.
func (g *Gateway) FindPayment(ctx context.Context, customer string, id ids.ID) (topup.Payment, error) {
	p := &stripe.PaymentIntentListParams{ListParams: listParams(ctx), Customer: stripe.String(customer)}
	p.Limit, p.Single = stripe.Int64(lookBack), true
	for _, part := range wanted {
		p.AddExpand("data." + part)
	}
	list := g.intents.List(p)
	var best *stripe.PaymentIntent
	for list.Next() { // newest first
		x := list.PaymentIntent()
		if x.Metadata[metaTopup] == ids.Format(ids.Topup, id) && (best == nil || rank(x) > rank(best)) {
			best = x
		}
	}
	if err := list.Err(); err != nil {
		return topup.Payment{}, translate(err)
	}
	if best == nil {
		return topup.Payment{}, fault.New(fault.NotFound, "There is no such payment.")
	}
	return g.payment(ctx, best)
}

// rank orders the attempts of one top-up: money that arrived, or may yet, is not hidden by a newer decline.
func rank(x *stripe.PaymentIntent) int {
	switch stateOf(x) {
	case topup.PaymentSucceeded:
		return 2
	case topup.PaymentProcessing:
		return 1
	}
	return 0
}

// payment translates a payment and adds what its disputes hold.
func (g *Gateway) payment(ctx context.Context, x *stripe.PaymentIntent) (topup.Payment, error) {
	p := topup.Payment{ID: x.ID, State: stateOf(x), Cents: x.AmountReceived, Currency: string(x.Currency), Card: cardOf(x.PaymentMethod), Created: time.Unix(x.Created, 0)}
	p.Topup, _ = ids.Parse(ids.Topup, x.Metadata[metaTopup]) // ids.Nil when it is not ours
	p.Attempt, _ = strconv.Atoi(x.Metadata[metaAttempt])     // 0 for a person's payment
	if x.Customer != nil {
		p.Customer = x.Customer.ID
	}
	if x.LastPaymentError != nil && p.State == topup.PaymentDeclined {
		p.Decline = declineOf(x.LastPaymentError)
	}
	c := x.LatestCharge
	if c == nil {
		return p, nil
	}
	p.Refunded = c.AmountRefunded
	if p.Card != nil { // the page may have offered a card that was kept long before
		p.Card.Given = time.Unix(c.Created, 0)
	}
	if b := c.BalanceTransaction; b != nil && string(b.Currency) == topup.Currency {
		p.Fee = b.Fee
	}
	if !c.Disputed {
		return p, nil
	}
	var err error
	p.Disputed, err = g.disputed(ctx, x.ID)
	return p, err
}

// disputed is what open and lost disputes hold of a payment. A warning has taken nothing so far.
func (g *Gateway) disputed(ctx context.Context, payment string) (cents int64, err error) {
	list := g.disputes.List(&stripe.DisputeListParams{ListParams: listParams(ctx), PaymentIntent: stripe.String(payment)})
	for list.Next() {
		switch x := list.Dispute(); x.Status {
		case stripe.DisputeStatusNeedsResponse, stripe.DisputeStatusUnderReview, stripe.DisputeStatusLost:
			cents += x.Amount
		}
	}
	return cents, translate(list.Err())
}

func stateOf(x *stripe.PaymentIntent) topup.PaymentState {
	switch x.Status {
	case stripe.PaymentIntentStatusSucceeded:
		return topup.PaymentSucceeded
	case stripe.PaymentIntentStatusProcessing:
		return topup.PaymentProcessing
	case stripe.PaymentIntentStatusCanceled:
		return topup.PaymentCanceled
	case stripe.PaymentIntentStatusRequiresPaymentMethod:
		if x.LastPaymentError != nil {
			return topup.PaymentDeclined
		}
	}
	return topup.PaymentWaiting
}

// cardOf gives nil for what is no card, is not told whole, or is not kept (any more): a card that was removed belongs to
// no customer.
func cardOf(m *stripe.PaymentMethod) *topup.Card {
	if m == nil || m.Card == nil || m.Customer == nil {
		return nil
	}
	c := &topup.Card{Method: m.ID, Brand: string(m.Card.Brand), Last4: m.Card.Last4, Given: time.Unix(m.Created, 0)}
	if m.Card.ExpYear > 0 {
		c.Expiry = time.Date(int(m.Card.ExpYear), time.Month(m.Card.ExpMonth)+1, 0, 0, 0, 0, 0, time.UTC) // the month's last day
	}
	return c
}
