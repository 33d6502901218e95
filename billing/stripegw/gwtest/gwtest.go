// Package gwtest is what a payment provider must do for Millrace, as tests: one suite for the fake, for a schema check
// (stripe-mock) and for Stripe itself.
//
// It owns the expectations, not the providers. A provider without a memory (Shape) is only asked whether it takes our
// parameters; everything that depends on what was said before is left out there.
package gwtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/billing/inbox"
	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Cards that a provider can be asked to keep.
const (
	GoodCard      = "good"
	DecliningCard = "declining" // can be kept, and is declined when it is charged
	AuthCard      = "auth"      // wants the customer there every time
)

// Provider is what the suite runs against.
type Provider struct {
	Gateway topup.Gateway
	Shape   bool                                                      // it has no memory
	Keep    func(t *testing.T, customer, card string) (method string) // keeps a card without a page
	Refund  func(t *testing.T, payment string, cents int64)           // as somebody would in its own pages
	Pay     func(t *testing.T, session string)                        // a person on a page; nil = there is none
}

const patience = 2 * time.Minute

// Run runs the suite.
func Run(t *testing.T, p Provider) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := p.Gateway
	if !g.Test() {
		t.Fatal("this is a live account")
	}
	customer, err := g.CreateCustomer(ctx, topup.NewCustomer{Org: ids.New(), Name: "Millrace conformance", Email: "conformance@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a page to pay", func(t *testing.T) { pays(ctx, t, p, customer) })
	t.Run("a page to give a card", func(t *testing.T) { givesCard(ctx, t, p, customer) })
	t.Run("the portal", func(t *testing.T) {
		if url, err := g.Portal(ctx, customer, "https://console.example/billing/payment"); err != nil && !fault.Is(err, fault.Upstream) || err == nil && url == "" {
			t.Errorf("%q, %v", url, err) // an account without a configured portal refuses
		}
	})
	t.Run("a kept card is charged", func(t *testing.T) { charges(ctx, t, p, customer) })
	t.Run("lists", func(t *testing.T) { lists(ctx, t, p) })
	if p.Shape {
		return
	}
	t.Run("a customer is made once", func(t *testing.T) {
		c := topup.NewCustomer{Org: ids.New(), Name: "Twice"}
		first, err := g.CreateCustomer(ctx, c)
		second, err2 := g.CreateCustomer(ctx, c)
		if err != nil || err2 != nil || first != second {
			t.Errorf("%q, %q, %v, %v", first, second, err, err2)
		}
	})
	t.Run("declines are payments", func(t *testing.T) { declines(ctx, t, p, customer) })
	t.Run("the payment that was paid is found", func(t *testing.T) { findsPaid(ctx, t, p, customer) })
	t.Run("money goes back", func(t *testing.T) { goesBack(ctx, t, p, customer) })
	t.Run("what is not there", func(t *testing.T) { notThere(ctx, t, p, customer) })
}

// notThere: an id that is not known is NotFound, whether it stands in the path of a request or in its parameters.
func notThere(ctx context.Context, t *testing.T, p Provider, customer string) {
	g, gone, id := p.Gateway, "cus_none", ids.New()
	for what, ask := range map[string]func() error{
		"a page":                          func() error { _, err := g.Session(ctx, "cs_test_none"); return err },
		"a payment":                       func() error { _, err := g.Payment(ctx, "pi_none"); return err },
		"a top-up's payment":              func() error { _, err := g.FindPayment(ctx, customer, id); return err },
		"a payment of nobody":             func() error { _, err := g.FindPayment(ctx, gone, id); return err },
		"a customer who is to pay":        func() error { _, err := g.OpenCheckout(ctx, checkout(gone, id, 12_34)); return err },
		"a customer who opens the portal": func() error { _, err := g.Portal(ctx, gone, "https://console.example"); return err },
		"a customer who is charged": func() error {
			method := p.Keep(t, customer, GoodCard)
			_, err := g.Charge(ctx, topup.Charge{Key: "gwtest:" + id.String() + ":gone", Customer: gone, Method: method, Topup: id, Attempt: 1, Cents: 12_34})
			return err
		},
		"a card that is charged": func() error {
			_, err := g.Charge(ctx, topup.Charge{Key: "gwtest:" + id.String() + ":card", Customer: customer, Method: "pm_none", Topup: id, Attempt: 1, Cents: 12_34})
			return err
		},
	} {
		if err := ask(); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v, want NotFound", what, err)
		}
	}
}

func checkout(customer string, id ids.ID, cents int64) topup.Checkout {
	return topup.Checkout{Key: "gwtest:" + id.String(), Customer: customer, Topup: id, Cents: cents, KeepCard: true, Done: "https://console.example/done",
		Back: "https://console.example/back", Expires: time.Now().Add(45 * time.Minute).Truncate(time.Second)}
}

