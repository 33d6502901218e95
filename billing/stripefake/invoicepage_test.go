package stripefake_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

// A person pays an invoice on its page: declined, asked by the bank, through; and it is over.
func TestTheInvoicesPage(t *testing.T) {
	fake, ref := finalInvoice(t)
	pages := httptest.NewServer(fake.Pages())
	t.Cleanup(pages.Close)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	read := func(r *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(body)
	}
	at := pages.URL + "/invoice/" + ref
	click := func(form url.Values) (int, string) { t.Helper(); return read(client.PostForm(at, form)) }

	if status, body := read(client.Get(at)); status != 200 || !strings.Contains(body, "Invoice INV-1") || !strings.Contains(body, "$12.34") || !strings.Contains(body, "No money moves") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := click(url.Values{"number": {stripefake.CardNoFunds}}); status != 422 || !strings.Contains(body, "insufficient funds") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := click(url.Values{"number": {"12"}}); status != 422 || !strings.Contains(body, "not a card number") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := click(url.Values{"number": {stripefake.CardAuthAlways}}); status != 422 || !strings.Contains(body, "Yes, it is me") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := click(url.Values{"number": {stripefake.CardAuthAlways}, "confirmed": {"no"}}); status != 422 || !strings.Contains(body, "did not confirm") {
		t.Errorf("%d %s", status, body)
	}
	if v := fake.Invoices()[0]; v.Status != "open" {
		t.Fatalf("%+v", v)
	}
	if status, _ := click(url.Values{"number": {stripefake.CardAuthAlways}, "confirmed": {"yes"}}); status != http.StatusSeeOther {
		t.Errorf("%d", status)
	}
	if status, body := read(client.Get(at)); status != 200 || !strings.Contains(body, "Invoice INV-1 is paid") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := click(url.Values{"number": {stripefake.CardGood}}); strings.Contains(body, "Pay $") || status/100 == 3 {
		t.Errorf("paid twice: %d %s", status, body)
	}
	if v := fake.Invoices()[0]; v.Status != "paid" || v.Remaining != 0 {
		t.Errorf("%+v", v)
	}
	if status, _ := read(client.Get(pages.URL + "/invoice/in_none")); status != 404 {
		t.Errorf("%d", status)
	}
	status, body := read(client.Get(at + "/pdf"))
	if status != 200 || !strings.HasPrefix(body, "%PDF-1.4") || !strings.Contains(body, "(Tokens \\(output\\)   $12.34) Tj") || !strings.HasSuffix(body, "%%EOF\n") {
		t.Errorf("%d %s", status, body)
	}
	if i := strings.LastIndex(body, "startxref\n"); i < 0 || !bytes.HasPrefix([]byte(body)[number(body[i+len("startxref\n"):]):], []byte("xref\n")) {
		t.Errorf("the PDF's table is not where it says: %s", body)
	}
	r, err := http.NewRequest(http.MethodPost, at, strings.NewReader("number="+stripefake.CardGood))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if status, _ := read(client.Do(r)); status != http.StatusForbidden {
		t.Errorf("from another site: %d", status)
	}
}

func number(s string) (n int) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return n
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// finalInvoice makes an invoice that waits for money.
func finalInvoice(t *testing.T) (*stripefake.Server, string) {
	t.Helper()
	fake, err := stripefake.New(stripefake.Config{Clock: clock.System, Key: "sk_test_0123456789abcdef", Secret: "whsec_0123456789abcdef", PageURL: "http://pay.example",
		Save: func(b []byte) error { saved.Reset(); saved.Write(b); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(fake.API())
	t.Cleanup(api.Close)
	g, err := stripegw.New(stripegw.Config{Key: "sk_test_0123456789abcdef", Webhooks: []stripegw.Secret{"whsec_0123456789abcdef"}, URL: api.URL, Pace: 1000})
	if err != nil {
		t.Fatal(err)
	}
	customer, err := g.CreateCustomer(t.Context(), topup.NewCustomer{Org: ids.New(), Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	till := g.Till()
	draft, err := till.CreateInvoice(t.Context(), invoice.TillInvoice{Org: ids.New(), Invoice: ids.New(), Number: "INV-1", Attempt: 1, Customer: customer, Days: 14})
	if err != nil {
		t.Fatal(err)
	}
	if err := till.AddLine(t.Context(), draft, invoice.TillLine{Key: "l1", Text: "Tokens (output)", Cents: 12_34}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := till.FinalizeInvoice(t.Context(), draft.Ref, 1); err != nil {
		t.Fatal(err)
	}
	return fake, draft.Ref
}

// An invoice is overdue when its days are over, by the fake's clock, and is told of once; its memory outlives the process.
func TestAnInvoiceIsOverdueOnce(t *testing.T) {
	fake, _ := finalInvoice(t)
	overdue := func(s *stripefake.Server) (n int) {
		for _, m := range s.Messages() {
			if m.Type == "invoice.overdue" {
				n++
			}
		}
		return n
	}
	fake.Advance(13 * 24 * time.Hour)
	if overdue(fake) != 0 {
		t.Error("overdue too early")
	}
	for range 3 {
		fake.Advance(2 * 24 * time.Hour)
	}
	if n := overdue(fake); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestInvoicesAreRemembered(t *testing.T) {
	fake, ref := finalInvoice(t)
	fake.Endpoint("http://x.example/hooks/stripe", "", []string{"*"}) // saves
	again, err := stripefake.New(stripefake.Config{Clock: clock.System, Key: "k", Secret: "s", PageURL: "http://pay.example", Saved: saved.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	if was, is := fake.Invoices(), again.Invoices(); !reflect.DeepEqual(was, is) || is[0].ID != ref {
		t.Errorf("%+v became %+v", was, is)
	}
	if problem := again.PayInvoice(ref, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Error(problem)
	}
}

// saved is what the fake of finalInvoice kept last.
var saved bytes.Buffer
