package gwtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// InvoiceProvider is what the suite of invoices runs against.
type InvoiceProvider struct {
	Till     invoice.Till
	Customer func(t *testing.T) string                        // makes one
	Shape    bool                                             // it has no memory
	Keep     func(t *testing.T, customer, card string) string // keeps a card
	PayPage  func(t *testing.T, ref string)                   // a person on the invoice's page; nil = there is none
	Refund   func(t *testing.T, payment string, cents int64)  // as somebody would in its own pages; nil = nobody does
}

// RunInvoices runs the suite of invoices.
func RunInvoices(t *testing.T, p InvoiceProvider) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if !p.Till.Test() {
		t.Fatal("this is a live account")
	}
	i := invoices{T: t, ctx: ctx, p: p, customer: p.Customer(t)}
	t.Run("sent and paid on its page", func(t *testing.T) { i.on(t).sent() })
	t.Run("charged", func(t *testing.T) { i.on(t).charged() })
	t.Run("credited", func(t *testing.T) { i.on(t).credited() })
	t.Run("ends without money", func(t *testing.T) { i.on(t).ends() })
	t.Run("listed", func(t *testing.T) { i.on(t).listed() })
	if p.Shape {
		return
	}
	t.Run("made once", func(t *testing.T) { i.on(t).once() })
	t.Run("found behind many", func(t *testing.T) { i.on(t).behind() })
	t.Run("lines of several pages", func(t *testing.T) { i.on(t).pages() })
	t.Run("declined", func(t *testing.T) { i.on(t).declined() })
	t.Run("what is not there", func(t *testing.T) {
		if _, err := p.Till.Invoice(ctx, "in_none"); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
		if err := p.Till.DeleteDraft(ctx, "in_none"); err != nil {
			t.Errorf("%v", err)
		}
		if ref, err := p.Till.InvoiceOfPayment(ctx, "pi_none"); err != nil || ref != "" {
			t.Errorf("%q, %v", ref, err)
		}
	})
}

type invoices struct {
	*testing.T
	ctx      context.Context
	p        InvoiceProvider
	customer string
}

func (i invoices) on(t *testing.T) invoices { i.T = t; return i }

func (i invoices) ask(charge bool) invoice.TillInvoice {
	id := ids.New()
	return invoice.TillInvoice{Org: ids.New(), Invoice: id, Number: "GWTEST-" + ids.Format(ids.Invoice, id), Attempt: 1, Customer: i.customer, Charge: charge, Days: 14, Memo: "Usage of a month"}
}

// final makes an invoice of these lines.
func (i invoices) final(charge bool, cents ...int64) (invoice.TillInvoice, invoice.TillState) {
	i.Helper()
	ask := i.ask(charge)
	s, err := i.p.Till.CreateInvoice(i.ctx, ask)
	if err != nil || s.Ref == "" {
		i.Fatalf("%+v, %v", s, err)
	}
	if !i.p.Shape && (s.Status != invoice.TillDraft || s.Invoice != ask.Invoice || s.Org != ask.Org || s.Customer != i.customer || s.Total != 0 || s.Number != ask.Number || s.Charge != charge || s.Currency != topup.Currency) {
		i.Fatalf("%+v", s)
	}
	for n, c := range cents {
		if err := i.p.Till.AddLine(i.ctx, s, invoice.TillLine{Key: fmt.Sprint(n), Text: fmt.Sprintf("Line %d", n), Cents: c}, 1); err != nil {
			i.Fatal(err)
		}
	}
	lines, err := i.p.Till.InvoiceLines(i.ctx, s.Ref)
	if err != nil {
		i.Fatal(err)
	}
	i.sameLines(lines, cents)
	f, err := i.p.Till.FinalizeInvoice(i.ctx, s.Ref, 1)
	if err != nil {
		i.Fatal(err)
	}
	if !i.p.Shape && (f.Status != invoice.TillOpen || f.Number != ask.Number || f.URL == "" || f.PDF == "" || f.Due != f.Total || f.Payment == "") {
		i.Fatalf("final: %+v", f)
	}
	return ask, f
}

func (i invoices) sameLines(lines []invoice.TillLine, cents []int64) {
	i.Helper()
	if i.p.Shape {
		return
	}
	if len(lines) != len(cents) {
		i.Fatalf("%d lines of %d", len(lines), len(cents))
	}
	for n, l := range lines {
		if l.Key != fmt.Sprint(n) || l.Cents != cents[n] || l.Text != fmt.Sprintf("Line %d", n) {
			i.Errorf("line %d is %+v", n, l)
		}
	}
}

