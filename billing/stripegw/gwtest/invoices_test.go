package gwtest_test

import (
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/billing/stripegw/gwtest"
	"millrace/billing/topup"
	"millrace/internal/clock"
	"millrace/internal/ids"
)

func customerOf(t *testing.T, g *stripegw.Gateway) string {
	t.Helper()
	id, err := g.CreateCustomer(t.Context(), topup.NewCustomer{Org: ids.New(), Name: "Millrace conformance", Email: "conformance@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestInvoicesOfTheFake(t *testing.T) {
	fake, err := stripefake.New(stripefake.Config{Clock: clock.System, Key: fakeKey, Secret: secret, PageURL: "http://pay.example"})
	if err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(fake.API())
	t.Cleanup(api.Close)
	g := gateway(t, fakeKey, api.URL, 1000)
	numbers := map[string]string{gwtest.GoodCard: stripefake.CardGood, gwtest.DecliningCard: stripefake.CardDeclinesKept, gwtest.AuthCard: stripefake.CardAuthAlways}
	gwtest.RunInvoices(t, gwtest.InvoiceProvider{Till: g.Till(), Customer: func(t *testing.T) string { t.Helper(); return customerOf(t, g) },
		Keep: func(t *testing.T, customer, card string) string {
			t.Helper()
			s, err := g.OpenCheckout(t.Context(), topup.Checkout{Key: ids.New().String(), Customer: customer, Done: "http://x.example", Back: "http://x.example"})
			if err != nil {
				t.Fatal(err)
			}
			if problem := fake.Pay(s.ID, stripefake.Way{Number: numbers[card], Confirmed: true}); problem != "" {
				t.Fatal(problem)
			}
			if s, err = g.Session(t.Context(), s.ID); err != nil || s.Card == nil {
				t.Fatalf("%+v, %v", s, err)
			}
			return s.Card.Method
		},
		Refund: func(t *testing.T, payment string, cents int64) {
			t.Helper()
			if err := fake.Refund(payment, cents); err != nil {
				t.Fatal(err)
			}
		},
		PayPage: func(t *testing.T, ref string) {
			t.Helper()
			pages := httptest.NewServer(fake.Pages())
			t.Cleanup(pages.Close)
			resp, err := pages.Client().PostForm(pages.URL+"/invoice/"+ref, url.Values{"number": {stripefake.CardGood}})
			if err == nil {
				_ = resp.Body.Close()
			} else if !strings.Contains(err.Error(), "pay.example") { // it leads back to the address that people know
				t.Fatal(err)
			}
		}})
}

func TestTheShapeOfStripesInvoices(t *testing.T) {
	g := gateway(t, fakeKey, startMock(t), 1000)
	gwtest.RunInvoices(t, gwtest.InvoiceProvider{Till: g.Till(), Shape: true, Customer: func(t *testing.T) string { t.Helper(); return customerOf(t, g) },
		Keep: func(*testing.T, string, string) string { return "pm_card_visa" }})
}

func TestInvoicesOfStripeItself(t *testing.T) {
	key := os.Getenv(keyEnv)
	if key == "" {
		t.Skip(keyEnv + " is not set")
	}
	if !strings.HasPrefix(key, "sk_test_") {
		t.Fatal(keyEnv + " must be a test account's secret key (sk_test_…)")
	}
	s, g := stripe{key}, gateway(t, key, "", 0)
	tokens := map[string]string{gwtest.GoodCard: "pm_card_visa", gwtest.DecliningCard: "pm_card_chargeCustomerFail", gwtest.AuthCard: "pm_card_authenticationRequired"}
	gwtest.RunInvoices(t, gwtest.InvoiceProvider{Till: g.Till(), Customer: func(t *testing.T) string { t.Helper(); return customerOf(t, g) },
		Keep: func(t *testing.T, customer, card string) string {
			t.Helper()
			return s.post(t, "/v1/payment_methods/"+tokens[card]+"/attach", url.Values{"customer": {customer}})
		},
		Refund: func(t *testing.T, payment string, cents int64) {
			t.Helper()
			s.post(t, "/v1/refunds", url.Values{"payment_intent": {payment}, "amount": {strconv.FormatInt(cents, 10)}})
		}})
}
