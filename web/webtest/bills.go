package webtest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/web/bill"
	"millrace/web/console"
	"millrace/web/session"
)

// billWorld is four customers' invoices: one of every state.
func (w *world) billWorld() {
	w.details = invoice.Details{LegalName: "Acme Robotics GmbH", Address: "Hafenstraße 12\n20457 Hamburg", Country: "DE", TaxID: "DE811907980", PurchaseOrder: "PO-4471"}
	october := monthOf(Now).AddDate(0, -1, 0)
	w.bills = []bill.Bill{
		w.bill(1, 0, october, invoice.Open, 14),
		w.bill(2, 0, october.AddDate(0, -1, 0), invoice.Paid, 14),
		w.bill(3, 0, october.AddDate(0, -2, 0), invoice.Void, 14),
		w.bill(4, 1, october, invoice.Open, 60),
		w.bill(5, 2, october, invoice.Uncollectible, 14),
		w.bill(6, 3, october, invoice.Draft, 0),
		w.bill(7, 2, october.AddDate(0, -1, 0), invoice.Ready, 0),
	}
	late := &w.bills[0]
	late.Collection = invoice.Collection{State: invoice.PushAsked, Sentence: "Your card was declined. Pay on the invoice's page, or give another card.", URL: "https://pay.example/i/81", Ref: "in_1PZ8f2"}
	late.Steps = []invoice.DunningStep{{Day: 0, What: "reminded", At: late.DueAt}, {Day: 7, What: "reminded", At: late.DueAt.AddDate(0, 0, 7)}, {Day: 14, What: "credit limit reduced to what is used", At: Now}}
	w.bills[3].Collection = invoice.Collection{State: invoice.PushStopped, Problem: "The payment provider's total is $0.01 higher than ours.", Sentence: "Card payment of this invoice is on hold. Pay by bank transfer, with the invoice's number, or ask support.", Ref: "in_1PZ9aa"}
	disputed := &w.bills[1]
	disputed.Notes = []invoice.Note{{ID: id(kindNote, 2), Number: "CN-2026-0006", Cents: 40_00, Back: invoice.BackByStripe, Reason: "Slow answers", By: "ops@millrace.example", At: disputed.SettledAt, Refused: "This payment is disputed."}}
	disputed.Credited = 40_00
	disputed.Collection = invoice.Collection{State: invoice.PushAsked, Problem: "the payment provider does not send back $40.00 of credit note CN-2026-0006: This payment is disputed.", Ref: "in_1PZ7cc"}
	w.bills[5].Problem = "The lines add up to $0.12 less than the ledger charged."
}

// bill makes an invoice that adds up.
func (w *world) bill(n, org int, month time.Time, state invoice.State, due int) (b bill.Bill) {
	b.ID, b.Org, b.OrgName, b.Month, b.State = id(kindInvoice, n), w.orgs[org].ID, w.orgs[org].Name, month, state
	b.Lines = w.billLines(month, n)
	for _, l := range b.Lines {
		b.Subtotal += l.Cents
		switch l.Kind {
		case invoice.PrepaidLine:
			b.Prepaid -= l.Amount
		case invoice.PromoLine:
			b.Promo -= l.Amount
		default:
			b.Charged += l.Amount
		}
		b.Receivable += l.Amount
	}
	b.Total = b.Subtotal
	b.BillTo, b.Seller = w.details, invoice.Seller{Name: "Millrace Operations Ltd", Address: "1 Mill Lane\nBristol BS1 4RW", TaxID: "GB123456789"}
	b.DraftedAt = invoice.FreezeOf(month).Add(10 * time.Minute)
	if !state.Final() {
		return b
	}
	b.Number = "INV-2026-" + string([]byte{'0', '0', '0' + byte(n), '1'})
	b.FinalizedAt = b.DraftedAt.Add(time.Minute)
	b.DueAt = b.FinalizedAt.AddDate(0, 0, due)
	b.SettledAt = b.FinalizedAt.AddDate(0, 0, 5)
	switch state {
	case invoice.Open:
		b.SettledAt = time.Time{}
		b.Payments = []invoice.Payment{{ID: id(kindPayment, n), Cents: 5000, Method: "hand", Reference: "Transfer 7781", ReceivedAt: b.FinalizedAt.AddDate(0, 0, 3), By: "ops@millrace.example"}}
		b.Paid = 5000
	case invoice.Paid:
		b.Payments = []invoice.Payment{{ID: id(kindPayment, n), Cents: b.Total, Method: "stripe", Reference: "pi_3PZ8f2", ReceivedAt: b.SettledAt}}
		b.Paid = b.Total
	case invoice.Void:
		b.Notes = []invoice.Note{{ID: id(kindNote, n), Number: "CN-2026-0007", Cents: b.Total, Relieved: b.Total, Reason: "Billed to the wrong company", By: "ops@millrace.example", At: b.SettledAt}}
		b.Credited, b.Relieved = b.Total, b.Total
	case invoice.Uncollectible:
		b.GivenUp = b.Total
	}
	return b
}

