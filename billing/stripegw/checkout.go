package stripegw

import (
	"context"

	"github.com/stripe/stripe-go/v76"

	"millrace/billing/topup"
	"millrace/internal/ids"
)

// Names of our ids among Stripe's metadata.
const (
	metaTopup   = "topup_id"
	metaAttempt = "attempt"
)

const itemName = "Credit"

// OpenCheckout makes a page where a person pays, or gives a card to keep.
func (g *Gateway) OpenCheckout(ctx context.Context, c topup.Checkout) (topup.Session, error) {
	p := &stripe.CheckoutSessionParams{Params: params(ctx, c.Key), Customer: stripe.String(c.Customer), SuccessURL: stripe.String(c.Done), CancelURL: stripe.String(c.Back)}
	if c.Topup == ids.Nil {
		p.Mode = stripe.String(string(stripe.CheckoutSessionModeSetup))
		p.PaymentMethodTypes = stripe.StringSlice([]string{"card"})
	} else {
		payment(p, c)
	}
	p.AddExpand("setup_intent.payment_method")
	x, err := g.checkouts.New(p)
	if err != nil {
		return topup.Session{}, translate(err)
	}
	return sessionOf(x), nil
}

func payment(p *stripe.CheckoutSessionParams, c topup.Checkout) {
	id := ids.Format(ids.Topup, c.Topup)
	p.Mode = stripe.String(string(stripe.CheckoutSessionModePayment))
	p.ClientReferenceID = stripe.String(id)
	p.ExpiresAt = stripe.Int64(c.Expires.Unix())
	p.AddMetadata(metaTopup, id)
	p.LineItems = []*stripe.CheckoutSessionLineItemParams{{Quantity: stripe.Int64(1), PriceData: &stripe.CheckoutSessionLineItemPriceDataParams{
		Currency: stripe.String(topup.Currency), UnitAmount: stripe.Int64(c.Cents), ProductData: &stripe.CheckoutSessionLineItemPriceDataProductDataParams{Name: stripe.String(itemName)}}}}
	p.PaymentIntentData = &stripe.CheckoutSessionPaymentIntentDataParams{Metadata: map[string]string{metaTopup: id}}
	if c.KeepCard {
		p.PaymentIntentData.SetupFutureUsage = stripe.String(string(stripe.PaymentIntentSetupFutureUsageOffSession))
	}
	p.InvoiceCreation = &stripe.CheckoutSessionInvoiceCreationParams{Enabled: stripe.Bool(true)} // the customer's receipt
	p.TaxIDCollection = &stripe.CheckoutSessionTaxIDCollectionParams{Enabled: stripe.Bool(true)}
	p.CustomerUpdate = &stripe.CheckoutSessionCustomerUpdateParams{Name: stripe.String("auto"), Address: stripe.String("auto")}
}

// Session reads a page.
func (g *Gateway) Session(ctx context.Context, id string) (topup.Session, error) {
	p := &stripe.CheckoutSessionParams{Params: params(ctx, "")}
	p.AddExpand("setup_intent.payment_method")
	x, err := g.checkouts.Get(id, p)
	if err != nil {
		return topup.Session{}, translate(err)
	}
	return sessionOf(x), nil
}

func sessionOf(x *stripe.CheckoutSession) topup.Session {
	s := topup.Session{ID: x.ID, URL: x.URL, State: topup.SessionState(x.Status), Setup: x.Mode == stripe.CheckoutSessionModeSetup,
		Paid: x.PaymentStatus == stripe.CheckoutSessionPaymentStatusPaid, Cents: x.AmountTotal, Currency: string(x.Currency)}
	s.Topup, _ = ids.Parse(ids.Topup, x.ClientReferenceID) // ids.Nil when it is not ours
	if x.Customer != nil {
		s.Customer = x.Customer.ID
	}
	if x.PaymentIntent != nil {
		s.Payment = x.PaymentIntent.ID
	}
	if x.SetupIntent != nil {
		s.Card = cardOf(x.SetupIntent.PaymentMethod)
	}
	return s
}
