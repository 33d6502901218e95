package stripegw

import (
	"context"
	"time"

	"github.com/stripe/stripe-go/v76"

	"millrace/billing/invoice"
	"millrace/internal/ids"
)

// state translates an invoice and adds what its payment tells.
func (t *Till) state(ctx context.Context, x *stripe.Invoice) (invoice.TillState, error) {
	s := invoice.TillState{Ref: x.ID, Number: x.Number, Status: string(x.Status), Currency: string(x.Currency), Total: x.Total, Due: x.AmountRemaining, Outside: x.PaidOutOfBand,
		Charge:   x.CollectionMethod == stripe.InvoiceCollectionMethodChargeAutomatically,
		Credited: x.PrePaymentCreditNotesAmount + x.PostPaymentCreditNotesAmount, URL: x.HostedInvoiceURL, PDF: x.InvoicePDF, Created: time.Unix(x.Created, 0).UTC()}
	s.Invoice, _ = ids.Parse(ids.Invoice, x.Metadata[metaInvoice]) // ids.Nil when it is not ours
	s.Org, _ = ids.Parse(ids.Org, x.Metadata[metaOrg])
	if x.Customer != nil {
		s.Customer = x.Customer.ID
	}
	if !s.Outside {
		s.Paid = x.AmountPaid
	}
	if x.LastFinalizationError != nil {
		s.Problem = string(x.LastFinalizationError.Code)
	}
	if x.PaymentIntent == nil {
		return s, nil
	}
	s.Payment = x.PaymentIntent.ID
	return s, t.payment(ctx, &s, x.PaymentIntent)
}

// payment adds what became of the money. A list shows payments without their charges; what was paid is then looked up.
func (t *Till) payment(ctx context.Context, s *invoice.TillState, in *stripe.PaymentIntent) error {
	if e := in.LastPaymentError; e != nil && s.Status != invoice.TillPaid {
		s.Problem, s.NeedsAuth = declineOf(e).Code, needsAuth(e.Code, e.DeclineCode)
	}
	c := in.LatestCharge
	if c != nil && c.Object == "" { // only its id
		p := &stripe.PaymentIntentParams{Params: params(ctx, "")}
		p.AddExpand("latest_charge.balance_transaction")
		whole, err := t.g.intents.Get(in.ID, p)
		if err != nil {
			return translate(err)
		}
		c = whole.LatestCharge
	}
	if c == nil || !c.Paid {
		return nil
	}
	s.Refunded = c.AmountRefunded
	if b := c.BalanceTransaction; b != nil && b.Currency == stripe.CurrencyUSD {
		s.Fee = b.Fee
	}
	if !c.Disputed {
		return nil
	}
	var err error
	s.Disputed, err = t.g.disputed(ctx, in.ID)
	return err
}

// CreditNote takes cents off a final invoice.
func (t *Till) CreditNote(ctx context.Context, n invoice.TillNote, attempt int) (invoice.TillNote, error) {
	p := &stripe.CreditNoteParams{Params: params(ctx, attemptKey(n.Key, "note", attempt)), Invoice: stripe.String(n.Invoice), Amount: stripe.Int64(n.Cents), Memo: stripe.String(n.Memo)}
	p.AddMetadata(metaNote, n.Key)
	switch {
	case n.Paid && n.Refund:
		p.RefundAmount = stripe.Int64(n.Cents)
	case n.Paid:
		p.OutOfBandAmount = stripe.Int64(n.Cents)
	}
	x, err := t.notes.New(p)
	if err != nil {
		return n, changed(err)
	}
	n.Ref = x.ID
	return n, nil
}

// CreditNotes lists what was taken off an invoice.
func (t *Till) CreditNotes(ctx context.Context, ref string) (out []invoice.TillNote, err error) {
	list := t.notes.List(&stripe.CreditNoteListParams{ListParams: listParams(ctx), Invoice: stripe.String(ref)})
	for list.Next() {
		x := list.CreditNote()
		if x.Status == stripe.CreditNoteStatusVoid {
			continue
		}
		out = append(out, invoice.TillNote{Ref: x.ID, Invoice: ref, Key: x.Metadata[metaNote], Cents: x.Amount, Paid: x.Type == stripe.CreditNoteTypePostPayment, Refund: x.Refund != nil, Memo: x.Memo})
	}
	return out, translate(list.Err())
}
