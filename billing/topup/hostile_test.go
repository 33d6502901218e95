package topup_test

import (
	"testing"
	"time"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/fault"
)

// A form's id is everybody's to choose: another organization's is refused, and troubles nobody.
func TestAnIDOfAnotherOrganizationIsRefused(t *testing.T) {
	w := newWorld(t)
	mine, session := w.start(20, false)
	org, owner := w.org, w.owner
	w.newOrg()
	if _, err := w.topups.Start(t.Context(), w.owner, topup.NewTopup{Org: w.org, ID: mine.ID, Cents: 2000}); !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	w.org, w.owner = org, owner
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	if got := w.fulfil(mine.ID); got.State != topup.Succeeded {
		t.Errorf("%+v", got)
	}
	w.sound()
}

func TestPaymentPagesAreBounded(t *testing.T) {
	w := newWorld(t)
	for range 10 {
		w.start(10, false)
	}
	in := topup.NewTopup{Org: w.org, ID: newID(), Cents: 1000}
	if _, err := w.topups.Start(t.Context(), w.owner, in); !fault.Is(err, fault.Limited) {
		t.Errorf("%v", err)
	}
	w.clock.Advance(time.Hour)
	if _, err := w.topups.Start(t.Context(), w.owner, in); err != nil {
		t.Error(err)
	}
}

// Who never had credit has no balance row; the promise to charge holds all the same.
func TestANewCustomerIsRecharged(t *testing.T) {
	w := newWorld(t)
	w.giveCard(stripefake.CardGood)
	w.agree(topup.AutoInput{Org: w.org, Below: usd(5), To: usd(20), MonthlyMax: usd(100)})
	w.turn()
	if got := w.autos(); len(got) != 1 || got[0].State != topup.Succeeded || got[0].Amount != usd(20) {
		t.Errorf("%+v", got)
	}
	w.sound()
}

// What is disputed is not charged again until somebody looks.
func TestADisputeStopsRecharging(t *testing.T) {
	w := newWorld(t)
	w.giveCard(stripefake.CardDisputed)
	w.agree(topup.AutoInput{Org: w.org, Below: usd(5), To: usd(20), MonthlyMax: usd(100)})
	for range 5 {
		w.turn()
		for _, a := range w.autos() {
			w.fulfil(a.ID)
		}
		w.clock.Advance(time.Minute)
	}
	if n := len(w.autos()); n != 1 || w.paused() != topup.PauseDispute {
		t.Errorf("%d charges, paused %q", n, w.paused())
	}
	w.sound()
}

// A form that was used brings no card back.
func TestAnOldCardFormIsRefused(t *testing.T) {
	w := newWorld(t)
	key := newID()
	w.giveCardBy(key, stripefake.CardGood)
	w.must(w.topups.RemoveCard(t.Context(), w.owner, w.org))
	if _, err := w.topups.AddCard(t.Context(), w.owner, w.org, key); !fault.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	standing, err := w.topups.Standing(t.Context(), w.owner, w.org)
	if err != nil || standing.Card != (topup.Kept{}) {
		t.Errorf("%+v, %v", standing, err)
	}
}

// A card that the payment provider does not take for what it is, is not tried again and again.
func TestARefusalPauses(t *testing.T) {
	w := newWorld(t)
	w.giveCard(stripefake.CardGood)
	w.agree(topup.AutoInput{Org: w.org, Below: usd(5), To: usd(20), MonthlyMax: usd(100)})
	w.exec("update payment_customers set method_id = 'pm_nobody' where org_id = $1", w.org)
	w.turn()
	w.turn()
	if got := w.autos(); len(got) != 1 || got[0].State != topup.Failed || w.paused() != topup.PauseCard {
		t.Errorf("%+v, paused %q", got, w.paused())
	}
	if b := w.books(); b.available != 0 {
		t.Errorf("%+v", b)
	}
}

// A customer that was deleted at the payment provider can pay again.
func TestACustomerThatIsGoneIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	old := w.funded(10, false, stripefake.CardGood)
	w.exec("update payment_customers set customer_id = 'cus_gone' where org_id = $1", w.org)
	w.funded(10, false, stripefake.CardGood)
	w.must(w.fake.Refund(w.row(old.ID).payment, 4_00)) // of what the customer paid who is gone
	w.hear(w.fake.Messages())
	if b := w.books(); b.available != usd(16) {
		t.Errorf("after a refund: %s", b.available)
	}
	if dead, err := w.inbox.Waiting(t.Context(), operator); err != nil || len(dead) != 0 {
		t.Errorf("%+v, %v", dead, err)
	}
	w.sound()
}
