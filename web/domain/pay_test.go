package domain_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
	"millrace/internal/ids"
)

// till gives the shop a payment provider that is not real.
func (s *shop) till() (*stripefake.Server, *invoice.Collector) {
	s.t.Helper()
	const key, secret = "sk_test_0123456789abcdef", "whsec_0123456789abcdef"
	fake, err := stripefake.New(stripefake.Config{Clock: s.clock, Key: key, Secret: secret, PageURL: "http://pay.example"})
	s.must(err)
	api := httptest.NewServer(fake.API())
	s.t.Cleanup(api.Close)
	gateway, err := stripegw.New(stripegw.Config{Key: key, Webhooks: []stripegw.Secret{secret}, URL: api.URL, Pace: 100_000})
	s.must(err)
	topups := topup.New(topup.Config{DB: s.db, Clock: s.clock, Notify: s.bus, Gateway: gateway, PublicURL: publicURL})
	collect := invoice.NewCollector(s.deps.Invoices, invoice.CollectConfig{Till: gateway.Till(), Customers: topups, PublicURL: publicURL})
	s.deps.Topups, s.deps.Collect, s.deps.Inbox = topups, collect, inbox.New(s.db, s.clock, inbox.Dispatch(topups, collect))
	s.open()
	return fake, collect
}

// giveCard keeps a card by the pages.
func (s *shop) giveCard(fake *stripefake.Server, number string) {
	s.t.Helper()
	to, err := s.site.Pay.AddCard(s.as(s.owner), s.viewer(s.owner), ids.New())
	s.must(err)
	if problem := fake.Pay(path.Base(to), stripefake.Way{Number: number, Confirmed: true}); problem != "" {
		s.t.Fatal(problem)
	}
	if status, _, _ := s.page(s.owner, paymentPage+"?session="+path.Base(to), nil); status != http.StatusSeeOther {
		s.t.Fatalf("back from the card's page: %d", status)
	}
}

const (
	paymentPage = "/billing/payment"
	chargePage  = paymentPage + "/invoices"
)

// says checks what a page says; a text after "!" must not be there.
func (s *shop) says(who, address string, texts ...string) string {
	s.t.Helper()
	status, body, _ := s.page(who, address, nil)
	if status != http.StatusOK {
		s.t.Errorf("%s answers %d", address, status)
	}
	body = html.UnescapeString(body)
	for _, text := range texts {
		text, not := strings.CutPrefix(text, "!")
		if strings.Contains(body, text) == not {
			s.t.Errorf("%s: %q is there: %v", address, text, !not)
		}
	}
	return body
}

// sends submits a form and checks the answer's status.
func (s *shop) sends(who, address string, want int, fields ...string) (body string) {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	status, body, _ := s.page(who, address, form)
	if status != want {
		s.t.Errorf("%s answers %d, want %d", address, status, want)
	}
	return html.UnescapeString(body)
}

// sentence is what the page asks to agree to.
func (s *shop) sentence() string {
	s.t.Helper()
	_, rest, _ := strings.Cut(s.says(s.owner, chargePage), `name="sentence" value="`)
	out, _, found := strings.Cut(rest, `"`)
	if !found {
		s.t.Fatal("no sentence to agree to")
	}
	return out
}

func TestInvoicesAreChargedToTheCardByAForm(t *testing.T) {
	s := newShop(t)
	fake, collect := s.till()
	s.says(s.owner, paymentPage, "A new invoice is sent to you", "Give a card first to have it charged", "!"+chargePage)
	for _, address := range []string{chargePage, chargePage + "/stop"} {
		s.sends(s.viewing, address, http.StatusForbidden, "sentence", "x")
	}
	if status, _, to := s.page(s.owner, chargePage, nil); status != http.StatusSeeOther || to != paymentPage {
		t.Errorf("without a card: %d, %q", status, to)
	}
	s.sends(s.owner, chargePage, http.StatusSeeOther, "sentence", "x") // there is nothing to agree to

	s.giveCard(fake, stripefake.CardMastercard)
	old := s.sentence()
	s.clock.Advance(time.Minute)
	s.giveCard(fake, stripefake.CardGood)
	if body := s.sends(s.owner, chargePage, http.StatusUnprocessableEntity, "sentence", old); !strings.Contains(body, "Nothing was agreed to") || !strings.Contains(body, "visa …4242") {
		t.Error("a sentence about the card before is agreed to")
	}
	s.says(s.owner, paymentPage, "A new invoice is sent to you")
	agreed := s.sentence()
	s.sends(s.owner, chargePage, http.StatusSeeOther, "sentence", agreed)
	s.says(s.owner, paymentPage, "A new invoice is charged to visa …4242", "Agreed by dana@acme.example", "“"+agreed+"”", "Stop charging the card")
	s.says(s.owner, paymentPage+"/card/remove", "Your invoices are sent to you again")

	october := time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC)
	s.invoice("INV-7", october)
	s.must(collect.Turn(t.Context()))
	if all := fake.Invoices(); len(all) != 1 || all[0].Status != "paid" {
		t.Errorf("with a consent: %+v", all)
	}
	s.sends(s.owner, chargePage+"/stop", http.StatusSeeOther)
	s.says(s.owner, paymentPage, "A new invoice is sent to you", "Charge the card", "!Agreed by")
	s.invoice("INV-8", october.AddDate(0, -1, 0))
	s.must(collect.Turn(t.Context()))
	if all := fake.Invoices(); len(all) != 2 || all[1].Status != "open" {
		t.Errorf("stopped: %+v", all)
	}
}

func TestStartingAnInvoiceOver(t *testing.T) {
	s := newShop(t)
	fake, collect := s.till()
	s.says(s.staff, "/admin/payments", "None was compared yet")
	id := s.invoice("INV-7", time.Date(2026, time.October, 1, 0, 0, 0, 0, time.UTC))
	address := "/admin/customers/" + ids.Format(ids.Org, s.acme.ID) + "/invoices/" + ids.Format(ids.Invoice, id)
	s.must(collect.Turn(t.Context()))
	s.says(s.staff, address, "At the payment provider", "!Start over")
	if body := s.sends(s.staff, address+"/start-over", http.StatusUnprocessableEntity); !strings.Contains(body, "Void it there first") {
		t.Error("what is final there is started over")
	}
	s.must(fake.VoidInvoice(fake.Invoices()[0].ID))
	s.clock.Advance(10 * time.Minute)
	_, err := collect.Compare(t.Context())
	s.must(err)
	s.says(s.staff, "/admin/payments", "1 invoice of the last 100 days", "it is void there, and $12.34 are due here", `href="`+address+`"`)
	s.sends(s.staff, address+"/retry", http.StatusSeeOther)
	s.says(s.staff, address, "Stuck at the payment provider", "it was voided", "Try again", "Start over at the payment provider", "so that the customer is never asked twice")
	s.sends(s.owner, address+"/start-over", http.StatusNotFound)
	s.sends(s.staff, address+"/start-over", http.StatusSeeOther)
	s.says(s.staff, address, "!Stuck")
	if all := fake.Invoices(); len(all) != 2 || all[1].Status != "open" {
		t.Errorf("started over: %+v", all)
	}
}
