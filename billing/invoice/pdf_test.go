package invoice_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// sample is an invoice with so many lines of usage.
func sample(lines int) *invoice.Invoice {
	month := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	i := &invoice.Invoice{ID: ids.At(month), State: invoice.Open, Month: month, Number: "INV-2027-00042", FinalizedAt: month.AddDate(0, 1, 2), DueAt: month.AddDate(0, 1, 16),
		Seller: invoice.Seller{Name: "Millwright Inference GmbH", Address: "Am Mühlgraben 7\n10115 Berlin\nGermany", TaxID: "DE 123 456 789", Email: "billing@millwright.example",
			Terms: "Bank transfer to DE02 1203 0000 0000 2020 51, Millwright Inference GmbH."},
		BillTo: invoice.Details{LegalName: "Łódź Rocketry & Ćma Sp. z o.o.", Address: "ul. Długa 12/4\n90-001 Łódź", Country: "PL", TaxID: "PL 725 18 01 126", Email: "ap@rocketry.example", PurchaseOrder: "PO-2026-7781"}}
	classes := []string{"input", "cached", "output", "reasoning"}
	var model, version ids.ID
	for n := range lines {
		if n%4 == 0 {
			model, version = ids.At(month), ids.At(month.AddDate(0, -1, n/4%28))
		}
		unit := money.Pico(150_000 * (n%4 + 1))
		l := invoice.Line{Kind: invoice.UsageLine, Month: month, Model: model, Name: fmt.Sprintf("acme/model-%d", n/4),
			Version: version, Class: classes[n%4], Quantity: int64(n+1) * 1_234_567, Unit: &unit, Cents: int64(n+1) * 18_51}
		if n/4 == 1 {
			l.Name = "acme-research-laboratories-of-a-long-name/a-model-whose-name-says-everything-about-it-70b-instruct-128k-preview-2026-11-30-quantized-fp8-dynamic"
			l.Service, l.Unit = "flex", nil
		}
		i.Lines = append(i.Lines, l)
		i.Total += l.Cents
	}
	for _, l := range []invoice.Line{{Kind: invoice.RoundingLine, Cents: 0}, {Kind: invoice.OverrunLine, Cents: -12_34}, {Kind: invoice.PromoLine, Cents: -5_00}} {
		l.Month = month
		i.Lines = append(i.Lines, l)
		i.Total += l.Cents
	}
	late := i.Lines[0]
	late.Month = month.AddDate(0, -1, 0)
	i.Lines = append(i.Lines, late)
	i.Total += late.Cents
	i.Subtotal = i.Total
	return i
}

var pageObject = regexp.MustCompile(`/Type /Page\b[^s]`)

// From one line to two thousand: every page is full, none is empty, and the same invoice gives the same document.
func TestDocumentsOfEverySize(t *testing.T) {
	for lines, pages := range map[int]int{1: 1, 8: 1, 60: 3, 2000: 68} {
		text, err := invoice.Document(sample(lines))
		if err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("MILLRACE_KEEP_DOCUMENTS"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("invoice-%d.pdf", lines)), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(pageObject.FindAll(text, -1)); n != pages || !bytes.HasPrefix(text, []byte("%PDF-")) || len(text) > 1<<20 {
			t.Errorf("%d lines: %d pages, want %d; %d bytes", lines, n, pages, len(text))
		}
	}
	i := sample(3)
	one, err := invoice.Document(i)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := invoice.Document(i); err != nil || len(stream.FindAll(one, -1)) < 3 || sorted(one) != sorted(two) {
		t.Errorf("the same invoice twice: %d and %d bytes differ, %v", len(one), len(two), err)
	}
}

var stream = regexp.MustCompile(`(?s)\nstream\r?\n(.*?)\r?\nendstream`)

// sorted is what a document's objects hold, in order: the library numbers its fonts in any.
func sorted(text []byte) string {
	var held []string
	for _, m := range stream.FindAllSubmatch(text, -1) {
		held = append(held, string(m[1]))
	}
	slices.Sort(held)
	return strings.Join(held, "\n")
}

