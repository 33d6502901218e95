package topup_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// visit is what a person does on a page of the payment provider: form=nil looks at it.
func (w *world) visit(page string, form url.Values) (status int, body string) {
	w.t.Helper()
	r := httptest.NewRequest(http.MethodGet, page, nil)
	if form != nil {
		r = httptest.NewRequest(http.MethodPost, page, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer := httptest.NewRecorder()
	w.fake.Pages().ServeHTTP(answer, r)
	text, err := io.ReadAll(answer.Body)
	w.must(err)
	return answer.Code, string(text)
}

func (w *world) portal() string {
	w.t.Helper()
	page, err := w.topups.Portal(context.Background(), w.owner, w.org)
	w.must(err)
	return page
}

// A card that is removed in the portal is not charged, here as there.
func TestACardIsRemovedInThePortal(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 5, 100, 500)
	page := w.portal()
	if status, body := w.visit(page, nil); status != http.StatusOK || !strings.Contains(body, "visa …4242") || !strings.Contains(body, consoleURL+"/billing/payment") {
		t.Errorf("%d: %s", status, body)
	}
	card := w.method()
	if status, _ := w.visit(page, url.Values{"remove_card": {card}}); status != http.StatusSeeOther {
		t.Errorf("removing answers %d", status)
	}
	if _, body := w.visit(page, nil); strings.Contains(body, "4242") || !strings.Contains(body, "No card is kept") {
		t.Errorf("after the removal: %s", body)
	}
	w.hear(w.fake.Messages())
	if w.kept() != noCard || w.paused() != topup.PauseNoCard || count(w.mails(), "Auto-recharge is paused") != 1 {
		t.Errorf("%q is kept, paused %q, mails %q", w.kept(), w.paused(), w.mails())
	}
	if status, _ := w.visit(page, url.Values{"remove_card": {card}}); status != http.StatusSeeOther {
		t.Errorf("removing it again answers %d", status)
	}
}

func TestWhoOpensThePortal(t *testing.T) {
	w := newWorld(t)
	w.giveCard(stripefake.CardGood)
	mine, owner, org := w.method(), w.owner, w.org
	w.newOrg()
	if _, body := w.visit(w.portal(), url.Values{"remove_card": {mine}}); strings.Contains(body, "4242") {
		t.Errorf("another customer's card is shown: %s", body)
	}
	theirs, other := w.owner, w.org
	w.owner, w.org = owner, org
	if _, body := w.visit(w.portal(), nil); !strings.Contains(body, "4242") {
		t.Error("another customer removed the card")
	}
	for name, by := range map[string]tenants.Actor{"viewer": {User: ids.New(), Org: w.org, Role: tenants.Viewer}, "another organization's owner": theirs} {
		if page, err := w.topups.Portal(t.Context(), by, w.org); err == nil || !fault.Is(err, fault.Forbidden) && !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %q, %v", name, page, err)
		}
	}
	if _, err := w.topups.Portal(t.Context(), theirs, other); err != nil {
		t.Error(err)
	}
	if status, _ := w.visit("http://pay.example/portal/bps_test_none", url.Values{"remove_card": {mine}}); status != http.StatusNotFound {
		t.Errorf("a link that nobody made answers %d", status)
	}
}

// A customer who was deleted at the payment provider is made anew, for the portal and for a card.
func TestAGoneCustomerOpensPages(t *testing.T) {
	w := newWorld(t)
	w.giveCard(stripefake.CardGood)
	w.exec("update payment_customers set customer_id = 'cus_gone_1' where org_id = $1", w.org)
	if status, _ := w.visit(w.portal(), nil); status != http.StatusOK {
		t.Errorf("the portal answers %d", status)
	}
	w.exec("update payment_customers set customer_id = 'cus_gone_2' where org_id = $1", w.org)
	w.giveCard(stripefake.CardMastercard)
	if w.kept() != mastercard {
		t.Errorf("%q is kept", w.kept())
	}
}

// Tax ids are between customers and the payment provider; what it tells about them troubles nobody.
func TestTaxIDsAreThePaymentProviders(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(50, false)
	pay := "http://pay.example/pay/" + session
	if status, body := w.visit(pay, nil); status != http.StatusOK || !strings.Contains(body, `name="tax_value"`) || !strings.Contains(body, "</html>") {
		t.Errorf("%d: %s", status, body)
	}
	form := url.Values{"number": {stripefake.CardAuthAlways}, "tax_kind": {"eu_vat"}, "tax_value": {"DE123456789"}}
	if _, body := w.visit(pay, form); !strings.Contains(body, `type="hidden" name="tax_value" value="DE123456789"`) || !strings.Contains(body, "</html>") {
		t.Errorf("the bank's question loses the tax id: %s", body)
	}
	form.Set("confirmed", "yes")
	if status, body := w.visit(pay, form); status != http.StatusSeeOther {
		t.Fatalf("paying with a tax id answers %d: %s", status, body)
	}
	page := w.portal()
	_, body := w.visit(page, nil)
	if !strings.Contains(body, "DE123456789 (DE), verified") || !strings.Contains(body, "</html>") {
		t.Errorf("%s", body)
	}
	if status, body := w.visit(page, url.Values{"tax_kind": {"gb_vat"}, "tax_value": {"<b>"}}); status != http.StatusUnprocessableEntity || !strings.Contains(body, "not a UK VAT number") || strings.Contains(body, "<b>") {
		t.Errorf("%d: %s", status, body)
	}
	_, tail, _ := strings.Cut(body, `name="remove_tax" value="`)
	id, _, _ := strings.Cut(tail, `"`)
	if status, _ := w.visit(page, url.Values{"remove_tax": {id}}); status != http.StatusSeeOther {
		t.Errorf("removing %q answers %d", id, status)
	}
	if _, body := w.visit(page, nil); strings.Contains(body, "DE123456789") {
		t.Errorf("it is still there: %s", body)
	}
	w.hear(w.fake.Messages())
	if got := w.fulfil(x.ID); got.State != topup.Succeeded {
		t.Errorf("%+v", got)
	}
	recent, err := w.inbox.Recent(t.Context(), operator, 200)
	seen := map[string]string{}
	for _, e := range recent {
		seen[e.Type] = e.State
	}
	for _, kind := range []string{"created", "updated", "deleted"} {
		if got := seen["customer.tax_id."+kind]; err != nil || got != "ignored" {
			t.Errorf("customer.tax_id.%s is %q, %v", kind, got, err)
		}
	}
	w.sound()
}
