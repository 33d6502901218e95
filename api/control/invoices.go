package control

import (
	"bytes"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/month"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Invoice is what an organization owes for a UTC calendar month. Lines, payments and credit notes are only of one invoice.
type Invoice struct {
	ID            string           `json:"id,omitempty"` // absent: the running month
	OrgID         string           `json:"org_id"`
	Month         string           `json:"month"`
	State         string           `json:"state"`
	Overdue       bool             `json:"overdue"`
	Number        string           `json:"number,omitempty"`
	Problem       string           `json:"problem,omitempty"`
	Charged       Amount           `json:"charged"`
	FromPromo     Amount           `json:"from_promotional_credit"`
	FromCredit    Amount           `json:"from_paid_credit"`
	Receivable    Amount           `json:"receivable"`
	NotCharged    Amount           `json:"not_charged"`
	Subtotal      Amount           `json:"subtotal"`
	Tax           Amount           `json:"tax"`
	Total         Amount           `json:"total"`
	Paid          Amount           `json:"paid"`
	Credited      Amount           `json:"credited"`
	GivenUp       Amount           `json:"given_up"`
	Due           Amount           `json:"due"`
	DueAt         *time.Time       `json:"due_at,omitempty"`
	FinalizedAt   *time.Time       `json:"finalized_at,omitempty"`
	SettledAt     *time.Time       `json:"settled_at,omitempty"`
	Lines         []InvoiceLine    `json:"lines,omitempty"`
	Payments      []InvoicePayment `json:"payments,omitempty"`
	CreditNotes   []CreditNote     `json:"credit_notes,omitempty"`
	LegalName     string           `json:"legal_name,omitempty"`
	PurchaseOrder string           `json:"purchase_order,omitempty"`
}

// InvoiceLine is one line of an invoice.
type InvoiceLine struct {
	Kind         string `json:"kind"`
	UsageMonth   string `json:"usage_month,omitempty"`
	Model        string `json:"model,omitempty"`
	PriceVersion string `json:"price_version,omitempty"`
	ServiceTier  string `json:"service_tier,omitempty"`
	Class        string `json:"class,omitempty"`
	Quantity     int64  `json:"quantity"`
	UnitPico     *int64 `json:"unit_pico,omitempty"`
	Exact        Amount `json:"exact"`
	Amount       Amount `json:"amount"`
}

// InvoicePayment is money that arrived.
type InvoicePayment struct {
	ID         string    `json:"id"`
	Amount     Amount    `json:"amount"`
	Method     string    `json:"method"`
	Reference  string    `json:"reference"`
	ReceivedAt time.Time `json:"received_at"`
	TxnID      string    `json:"txn_id"`

	ReversedAt  *time.Time `json:"reversed_at,omitempty"` // it never came
	ReversedWhy string     `json:"reversed_why,omitempty"`
}

// CreditNote is what was taken off.
type CreditNote struct {
	ID     string    `json:"id"`
	Number string    `json:"number"`
	Amount Amount    `json:"amount"`
	Back   string    `json:"back,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	TxnID  string    `json:"txn_id"`

	Refused string     `json:"refused,omitempty"` // by the payment provider
	SentAt  *time.Time `json:"sent_at,omitempty"` // by hand, past it
	SentWhy string     `json:"sent_why,omitempty"`
}

func cents(n int64) Amount { return amount(money.Nano(n) * invoice.NanoPerCent) }

const (
	monthLayout   = "2006-01"
	paymentPrefix = "pay"
)

func (a *api) invoiceOf(i invoice.Invoice) Invoice {
	out := Invoice{OrgID: ids.Format(ids.Org, i.Org), Month: i.Month.UTC().Format(monthLayout), State: string(i.State), Overdue: i.Overdue(a.Clock.Now()), Number: i.Number, Problem: i.Problem,
		Charged: amount(i.Charged), FromPromo: amount(i.Promo), FromCredit: amount(i.Prepaid), Receivable: amount(i.Receivable), NotCharged: amount(i.Overrun),
		Subtotal: cents(i.Subtotal), Tax: cents(i.Tax), Total: cents(i.Total), Paid: cents(i.Paid), Credited: cents(i.Credited), GivenUp: cents(i.GivenUp), Due: cents(i.Due()),
		DueAt: optionalTime(i.DueAt), FinalizedAt: optionalTime(i.FinalizedAt), SettledAt: optionalTime(i.SettledAt), LegalName: i.BillTo.LegalName, PurchaseOrder: i.BillTo.PurchaseOrder}
	if i.ID != ids.Nil {
		out.ID = ids.Format(ids.Invoice, i.ID)
	}
	for _, l := range i.Lines {
		out.Lines = append(out.Lines, lineOf(l))
	}
	for _, p := range i.Payments {
		out.Payments = append(out.Payments, InvoicePayment{ID: ids.Format(paymentPrefix, p.ID), Amount: cents(p.Cents), Method: p.Method, Reference: p.Reference, ReceivedAt: p.ReceivedAt,
			TxnID: ids.Format(ids.Txn, p.Txn), ReversedAt: optionalTime(p.ReversedAt), ReversedWhy: p.ReversedWhy})
	}
	for _, n := range i.Notes {
		out.CreditNotes = append(out.CreditNotes, CreditNote{ID: ids.Format(ids.Note, n.ID), Number: n.Number, Amount: cents(n.Cents), Back: string(n.Back), Reason: n.Reason, At: n.At,
			TxnID: ids.Format(ids.Txn, n.Txn), Refused: n.Refused, SentAt: optionalTime(n.SentAt), SentWhy: n.SentWhy})
	}
	return out
}

func lineOf(l invoice.Line) InvoiceLine {
	out := InvoiceLine{Kind: string(l.Kind), Model: l.Name, ServiceTier: l.Service, Class: l.Class, Quantity: l.Quantity, Exact: amount(l.Amount), Amount: cents(l.Cents)}
	if !l.Month.IsZero() {
		out.UsageMonth = l.Month.UTC().Format(monthLayout)
	}
	if l.Version != ids.Nil {
		out.PriceVersion = ids.Format(ids.Price, l.Version)
	}
	if l.Unit != nil {
		pico := int64(*l.Unit)
		out.UnitPico = &pico
	}
	return out
}

func (a *api) listInvoices(c *call, q PageQuery) (Page[Invoice], error) {
	org, err := c.org()
	if err != nil {
		return Page[Invoice]{}, err
	}
	before, limit, err := q.bounds(ids.Invoice)
	if err != nil {
		return Page[Invoice]{}, err
	}
	list, err := a.Invoices.List(c, c.actor, org, limit, before)
	return pageOf(list, limit, a.invoiceOf, invoiceCursor), err
}

func invoiceCursor(i invoice.Invoice) string { return ids.Format(ids.Invoice, i.ID) }

// InvoiceQuery asks for invoices of all organizations.
type InvoiceQuery struct {
	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	State  string `json:"state,omitempty"`
	Month  string `json:"month,omitempty"`
}

// overdue stands for open invoices whose money should have come.
const overdue = "overdue"

func (a *api) listAllInvoices(c *call, q InvoiceQuery) (Page[Invoice], error) {
	before, limit, err := PageQuery{Cursor: q.Cursor, Limit: q.Limit}.bounds(ids.Invoice)
	if err != nil {
		return Page[Invoice]{}, err
	}
	f := invoice.Filter{Limit: limit, Before: before}
	switch s := invoice.State(q.State); s {
	case overdue:
		f.Overdue = true
	case "", invoice.Draft, invoice.Ready, invoice.Open, invoice.Paid, invoice.Void, invoice.Uncollectible:
		f.State = s
	default:
		return Page[Invoice]{}, fault.New(fault.Invalid, "A state is draft, ready, open, overdue, paid, void or uncollectible.").WithParam("state")
	}
	if q.Month != "" {
		if f.Month, err = month.Parse(q.Month); err != nil {
			return Page[Invoice]{}, err
		}
	}
	list, err := a.Invoices.All(c, c.actor, f)
	return pageOf(list, limit, a.invoiceOf, invoiceCursor), err
}

func (a *api) getInvoice(c *call, _ none) (Invoice, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Invoice{}, err
	}
	i, err := a.Invoices.Get(c, c.actor, org, id)
	return a.invoiceOf(i), err
}

func (a *api) invoicePDF(c *call, _ none) ([]byte, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = a.Invoices.PDF(c, c.actor, org, id, &out)
	return out.Bytes(), err
}

func (a *api) invoiceSoFar(c *call, _ none) (Invoice, error) {
	org, err := c.org()
	if err != nil {
		return Invoice{}, err
	}
	i, err := a.Invoices.SoFar(c, c.actor, org)
	return a.invoiceOf(i), err
}

func (a *api) finalizeInvoice(c *call) (Invoice, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Invoice{}, err
	}
	i, err := a.Invoices.Finalize(c, c.actor, org, id)
	return a.invoiceOf(i), err
}

// parseCents reads an amount of whole cents.
func parseCents(param, s string) (int64, error) {
	n, err := parseUSD(param, s)
	if err == nil && n%invoice.NanoPerCent != 0 {
		err = fault.New(fault.Invalid, "Give %s in whole cents.", param).WithParam(param)
	}
	return int64(n / invoice.NanoPerCent), err
}

// NewInvoicePayment records money that arrived past the payment provider.
type NewInvoicePayment struct {
	AmountUSD  string     `json:"amount_usd"`
	Reference  string     `json:"reference"`
	ReceivedAt *time.Time `json:"received_at,omitempty"` // absent = now
}

func (a *api) recordPayment(c *call, in NewInvoicePayment) (Invoice, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Invoice{}, err
	}
	p := invoice.PaymentInput{Reference: in.Reference, IdempotencyKey: c.idempotencyKey()}
	if p.Cents, err = parseCents("amount_usd", in.AmountUSD); err != nil {
		return Invoice{}, err
	}
	if p.ReceivedAt, err = moment(in.ReceivedAt, "received_at"); err != nil {
		return Invoice{}, err
	}
	i, err := a.Invoices.RecordPayment(c, c.actor, org, id, p)
	return a.invoiceOf(i), err
}

// PaymentReversal takes a payment back that was recorded by hand and never came.
type PaymentReversal struct {
	Reason string `json:"reason"`
}

func (a *api) reversePayment(c *call, in PaymentReversal) (Invoice, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Invoice{}, err
	}
	payment, err := c.id("payment", paymentPrefix)
	if err != nil {
		return Invoice{}, err
	}
	i, err := a.Invoices.ReversePayment(c, c.actor, org, id, payment, in.Reason)
	return a.invoiceOf(i), err
}

// NewCreditNote takes something off a final invoice.
type NewCreditNote struct {
	AmountUSD string `json:"amount_usd"`
	Reason    string `json:"reason"`
	Back      string `json:"back,omitempty"`
}

func (a *api) createCreditNote(c *call, in NewCreditNote) (Approval, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Approval{}, err
	}
	n, err := parseCents("amount_usd", in.AmountUSD)
	if err != nil {
		return Approval{}, err
	}
	out, err := a.Invoices.CreditNote(c, c.actor, org, id, invoice.NoteInput{Cents: n, Reason: in.Reason, Back: invoice.Back(in.Back), IdempotencyKey: c.idempotencyKey()})
	return approvalOf(out.Request), err
}

func (a *api) notePDF(c *call, _ none) ([]byte, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return nil, err
	}
	note, err := c.id("note", ids.Note)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = a.Invoices.NotePDF(c, c.actor, org, id, note, &out)
	return out.Bytes(), err
}

// SendingByHand ends a credit note that the payment provider does not send back.
type SendingByHand struct {
	Reason string `json:"reason"`
}

func (a *api) sendNoteByHand(c *call, in SendingByHand) (Approval, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Approval{}, err
	}
	note, err := c.id("note", ids.Note)
	if err != nil {
		return Approval{}, err
	}
	out, err := a.Invoices.SendNoteByHand(c, c.actor, org, id, note, in.Reason, c.idempotencyKey())
	return approvalOf(out.Request), err
}

// WriteOff gives up what is due.
type WriteOff struct {
	Reason string `json:"reason"`
}

func (a *api) writeOff(c *call, in WriteOff) (Approval, error) {
	org, id, err := c.inOrg("invoice", ids.Invoice)
	if err != nil {
		return Approval{}, err
	}
	out, err := a.Invoices.WriteOff(c, c.actor, org, id, in.Reason, c.idempotencyKey())
	return approvalOf(out.Request), err
}