// A credit note says what it takes off, and where that went.
func TestDocumentsOfCreditNotes(t *testing.T) {
	i := sample(3)
	n := invoice.Note{Number: "CN-2027-00003", Cents: 1_250_00, Relieved: 1_000_00, Back: invoice.BackAsCredit, At: i.FinalizedAt.AddDate(0, 0, 3),
		Reason: strings.Repeat("The model was away for some hours of the month, as our status page says. ", 4)}
	text, err := invoice.NoteDocument(i, &n)
	if err != nil || len(pageObject.FindAll(text, -1)) != 1 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	if dir := os.Getenv("MILLRACE_KEEP_DOCUMENTS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, "note.pdf"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What people write may be long, strange or nothing at all.
func TestDocumentsOfStrangeParties(t *testing.T) {
	i := sample(3)
	i.BillTo = invoice.Details{LegalName: strings.Repeat("無", 66), Address: strings.Repeat("W", 500), TaxID: "\u202e", PurchaseOrder: strings.Repeat("x", 100)}
	i.Seller = invoice.Seller{Name: strings.Repeat("Very Long Name ", 20), Terms: strings.Repeat("Pay. ", 400)}
	if _, err := invoice.Document(i); err != nil {
		t.Error(err)
	}
	i.BillTo.Address, i.Seller.Address = strings.Repeat("x\n", 250), strings.Repeat("y\n", 250) // of before there was a limit
	if text, err := invoice.Document(i); err != nil || len(pageObject.FindAll(text, -1)) > 4 {
		t.Errorf("%d pages, %v", len(pageObject.FindAll(text, -1)), err)
	}
	i.BillTo, i.Seller, i.Lines = invoice.Details{}, invoice.Seller{}, nil
	if _, err := invoice.Document(i); err != nil {
		t.Error(err)
	}
}

// Only a final invoice is a document, and only for whom it is.
func TestADocumentIsOfAFinalInvoice(t *testing.T) {
	w := newWorld(t)
	c, i := w.billed(7)
	if err := w.invoices.SetDetails(t.Context(), operator, c.org, invoice.Details{LegalName: "Acme Rockets Ltd", Address: "1 Launch Pad\r\nFlorida", Country: "us"}); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := w.invoices.PDF(t.Context(), tenants.Actor{Org: c.org, Role: tenants.Billing}, c.org, i.ID, &text); err != nil || !bytes.HasPrefix(text.Bytes(), []byte("%PDF-")) {
		t.Errorf("%d bytes, %v", text.Len(), err)
	}
	out, err := w.invoices.CreditNote(t.Context(), operator, c.org, i.ID, invoice.NoteInput{Cents: 1_00, Reason: "A present.", IdempotencyKey: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var note bytes.Buffer
	if err := w.invoices.NotePDF(t.Context(), tenants.Actor{Org: c.org, Role: tenants.Billing}, c.org, i.ID, out.Invoice.Notes[0].ID, &note); err != nil || !bytes.HasPrefix(note.Bytes(), []byte("%PDF-")) {
		t.Errorf("%d bytes of a note, %v", note.Len(), err)
	}
	if err := w.invoices.NotePDF(t.Context(), operator, c.org, i.ID, ids.New(), &note); !fault.Is(err, fault.NotFound) {
		t.Errorf("a note that is none: %v", err)
	}
	if err := w.invoices.PDF(t.Context(), tenants.Actor{Org: ids.New(), Role: tenants.Owner}, c.org, i.ID, &text); !fault.Is(err, fault.NotFound) {
		t.Errorf("by a stranger: %v", err)
	}
	if got := c.invoice(w.month(1)); got.BillTo.LegalName != "Acme Rockets" || got.Seller.Name != "Millwright GmbH" {
		t.Errorf("the final invoice is to %+v, from %+v", got.BillTo, got.Seller)
	}
	if d, err := w.invoices.Details(t.Context(), operator, c.org); err != nil || d.Country != "US" || d.Address != "1 Launch Pad\nFlorida" {
		t.Errorf("%+v, %v", d, err)
	}
}

// What no document could show is refused, by the name of its field.
func TestDetailsThatNoDocumentCanShow(t *testing.T) {
	w := newWorld(t)
	c := w.customer(money.NanoPerUSD)
	for _, x := range []struct {
		param, word string
		d           invoice.Details
	}{
		{"country", "two letters", invoice.Details{Country: "1?"}}, {"country", "bytes", invoice.Details{Country: "Germany"}}, {"email", "one e-mail", invoice.Details{Email: "nobody"}},
		{"legal_name", "legal name", invoice.Details{LegalName: "a\x00b"}}, {"legal_name", "legal name", invoice.Details{LegalName: "Acme \u202egnihsihP"}},
		{"legal_name", "legal name", invoice.Details{LegalName: "a\xffb"}}, {"legal_name", "legal name", invoice.Details{LegalName: "a\nb"}},
		{"tax_id", "tax id", invoice.Details{TaxID: "1\n2"}}, {"tax_id", "tax id", invoice.Details{TaxID: "1\u200b2"}}, {"purchase_order", "purchase order", invoice.Details{PurchaseOrder: "PO\u0085 1"}},
		{"email", "e-mail", invoice.Details{Email: "a\u2066@b.example"}}, {"address", "500", invoice.Details{Address: strings.Repeat("x", 501)}},
		{"address", "control", invoice.Details{Address: "1 Pad\u2028Florida"}}, {"address", "250 lines", invoice.Details{Address: strings.Repeat("x\n", 249) + "x"}},
		{"address", "9 lines", invoice.Details{Address: strings.Repeat("x\n", 8) + "x"}}, {"address", "Line 2", invoice.Details{Address: "x\n" + strings.Repeat("y", 101)}},
	} {
		err := w.invoices.SetDetails(t.Context(), operator, c.org, x.d)
		if f := fault.Of(err); !fault.Is(err, fault.Invalid) || f.Param != x.param || !strings.Contains(f.Message, x.word) {
			t.Errorf("%+v: %v of %q, want %q of %q", x.d, err, f.Param, x.word, x.param)
		}
	}
	c.must(w.invoices.SetDetails(t.Context(), operator, c.org, invoice.Details{Address: strings.Repeat(strings.Repeat("é", 30)+"\n", 7) + "x"}))
	c.must(w.invoices.SetDetails(t.Context(), operator, c.org, invoice.Details{Address: "x\n" + strings.Repeat("y", 100)}))
}
