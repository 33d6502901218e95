package topup_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// replaced makes the organization known anew, as when its customer was deleted at the payment provider.
func (w *world) replaced() {
	w.t.Helper()
	was := w.customer()
	now, err := w.topups.AnotherCustomer(context.Background(), w.org, was)
	w.must(err)
	if now == was || w.kept() != noCard {
		w.t.Fatalf("still %s with %s", now, w.kept())
	}
}

// lost is a charge that was made and whose answer was lost, under a customer who was replaced since; there is a card again.
func (w *world) lost() {
	w.t.Helper()
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusInternalServerError, After: true})
	if err := w.topups.Turn(context.Background()); err == nil {
		w.t.Fatal("the failure is not told")
	}
	w.replaced()
	w.giveCard(stripefake.CardMastercard)
}

func (w *world) credited() {
	w.t.Helper()
	if list := w.autos(); len(list) != 1 || list[0].State != topup.Succeeded || w.taken() != 1 || w.books().available != usd(100) {
		w.t.Errorf("%+v, charged %d times, balance %s", list, w.taken(), w.books().available)
	}
	w.sound()
}

// What was charged under a customer of before is found there, and not charged again under the present one.
func TestAChargeUnderAReplacedCustomerIsFound(t *testing.T) {
	for name, work := range map[string]func(w *world){
		"by the worker": func(*world) {},
		"by the event":  func(w *world) { w.hear(w.fake.Messages()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.lost()
			work(w)
			for range 30 {
				w.clock.Advance(time.Minute)
				_ = w.topups.Turn(t.Context()) // the same key gives the same failure for a while
			}
			w.credited()
		})
	}
}

// The first of two attempts succeeds late, under the customer of before: it is credited, and the newer one does not hide it.
func TestALateAttemptUnderAReplacedCustomerIsCredited(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusInternalServerError, Delay: 30 * time.Minute})
	if err := w.topups.Turn(t.Context()); err == nil {
		t.Fatal("the failure is not told")
	}
	w.replaced()
	w.giveCard(stripefake.CardNoFunds)
	for range 40 { // the second attempt, which is declined, comes after 20 minutes
		w.clock.Advance(time.Minute)
		_ = w.topups.Turn(t.Context())
	}
	w.hear(w.fake.Messages())
	if n := w.charges(); n != 2 {
		t.Fatalf("%d attempts", n)
	}
	w.credited()
}

// blind finds no payment by a customer: there are too many others.
type blind struct{ topup.Gateway }

func (blind) FindPayment(context.Context, string, ids.ID) (topup.Payment, error) {
	return topup.Payment{}, fault.New(fault.NotFound, "There is no such payment.")
}

// The payment that an event names is looked at, also when no list has it.
func TestThePaymentOfAnEventIsLookedAt(t *testing.T) {
	w := newWorld(t)
	w.lost()
	w.listen(blind{w.gateway})
	w.hear(w.fake.Messages())
	w.credited()
}

// A page that was opened under the customer of before still brings credit.
func TestAPageOfAReplacedCustomerIsCredited(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(30, false)
	w.replaced()
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	w.hear(w.fake.Messages())
	if got := w.fulfil(x.ID); got.State != topup.Succeeded || w.books().available != usd(30) {
		t.Errorf("%+v, balance %s", got, w.books().available)
	}
	w.sound()
}

// The consent to charge invoices is to charge a card: it goes when the card goes, by whoever removes it.
func TestAConsentForInvoicesEndsWithTheCard(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"removed":  func(w *world) { w.must(w.topups.RemoveCard(context.Background(), w.owner, w.org)) },
		"detached": func(w *world) { w.must(w.gateway.Forget(context.Background(), w.method())); w.hear(w.fake.Messages()) },
		"replaced": func(w *world) { w.replaced() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.giveCard(stripefake.CardGood)
			w.exec("update payment_customers set charge_invoices = true where org_id = $1", w.org)
			if _, method, err := w.topups.InvoiceCustomer(t.Context(), w.org); err != nil || method == "" {
				t.Fatalf("%q, %v", method, err)
			}
			end(w)
			w.giveCard(stripefake.CardMastercard)
			if _, method, err := w.topups.InvoiceCustomer(t.Context(), w.org); err != nil || method != "" || w.kept() != mastercard {
				t.Errorf("%q is charged without consent, %v", method, err)
			}
		})
	}
}