func (i invoices) sent() {
	_, f := i.final(false, 12_34, -4)
	if err := i.p.Till.SendInvoice(i.ctx, f.Ref, 1); err != nil {
		i.Fatal(err)
	}
	got, err := i.p.Till.Invoice(i.ctx, f.Ref)
	if err != nil {
		i.Fatal(err)
	}
	if i.p.Shape {
		return
	}
	if got.Status != invoice.TillOpen || got.Total != 12_30 || got.Due != 12_30 || got.Paid != 0 {
		i.Errorf("%+v", got)
	}
	if i.p.PayPage == nil {
		return
	}
	i.p.PayPage(i.T, f.Ref)
	got, err = i.p.Till.Invoice(i.ctx, f.Ref)
	if err != nil || got.Status != invoice.TillPaid || got.Paid != 12_30 || got.Due != 0 || got.Outside || got.Fee <= 0 {
		i.Errorf("paid: %+v, %v", got, err)
	}
}

func (i invoices) charged() {
	_, f := i.final(true, 20_00)
	got, err := i.p.Till.ChargeInvoice(i.ctx, f.Ref, i.p.Keep(i.T, i.customer, GoodCard), 1)
	if err != nil {
		i.Fatal(err)
	}
	if i.p.Shape {
		if _, err := i.p.Till.InvoiceOfPayment(i.ctx, "pi_123"); err != nil {
			i.Error(err)
		}
		return
	}
	if got.Status != invoice.TillPaid || got.Paid != 20_00 || got.Problem != "" {
		i.Fatalf("%+v", got)
	}
	if ref, err := i.p.Till.InvoiceOfPayment(i.ctx, got.Payment); err != nil || ref != f.Ref {
		i.Errorf("the payment is of %q, %v", ref, err)
	}
	if i.p.Refund == nil {
		return
	}
	i.p.Refund(i.T, got.Payment, 3_00)
	if got, err = i.p.Till.Invoice(i.ctx, f.Ref); err != nil || got.Refunded != 3_00 || got.Status != invoice.TillPaid || got.Paid != 20_00 {
		i.Errorf("refunded: %+v, %v", got, err)
	}
}

func (i invoices) credited() {
	_, f := i.final(false, 30_00)
	note := invoice.TillNote{Invoice: f.Ref, Key: "note-" + ids.New().String(), Cents: 5_00, Memo: "Too slow"}
	made, err := i.p.Till.CreditNote(i.ctx, note, 1)
	if err != nil || made.Ref == "" {
		i.Fatalf("%+v, %v", made, err)
	}
	list, err := i.p.Till.CreditNotes(i.ctx, f.Ref)
	if err != nil {
		i.Fatal(err)
	}
	if i.p.Shape {
		return
	}
	if len(list) != 1 || list[0].Key != note.Key || list[0].Cents != note.Cents || list[0].Paid {
		i.Errorf("%+v", list)
	}
	got, err := i.p.Till.Invoice(i.ctx, f.Ref)
	if err != nil || got.Due != 25_00 || got.Credited != 5_00 || got.Total != 30_00 {
		i.Errorf("%+v, %v", got, err)
	}
	if got, err = i.p.Till.ChargeInvoice(i.ctx, f.Ref, i.p.Keep(i.T, i.customer, GoodCard), 1); err != nil || got.Paid != 25_00 {
		i.Fatalf("%+v, %v", got, err)
	}
	back := invoice.TillNote{Invoice: f.Ref, Key: "note-" + ids.New().String(), Cents: 10_00, Paid: true, Refund: true, Memo: "Back to the card"}
	if _, err = i.p.Till.CreditNote(i.ctx, back, 1); err != nil {
		i.Fatal(err)
	}
	other := invoice.TillNote{Invoice: f.Ref, Key: "note-" + ids.New().String(), Cents: 1_00, Paid: true, Memo: "Sent by hand"}
	if _, err = i.p.Till.CreditNote(i.ctx, other, 1); err != nil {
		i.Fatal(err)
	}
	if got, err = i.p.Till.Invoice(i.ctx, f.Ref); err != nil || got.Credited != 16_00 || got.Refunded != 10_00 || got.Paid != 25_00 {
		i.Errorf("%+v, %v", got, err)
	}
}