func (w *world) billLines(month time.Time, n int) (out []invoice.Line) {
	add := func(model int, class usage.Class, quantity int64, unit string, service string, of time.Time) {
		m := w.models[model]
		p, err := money.ParsePerMillion(unit)
		if err != nil {
			panic(err) // the fixture's own constant
		}
		cost, _ := money.Cost(quantity, p)
		out = append(out, invoice.Line{Kind: invoice.UsageLine, Month: of, Model: id(kindModel, model), Name: m.Name, Version: m.Version, Service: service, Class: class.String(), Quantity: quantity, Unit: &p,
			Amount: cost.Nano(), Cents: int64(cost.Nano() / invoice.NanoPerCent)})
	}
	scale := int64(n%3 + 1)
	add(0, usage.Input, 412_118_204*scale, "0.28", "", month)
	add(0, usage.Cached, 260_004_118*scale, "0.07", "", month)
	add(0, usage.Output, 88_411_902*scale, "0.88", "", month)
	add(0, usage.Output, 4_000_000*scale, "1.32", "priority", month)
	add(1, usage.Input, 9_204_110*scale, "0.60", "", month.AddDate(0, -1, 0))
	out[4].Unit = nil
	for kind, amount := range map[invoice.LineKind]string{invoice.OverrunLine: "-0.04", invoice.PromoLine: "-20", invoice.PrepaidLine: "-60"} {
		a := usd(amount)
		out = append(out, invoice.Line{Kind: kind, Month: month, Amount: a, Cents: int64(a / invoice.NanoPerCent)})
	}
	slices.SortStableFunc(out[5:], func(a, b invoice.Line) int { return int(b.Amount - a.Amount) })
	return out
}

// Invoices are Acme's final ones.
func (f *Fixture) Invoices(_ context.Context, _ session.Viewer, _ string) (out console.InvoiceList, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.bills {
		if b.Org == f.orgs[0].ID && b.State.Final() {
			out.List = append(out.List, b.Invoice)
		}
	}
	return out, nil
}

func (f *Fixture) findBill(org, id ids.ID) (*bill.Bill, error) {
	for n := range f.bills {
		if b := &f.bills[n]; b.ID == id && b.Org == org {
			return b, nil
		}
	}
	return nil, fault.New(fault.NotFound, "There is no such invoice.")
}

// Invoice is one of Acme's.
func (f *Fixture) Invoice(_ context.Context, _ session.Viewer, which ids.ID) (bill.Bill, error) {
	return business{f}.Invoice(context.Background(), id(kindOrg, 1), which)
}

func pdf(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "%PDF-1.7 of the fixture")
	return err
}

// InvoicePDF is no real document.
func (f *Fixture) InvoicePDF(context.Context, session.Viewer, ids.ID) (bill.File, error) {
	return pdf, nil
}

// NotePDF is no real document.
func (f *Fixture) NotePDF(context.Context, session.Viewer, ids.ID, ids.ID) (bill.File, error) {
	return pdf, nil
}

// SoFar is November, in which credit paid for most.
func (f *Fixture) SoFar(context.Context, session.Viewer) (invoice.Invoice, error) {
	month := monthOf(Now)
	if f.state == Fresh {
		return invoice.Invoice{Month: month, State: invoice.Draft}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.soFarFails {
		return invoice.Invoice{}, fmt.Errorf("webtest: the running month: %w", context.DeadlineExceeded)
	}
	b := f.bill(9, 0, month, invoice.Ready, 0)
	b.ID = ids.Nil
	return b.Invoice, nil
}

// Details are Acme's.
func (f *Fixture) Details(context.Context, session.Viewer) (invoice.Details, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.details, nil
}

// SetDetails refuses a country of more than two letters.
func (f *Fixture) SetDetails(_ context.Context, who session.Viewer, d invoice.Details) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !who.May.Has(session.PermBilling):
		return fault.New(fault.Forbidden, "Your role does not allow this.")
	case len(d.Country) > 2:
		return fault.New(fault.Invalid, "Name a country by its two letters, for example DE.").WithParam("country")
	}
	f.details = d
	return nil
}

// Invoices are everyone's, by state.
func (b business) Invoices(_ context.Context, f invoice.Filter) (out []invoice.Invoice, err error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, x := range b.f.bills {
		if (f.State == "" || x.State == f.State) && (!f.Overdue || x.Overdue(Now)) {
			out = append(out, x.Invoice)
		}
	}
	return out, nil
}

