package stripegw

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/creditnote"
	stripeinvoice "github.com/stripe/stripe-go/v76/invoice"
	"github.com/stripe/stripe-go/v76/invoiceitem"

	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Names of our ids among Stripe's metadata.
const (
	metaOrg     = "org_id"
	metaInvoice = "invoice_id"
	metaLine    = "line_key"
	metaNote    = "note_key"
)

// Till is an invoice.Till over a Gateway's account. It is safe for concurrent use.
type Till struct {
	g        *Gateway
	invoices stripeinvoice.Client
	items    invoiceitem.Client
	notes    creditnote.Client
}

var _ invoice.Till = (*Till)(nil)

// Till gives the part that invoices use.
func (g *Gateway) Till() *Till {
	b, key := g.intents.B, g.intents.Key
	return &Till{g: g, invoices: stripeinvoice.Client{B: b, Key: key}, items: invoiceitem.Client{B: b, Key: key}, notes: creditnote.Client{B: b, Key: key}}
}

// Test reports that no money moves.
func (t *Till) Test() bool { return t.g.Test() }

// changed is translate for a change under an idempotency key: it says whether the answer repeats an earlier failure, or is
// refused because other words were used before. Only another attempt leads on then.
func changed(err error) error {
	var e *stripe.Error
	if f := translate(err); !errors.As(err, &e) || e.Type != stripe.ErrorTypeIdempotency && !replayed(e) {
		return f
	}
	return fault.New(fault.Unavailable, "The payment provider repeats an earlier failure.").WithCode(invoice.CodeReplayed).WithCause(err)
}

// replayed reports that an answer is that of an earlier request with the same key.
func replayed(e *stripe.Error) bool {
	return e.LastResponse != nil && e.LastResponse.Header.Get("Idempotent-Replayed") == "true"
}

// attemptKey makes a key of a step; another attempt is another key.
func attemptKey(of, step string, attempt int) string {
	return of + ":" + step + ":" + strconv.Itoa(attempt)
}

// withPayment shows the payment whole: its fee and refunds are needed.
func withPayment(p *stripe.Params, prefix string) {
	p.AddExpand(prefix + "payment_intent.latest_charge.balance_transaction")
}

// CreateInvoice makes a draft that stays as it is until it is told otherwise.
func (t *Till) CreateInvoice(ctx context.Context, i invoice.TillInvoice) (invoice.TillState, error) {
	id := ids.Format(ids.Invoice, i.Invoice)
	p := &stripe.InvoiceParams{Params: params(ctx, attemptKey(id, "create", i.Attempt)), Customer: stripe.String(i.Customer), Currency: stripe.String(string(stripe.CurrencyUSD)),
		AutoAdvance: stripe.Bool(false), PendingInvoiceItemsBehavior: stripe.String("exclude"), Number: stripe.String(i.Number), Description: stripe.String(i.Memo)}
	p.AddMetadata(metaInvoice, id)
	p.AddMetadata(metaOrg, ids.Format(ids.Org, i.Org))
	if i.Charge {
		p.CollectionMethod = stripe.String(string(stripe.InvoiceCollectionMethodChargeAutomatically))
	} else {
		p.CollectionMethod, p.DaysUntilDue = stripe.String(string(stripe.InvoiceCollectionMethodSendInvoice)), stripe.Int64(int64(i.Days))
	}
	x, err := t.invoices.New(p)
	if err != nil {
		return invoice.TillState{}, changed(err)
	}
	return t.state(ctx, x)
}