func (i invoices) ends() {
	for how, want := range map[invoice.TillEnd]string{invoice.PaidOutside: invoice.TillPaid, invoice.Voided: invoice.TillVoid, invoice.GivenUp: invoice.TillUncollectible} {
		_, f := i.final(false, 8_00)
		got, err := i.p.Till.CloseInvoice(i.ctx, f.Ref, how, 1)
		if err != nil {
			i.Fatal(err)
		}
		if !i.p.Shape && (got.Status != want || got.Paid != 0 || got.Outside != (how == invoice.PaidOutside)) {
			i.Errorf("%s: %+v", how, got)
		}
	}
}

func (i invoices) listed() {
	ask, f := i.final(false, 9_00)
	found, err := i.p.Till.FindInvoices(i.ctx, i.customer, ask.Invoice, time.Now().Add(-time.Hour))
	if err != nil {
		i.Fatal(err)
	}
	seen := false
	err = i.p.Till.Invoices(i.ctx, time.Now().Add(-time.Hour), func(s invoice.TillState) error {
		seen = seen || s.Ref == f.Ref && s.Invoice == ask.Invoice && s.Total == 9_00
		return nil
	})
	if err != nil {
		i.Fatal(err)
	}
	if !i.p.Shape && (len(found) != 1 || found[0].Ref != f.Ref || !seen) {
		i.Errorf("%+v, listed %t", found, seen)
	}
}

// once: the same words under the same key make nothing new, and no number is taken twice.
func (i invoices) once() {
	ask := i.ask(false)
	first, err := i.p.Till.CreateInvoice(i.ctx, ask)
	again, err2 := i.p.Till.CreateInvoice(i.ctx, ask)
	if err != nil || err2 != nil || first.Ref != again.Ref {
		i.Fatalf("%q, %q, %v, %v", first.Ref, again.Ref, err, err2)
	}
	ask.Attempt = 2
	if other, err := i.p.Till.CreateInvoice(i.ctx, ask); err == nil {
		i.Errorf("a number is taken twice: %+v", other)
	}
	l := invoice.TillLine{Key: "a", Text: "Line", Cents: 1_00}
	for range 2 {
		if err := i.p.Till.AddLine(i.ctx, first, l, 1); err != nil {
			i.Fatal(err)
		}
	}
	if lines, err := i.p.Till.InvoiceLines(i.ctx, first.Ref); err != nil || len(lines) != 1 {
		i.Errorf("%+v, %v", lines, err)
	}
	if err := i.p.Till.DeleteDraft(i.ctx, first.Ref); err != nil {
		i.Error(err)
	}
	if found, err := i.p.Till.FindInvoices(i.ctx, i.customer, ask.Invoice, time.Now().Add(-time.Hour)); err != nil || len(found) != 0 {
		i.Errorf("%+v, %v", found, err)
	}
}

// behind: an invoice is found behind however many newer ones, and is none of those since a later moment.
func (i invoices) behind() {
	const newer = 130
	ask := i.ask(false)
	first, err := i.p.Till.CreateInvoice(i.ctx, ask)
	if err != nil {
		i.Fatal(err)
	}
	for range newer {
		if _, err := i.p.Till.CreateInvoice(i.ctx, i.ask(false)); err != nil {
			i.Fatal(err)
		}
	}
	if found, err := i.p.Till.FindInvoices(i.ctx, i.customer, ask.Invoice, first.Created); err != nil || len(found) != 1 || found[0].Ref != first.Ref {
		i.Errorf("%+v, %v", found, err)
	}
	if found, err := i.p.Till.FindInvoices(i.ctx, i.customer, ask.Invoice, first.Created.Add(time.Hour)); err != nil || len(found) != 0 {
		i.Errorf("of later: %+v, %v", found, err)
	}
}

func (i invoices) pages() {
	cents := make([]int64, 120)
	for n := range cents {
		cents[n] = int64(n + 1)
	}
	_, f := i.final(false, cents...)
	if f.Total != 120*121/2 {
		i.Errorf("%+v", f)
	}
}

func (i invoices) declined() {
	for card, auth := range map[string]bool{DecliningCard: false, AuthCard: true} {
		_, f := i.final(true, 7_00)
		got, err := i.p.Till.ChargeInvoice(i.ctx, f.Ref, i.p.Keep(i.T, i.customer, card), 1)
		if err != nil || got.Status != invoice.TillOpen || got.Problem == "" || got.NeedsAuth != auth || got.Paid != 0 {
			i.Errorf("%s: %+v, %v", card, got, err)
		}
		if got, err = i.p.Till.ChargeInvoice(i.ctx, f.Ref, i.p.Keep(i.T, i.customer, GoodCard), 2); err != nil || got.Status != invoice.TillPaid {
			i.Errorf("%s, then a good one: %+v, %v", card, got, err)
		}
	}
}