// StuckInvoices is one.
func (b business) StuckInvoices(context.Context) (out []invoice.Stuck, err error) {
	for _, x := range b.f.bills {
		if x.Collection.Problem != "" {
			out = append(out, invoice.Stuck{Org: x.Org, OrgName: x.OrgName, Invoice: x.ID, Number: x.Number, State: x.Collection.State, Problem: x.Collection.Problem})
		}
	}
	return out, nil
}

// Invoice is anyone's.
func (b business) Invoice(_ context.Context, org, id ids.ID) (bill.Bill, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	if err != nil {
		return bill.Bill{}, err
	}
	return *x, nil
}

// InvoicePDF is no real document.
func (b business) InvoicePDF(context.Context, ids.ID, ids.ID) (bill.File, error) { return pdf, nil }

// NotePDF is no real document.
func (b business) NotePDF(context.Context, ids.ID, ids.ID, ids.ID) (bill.File, error) {
	return pdf, nil
}

// ReversePayment takes it back once.
func (b business) ReversePayment(_ context.Context, _ session.Viewer, org, id, payment ids.ID, reason string) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	if err != nil {
		return err
	}
	for n := range x.Payments {
		if p := &x.Payments[n]; p.ID == payment && p.ReversedAt.IsZero() {
			p.ReversedAt, p.ReversedWhy = Now, reason
			x.Paid -= p.Cents
			return nil
		}
	}
	return fault.New(fault.NotFound, "There is no such payment.")
}

// RecordPayment takes what is due at most.
func (b business) RecordPayment(_ context.Context, _ session.Viewer, org, id ids.ID, in invoice.PaymentInput) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	switch {
	case err != nil:
		return err
	case in.Reference == "":
		return fault.New(fault.Invalid, "Give the payment's reference.").WithParam("reference")
	case in.Cents > x.Due():
		return fault.New(fault.Conflict, "Only %s USD are due. Grant the rest as paid credit.", bill.Cents(x.Due())).WithParam("amount")
	}
	x.Paid += in.Cents
	x.Payments = append(x.Payments, invoice.Payment{ID: ids.New(), Cents: in.Cents, Method: "hand", Reference: in.Reference, ReceivedAt: in.ReceivedAt})
	if x.Due() == 0 {
		x.State, x.SettledAt = invoice.Paid, Now
	}
	return nil
}

// CreditNote waits above a thousand dollars.
func (b business) CreditNote(_ context.Context, _ session.Viewer, org, id ids.ID, in invoice.NoteInput) (bool, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	switch {
	case err != nil:
		return false, err
	case in.Cents > x.Total-x.Credited:
		return false, fault.New(fault.Conflict, "At most %s USD are left to take off.", bill.Cents(x.Total-x.Credited)).WithParam("amount")
	case in.Cents > 100_000:
		return true, nil
	}
	relieved := min(in.Cents, x.Due())
	x.Credited, x.Relieved = x.Credited+in.Cents, x.Relieved+relieved
	x.Notes = append(x.Notes, invoice.Note{ID: ids.New(), Number: "CN-2026-0008", Cents: in.Cents, Relieved: relieved, Back: in.Back, Reason: in.Reason, At: Now})
	return false, nil
}

// SendNoteByHand sends it once.
func (b business) SendNoteByHand(_ context.Context, _ session.Viewer, org, id, note ids.ID, reason, _ string) (bool, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	if err != nil {
		return false, err
	}
	for n := range x.Notes {
		if i := &x.Notes[n]; i.ID == note && i.SentAt.IsZero() {
			i.SentAt, i.SentWhy = Now, reason
			return false, nil
		}
	}
	return false, fault.New(fault.NotFound, "There is no such credit note.")
}

// WriteOff gives up what is due.
func (b business) WriteOff(_ context.Context, _ session.Viewer, org, id ids.ID, _, _ string) (bool, error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	if err != nil {
		return false, err
	}
	x.GivenUp, x.State, x.SettledAt = x.Due(), invoice.Uncollectible, Now
	return false, nil
}

// FinalizeInvoice refuses what does not add up.
func (b business) FinalizeInvoice(_ context.Context, _ session.Viewer, org, id ids.ID) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	if err != nil {
		return err
	}
	if x.Problem != "" {
		return fault.New(fault.Conflict, "It cannot become final: %s", x.Problem)
	}
	x.State, x.Number, x.FinalizedAt, x.DueAt = invoice.Open, "INV-2026-0099", Now, Now.AddDate(0, 0, 14)
	return nil
}

// RetryInvoice mends it.
func (b business) RetryInvoice(_ context.Context, _ session.Viewer, org, id ids.ID) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	x, err := b.f.findBill(org, id)
	if err == nil {
		x.Collection.Problem = ""
	}
	return err
}
