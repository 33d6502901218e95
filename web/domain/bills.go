package domain

import (
	"context"
	"io"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
	"millrace/web/bill"
	"millrace/web/console"
	"millrace/web/session"
)

const invoicesShown = 50

// Invoices are the organization's.
func (c customer) Invoices(ctx context.Context, who session.Viewer, after string) (out console.InvoiceList, err error) {
	before := ids.Nil
	if after != "" {
		if before, err = ids.Parse(ids.Invoice, after); err != nil {
			return out, fault.New(fault.NotFound, "There is no such page.").WithCause(err)
		}
	}
	out.List, err = c.Deps.Invoices.List(ctx, member(who), who.Org, invoicesShown, before)
	if n := len(out.List); n == invoicesShown {
		out.Next = ids.Format(ids.Invoice, out.List[n-1].ID)
	}
	return out, err
}

// Invoice is one of them, whole.
func (c customer) Invoice(ctx context.Context, who session.Viewer, id ids.ID) (bill.Bill, error) {
	return c.bill(ctx, member(who), who.Org, id)
}

// bill is an invoice with how its money is asked for.
func (d *Deps) bill(ctx context.Context, by tenants.Actor, org, id ids.ID) (b bill.Bill, err error) {
	if b.Collection, err = d.Collect.Look(ctx, by, org, id); err != nil { // first: it may find that the money is there
		return b, err
	}
	if b.Invoice, err = d.Invoices.Get(ctx, by, org, id); err != nil {
		return b, err
	}
	b.Steps, err = d.Collect.Dunning(ctx, by, org, id)
	return b, err
}

// InvoicePDF is an invoice's document.
func (c customer) InvoicePDF(_ context.Context, who session.Viewer, id ids.ID) (bill.File, error) {
	return c.document(member(who), who.Org, id), nil
}

// document writes within the context of the page that sends it: a document is small.
func (d *Deps) document(by tenants.Actor, org, id ids.ID) bill.File {
	return func(ctx context.Context, w io.Writer) error { return d.Invoices.PDF(ctx, by, org, id, w) }
}

// NotePDF is a credit note's document.
func (c customer) NotePDF(_ context.Context, who session.Viewer, id, note ids.ID) (bill.File, error) {
	return c.noteDocument(member(who), who.Org, id, note), nil
}

func (d *Deps) noteDocument(by tenants.Actor, org, id, note ids.ID) bill.File {
	return func(ctx context.Context, w io.Writer) error { return d.Invoices.NotePDF(ctx, by, org, id, note, w) }
}

// SoFar is the running month.
func (c customer) SoFar(ctx context.Context, who session.Viewer) (invoice.Invoice, error) {
	return c.Deps.Invoices.SoFar(ctx, member(who), who.Org)
}

// Details are to whom invoices are addressed.
func (c customer) Details(ctx context.Context, who session.Viewer) (invoice.Details, error) {
	return c.Deps.Invoices.Details(ctx, member(who), who.Org)
}

// SetDetails changes it.
func (c customer) SetDetails(ctx context.Context, who session.Viewer, d invoice.Details) error {
	return c.Deps.Invoices.SetDetails(ctx, member(who), who.Org, d)
}

// Invoices are every customer's.
func (b business) Invoices(ctx context.Context, f invoice.Filter) ([]invoice.Invoice, error) {
	return b.Deps.Invoices.All(ctx, operator(ctx), f)
}

// StuckInvoices do not get on at the payment provider.
func (b business) StuckInvoices(ctx context.Context) ([]invoice.Stuck, error) {
	return b.Collect.Problems(ctx, operator(ctx))
}

// Invoice is one of a customer, whole.
func (b business) Invoice(ctx context.Context, org, id ids.ID) (bill.Bill, error) {
	by := operator(ctx)
	out, err := b.bill(ctx, by, org, id)
	if err != nil {
		return out, err
	}
	o, err := b.Tenants.Org(ctx, by, org)
	out.OrgName = o.Name
	return out, err
}

// InvoicePDF is an invoice's document.
func (b business) InvoicePDF(ctx context.Context, org, id ids.ID) (bill.File, error) {
	return b.document(operator(ctx), org, id), nil
}

// NotePDF is a credit note's document.
func (b business) NotePDF(ctx context.Context, org, id, note ids.ID) (bill.File, error) {
	return b.noteDocument(operator(ctx), org, id, note), nil
}

// ReversePayment takes a payment back that never came, once.
func (b business) ReversePayment(ctx context.Context, who session.Viewer, org, id, payment ids.ID, reason string) error {
	_, err := b.Deps.Invoices.ReversePayment(ctx, staff(who), org, id, payment, reason)
	return err
}

// RecordPayment books money that arrived past the payment provider, once per form.
func (b business) RecordPayment(ctx context.Context, who session.Viewer, org, id ids.ID, in invoice.PaymentInput) error {
	_, err := b.Deps.Invoices.RecordPayment(ctx, staff(who), org, id, in)
	return rename(err, billFields)
}

// billFields are where forms show what concerns no field of theirs.
var billFields = map[string]string{"idempotency_key": ""}

// CreditNote takes something off an invoice, once per form.
func (b business) CreditNote(ctx context.Context, who session.Viewer, org, id ids.ID, in invoice.NoteInput) (bool, error) {
	out, err := b.Deps.Invoices.CreditNote(ctx, staff(who), org, id, in)
	return out.Request.State == credit.Waiting, rename(err, billFields)
}

// SendNoteByHand ends a credit note that the payment provider does not send back, once per form.
func (b business) SendNoteByHand(ctx context.Context, who session.Viewer, org, id, note ids.ID, reason, key string) (bool, error) {
	out, err := b.Deps.Invoices.SendNoteByHand(ctx, staff(who), org, id, note, reason, key)
	return out.Request.State == credit.Waiting, rename(err, billFields)
}

// WriteOff gives up what is due, once per form.
func (b business) WriteOff(ctx context.Context, who session.Viewer, org, id ids.ID, reason, key string) (bool, error) {
	out, err := b.Deps.Invoices.WriteOff(ctx, staff(who), org, id, reason, key)
	return out.Request.State == credit.Waiting, rename(err, billFields)
}

// FinalizeInvoice gives an invoice its number.
func (b business) FinalizeInvoice(ctx context.Context, who session.Viewer, org, id ids.ID) error {
	_, err := b.Deps.Invoices.Finalize(ctx, staff(who), org, id)
	return err
}

// RetryInvoice looks at an invoice anew at the payment provider.
func (b business) RetryInvoice(ctx context.Context, who session.Viewer, org, id ids.ID) error {
	_, err := b.Collect.Retry(ctx, staff(who), org, id, false)
	return err
}

// StartInvoiceOver leaves what there is of an invoice at the payment provider, and begins again.
func (b business) StartInvoiceOver(ctx context.Context, who session.Viewer, org, id ids.ID) error {
	_, err := b.Collect.Retry(ctx, staff(who), org, id, true)
	return err
}