func pays(ctx context.Context, t *testing.T, p Provider, customer string) {
	want := checkout(customer, ids.New(), 12_34)
	s, err := p.Gateway.OpenCheckout(ctx, want)
	if err != nil || s.ID == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	got, err := p.Gateway.Session(ctx, s.ID)
	if err != nil || p.Shape {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if got.State != topup.SessionOpen || got.Paid || got.Setup || got.Topup != want.Topup || got.Customer != customer || got.Cents != want.Cents || got.Currency != topup.Currency || !strings.HasPrefix(got.URL, "http") {
		t.Errorf("%+v", got)
	}
	if again, err := p.Gateway.OpenCheckout(ctx, want); err != nil || again.ID != s.ID {
		t.Errorf("the same key makes another page: %+v, %v", again, err)
	}
	want.Cents++
	if other, err := p.Gateway.OpenCheckout(ctx, want); err == nil {
		t.Errorf("the same key with another sum: %+v", other)
	}
	if p.Pay == nil {
		return
	}
	p.Pay(t, s.ID)
	if got, err = p.Gateway.Session(ctx, s.ID); err != nil || got.State != topup.SessionComplete || !got.Paid || got.Payment == "" {
		t.Fatalf("after payment: %+v, %v", got, err)
	}
	paid, err := p.Gateway.Payment(ctx, got.Payment)
	if err != nil || paid.State != topup.PaymentSucceeded || paid.Topup != want.Topup || paid.Cents != 12_34 || paid.Card == nil || paid.Card.Last4 == "" {
		t.Errorf("%+v, %v", paid, err)
	}
}

func givesCard(ctx context.Context, t *testing.T, p Provider, customer string) {
	s, err := p.Gateway.OpenCheckout(ctx, topup.Checkout{Key: "gwtest:card:" + ids.New().String(), Customer: customer, Done: "https://console.example/?session={CHECKOUT_SESSION_ID}", Back: "https://console.example/"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Shape {
		return
	}
	if !s.Setup || s.State != topup.SessionOpen || s.Card != nil || s.Customer != customer {
		t.Errorf("%+v", s)
	}
	if p.Pay == nil {
		return
	}
	p.Pay(t, s.ID)
	if s, err = p.Gateway.Session(ctx, s.ID); err != nil || s.State != topup.SessionComplete || s.Card == nil || s.Card.Method == "" || s.Card.Expiry.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	if err := p.Gateway.Forget(ctx, s.Card.Method); err != nil {
		t.Error(err)
	}
}

func charge(customer, method string) topup.Charge {
	id := ids.New()
	return topup.Charge{Key: "gwtest:" + id.String() + ":1", Customer: customer, Method: method, Topup: id, Attempt: 1, Cents: 20_00}
}

func charges(ctx context.Context, t *testing.T, p Provider, customer string) {
	c := charge(customer, p.Keep(t, customer, GoodCard))
	got, err := p.Gateway.Charge(ctx, c)
	if err != nil || got.ID == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if p.Shape {
		return
	}
	if got.State != topup.PaymentSucceeded || got.Cents != c.Cents || got.Topup != c.Topup || got.Attempt != 1 || got.Customer != customer || got.Currency != topup.Currency {
		t.Errorf("%+v", got)
	}
	if again, err := p.Gateway.Charge(ctx, c); err != nil || again.ID != got.ID {
		t.Errorf("the same key charges again: %+v, %v", again, err)
	}
	found, err := p.Gateway.FindPayment(ctx, customer, c.Topup)
	if err != nil || found.ID != got.ID || found.Fee <= 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

func declines(ctx context.Context, t *testing.T, p Provider, customer string) {
	for card, code := range map[string]string{DecliningCard: "generic_decline", AuthCard: "authentication_required"} {
		c := charge(customer, p.Keep(t, customer, card))
		got, err := p.Gateway.Charge(ctx, c)
		if err != nil || got.State != topup.PaymentDeclined || got.Decline.Code != code || got.ID == "" || got.Topup != c.Topup {
			t.Errorf("%s: %+v, %v", card, got, err)
			continue
		}
		seen, err := p.Gateway.FindPayment(ctx, customer, c.Topup)
		if err != nil || seen.State != topup.PaymentDeclined || seen.Attempt != 1 || seen.Decline.Code != code {
			t.Errorf("%s, looked up: %+v, %v", card, seen, err)
		}
	}
}

// findsPaid: a decline that came after the money does not hide it.
func findsPaid(ctx context.Context, t *testing.T, p Provider, customer string) {
	c := charge(customer, p.Keep(t, customer, GoodCard))
	paid, err := p.Gateway.Charge(ctx, c)
	if err != nil || paid.State != topup.PaymentSucceeded {
		t.Fatalf("%+v, %v", paid, err)
	}
	for c.Attempt = 2; c.Attempt <= 3; c.Attempt++ {
		c.Key, c.Method = fmt.Sprintf("gwtest:%s:%d", c.Topup, c.Attempt), p.Keep(t, customer, DecliningCard)
		if got, err := p.Gateway.Charge(ctx, c); err != nil || got.State != topup.PaymentDeclined {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if found, err := p.Gateway.FindPayment(ctx, customer, c.Topup); err != nil || found.ID != paid.ID || found.State != topup.PaymentSucceeded {
		t.Errorf("%+v, %v", found, err)
	}
}

func goesBack(ctx context.Context, t *testing.T, p Provider, customer string) {
	c := charge(customer, p.Keep(t, customer, GoodCard))
	got, err := p.Gateway.Charge(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, cents := range []int64{5_00, 1, 14_99} {
		p.Refund(t, got.ID, cents)
		total += cents
		if seen, err := p.Gateway.Payment(ctx, got.ID); err != nil || seen.Refunded != total || seen.State != topup.PaymentSucceeded || seen.Cents != c.Cents {
			t.Errorf("after %d: %+v, %v", total, seen, err)
		}
	}
}

func lists(ctx context.Context, t *testing.T, p Provider) {
	since := time.Now().Add(-time.Hour)
	payments, kinds := 0, map[string]bool{}
	if err := p.Gateway.Payments(ctx, since, func(topup.Payment) error { payments++; return nil }); err != nil {
		t.Error(err)
	}
	if err := p.Gateway.Events(ctx, since, func(e inbox.Event) error { kinds[e.Type] = true; return nil }); err != nil {
		t.Error(err)
	}
	if !p.Shape && (payments == 0 || !kinds["payment_intent.succeeded"]) {
		t.Errorf("%d payments, events %v", payments, kinds)
	}
}