// FindInvoices reads a list, which is never behind, as a search may be.
func (t *Till) FindInvoices(ctx context.Context, customer string, id ids.ID, from time.Time) (out []invoice.TillState, err error) {
	p := &stripe.InvoiceListParams{ListParams: listParams(ctx), Customer: stripe.String(customer), CreatedRange: since(from)}
	p.AddExpand("data.payment_intent")
	list := t.invoices.List(p)
	for list.Next() {
		x := list.Invoice()
		if x.Metadata[metaInvoice] != ids.Format(ids.Invoice, id) {
			continue
		}
		one, err := t.state(ctx, x)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, translate(list.Err())
}

// InvoiceLines lists what an invoice has, page by page: the invoice itself shows only the first ten.
func (t *Till) InvoiceLines(ctx context.Context, ref string) (out []invoice.TillLine, err error) {
	list := t.invoices.ListLines(&stripe.InvoiceListLinesParams{ListParams: listParams(ctx), Invoice: stripe.String(ref)})
	for list.Next() {
		l := list.InvoiceLineItem()
		out = append(out, invoice.TillLine{Key: l.Metadata[metaLine], Text: l.Description, Cents: l.Amount})
	}
	return out, translate(list.Err())
}

// AddLine adds one line to a draft.
func (t *Till) AddLine(ctx context.Context, draft invoice.TillState, l invoice.TillLine, attempt int) error {
	p := &stripe.InvoiceItemParams{Params: params(ctx, attemptKey(draft.Ref, "line:"+l.Key, attempt)), Customer: stripe.String(draft.Customer), Invoice: stripe.String(draft.Ref),
		Amount: stripe.Int64(l.Cents), Currency: stripe.String(string(stripe.CurrencyUSD)), Description: stripe.String(l.Text)}
	p.AddMetadata(metaLine, l.Key)
	_, err := t.items.New(p)
	return changed(err)
}

// DeleteDraft removes a draft with its lines; one that is gone is no error.
func (t *Till) DeleteDraft(ctx context.Context, ref string) error {
	_, err := t.invoices.Del(ref, &stripe.InvoiceParams{Params: params(ctx, "")})
	if err = translate(err); fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// FinalizeInvoice makes a draft final. Collection is begun by us alone.
func (t *Till) FinalizeInvoice(ctx context.Context, ref string, attempt int) (invoice.TillState, error) {
	p := &stripe.InvoiceFinalizeInvoiceParams{Params: params(ctx, attemptKey(ref, "finalize", attempt)), AutoAdvance: stripe.Bool(false)}
	withPayment(&p.Params, "")
	x, err := t.invoices.FinalizeInvoice(ref, p)
	if err != nil {
		return invoice.TillState{}, changed(err)
	}
	return t.state(ctx, x)
}

// SendInvoice mails it.
func (t *Till) SendInvoice(ctx context.Context, ref string, attempt int) error {
	_, err := t.invoices.SendInvoice(ref, &stripe.InvoiceSendInvoiceParams{Params: params(ctx, attemptKey(ref, "send", attempt))})
	return changed(err)
}

// ChargeInvoice takes the money from a kept card while nobody is there.
func (t *Till) ChargeInvoice(ctx context.Context, ref, method string, attempt int) (invoice.TillState, error) {
	p := &stripe.InvoicePayParams{Params: params(ctx, attemptKey(ref, "charge:"+method, attempt)), PaymentMethod: stripe.String(method), OffSession: stripe.Bool(true)}
	withPayment(&p.Params, "")
	x, err := t.invoices.Pay(ref, p)
	var e *stripe.Error
	if errors.As(err, &e) && (e.Type == stripe.ErrorTypeCard || e.Code == stripe.ErrorCodeInvoicePaymentIntentRequiresAction) {
		out, err := t.Invoice(ctx, ref)
		out.Problem, out.NeedsAuth = declineOf(e).Code, e.Code != stripe.ErrorCodeCardDeclined && needsAuth(e.Code, e.DeclineCode)
		return out, err
	}
	if err != nil {
		return invoice.TillState{}, changed(err)
	}
	return t.state(ctx, x)
}

func needsAuth(code stripe.ErrorCode, decline stripe.DeclineCode) bool {
	return code == stripe.ErrorCodeAuthenticationRequired || code == stripe.ErrorCodeInvoicePaymentIntentRequiresAction || string(decline) == string(stripe.ErrorCodeAuthenticationRequired)
}

// CloseInvoice ends an invoice whose money does not come through Stripe.
func (t *Till) CloseInvoice(ctx context.Context, ref string, how invoice.TillEnd, attempt int) (invoice.TillState, error) {
	key := params(ctx, attemptKey(ref, string(how), attempt))
	var x *stripe.Invoice
	var err error
	switch how {
	case invoice.PaidOutside:
		x, err = t.invoices.Pay(ref, &stripe.InvoicePayParams{Params: key, PaidOutOfBand: stripe.Bool(true)})
	case invoice.Voided:
		x, err = t.invoices.VoidInvoice(ref, &stripe.InvoiceVoidInvoiceParams{Params: key})
	default:
		x, err = t.invoices.MarkUncollectible(ref, &stripe.InvoiceMarkUncollectibleParams{Params: key})
	}
	if err != nil {
		return invoice.TillState{}, changed(err)
	}
	return t.state(ctx, x)
}

// Invoice reads an invoice.
func (t *Till) Invoice(ctx context.Context, ref string) (invoice.TillState, error) {
	p := &stripe.InvoiceParams{Params: params(ctx, "")}
	withPayment(&p.Params, "")
	x, err := t.invoices.Get(ref, p)
	if err != nil {
		return invoice.TillState{}, translate(err)
	}
	return t.state(ctx, x)
}

// InvoiceOfPayment says which invoice a payment is for.
func (t *Till) InvoiceOfPayment(ctx context.Context, payment string) (string, error) {
	x, err := t.g.intents.Get(payment, &stripe.PaymentIntentParams{Params: params(ctx, "")})
	if err = translate(err); fault.Is(err, fault.NotFound) {
		return "", nil
	}
	if err != nil || x.Invoice == nil {
		return "", err
	}
	return x.Invoice.ID, nil
}

// Invoices visits the invoices since a moment that name one of ours.
func (t *Till) Invoices(ctx context.Context, from time.Time, visit func(invoice.TillState) error) error {
	p := &stripe.InvoiceListParams{ListParams: listParams(ctx), CreatedRange: since(from)}
	p.AddExpand("data.payment_intent")
	list := t.invoices.List(p)
	for list.Next() {
		x := list.Invoice()
		if _, err := ids.Parse(ids.Invoice, x.Metadata[metaInvoice]); err != nil {
			continue // a top-up's receipt, or another program's
		}
		one, err := t.state(ctx, x)
		if err != nil {
			return err
		}
		if err := visit(one); err != nil {
			return err
		}
	}
	return translate(list.Err())
}
