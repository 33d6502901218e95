package topup_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/fault"
)

// kept is the name of the kept card; " …" when there is none.
func (w *world) kept() string {
	w.t.Helper()
	s, err := w.topups.Standing(context.Background(), w.owner, w.org)
	w.must(err)
	return s.Card.Name()
}

const (
	visa       = "visa …4242"
	mastercard = "mastercard …4444"
	noCard     = " …"
)

// Two pages for a card are open at once: none of them is lost, and the one that was finished last counts, in whatever order
// that is heard and however often.
func TestTheCardThatWasGivenLastIsKept(t *testing.T) {
	w := newWorld(t)
	older, newer := w.cardPage(newID()), w.cardPage(newID())
	come := func(page, want string) {
		t.Helper()
		w.must(w.topups.CardAdded(t.Context(), w.owner, w.org, page))
		if got := w.kept(); got != want {
			t.Errorf("%q is kept, want %q", got, want)
		}
	}
	w.pay(older, stripefake.Way{Number: stripefake.CardGood})
	come(older, visa)
	w.clock.Advance(time.Minute)
	w.pay(newer, stripefake.Way{Number: stripefake.CardMastercard})
	come(older, visa)
	come(newer, mastercard)
	come(older, mastercard)
	w.hear(w.fake.Messages())
	if got := w.kept(); got != mastercard {
		t.Errorf("%q is kept after the events", got)
	}
	w.must(w.topups.RemoveCard(t.Context(), w.owner, w.org))
	come(newer, noCard)
}

// The page that was opened first is finished last, by a person who does not come back.
func TestTheOlderPageMayBeFinishedLast(t *testing.T) {
	w := newWorld(t)
	older, newer := w.cardPage(newID()), w.cardPage(newID())
	w.pay(newer, stripefake.Way{Number: stripefake.CardGood})
	w.clock.Advance(time.Minute)
	w.pay(older, stripefake.Way{Number: stripefake.CardMastercard})
	w.hear(w.fake.Messages())
	w.must(w.topups.CardAdded(t.Context(), w.owner, w.org, newer))
	if got := w.kept(); got != mastercard {
		t.Errorf("%q is kept", got)
	}
}

// Money that is heard of late brings no older card back.
func TestAnOldPaymentBringsNoOldCard(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(10, true)
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	w.clock.Advance(time.Minute)
	w.giveCard(stripefake.CardMastercard)
	if got := w.fulfil(x.ID); got.State != topup.Succeeded || w.kept() != mastercard {
		t.Errorf("%+v, %q is kept", got, w.kept())
	}
}

// What cannot be removed at the payment provider is not forgotten here: it can be asked for again.
func TestARemovalThatFailsCanBeRepeated(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	method := w.method()
	w.fake.Fail(stripefake.Fault{Path: "/v1/payment_methods", Times: 1, Status: http.StatusInternalServerError})
	if err := w.topups.RemoveCard(t.Context(), w.owner, w.org); !fault.Is(err, fault.Unavailable) || w.kept() != visa {
		t.Errorf("%v, %q is kept", err, w.kept())
	}
	w.turn()
	if n := w.charges(); n != 0 {
		t.Errorf("charged %d times after the removal was asked for", n)
	}
	w.must(w.topups.RemoveCard(t.Context(), w.owner, w.org))
	if err := w.gateway.Forget(t.Context(), method); err == nil || w.kept() != noCard {
		t.Errorf("%v: the payment provider keeps it; here %q is kept", err, w.kept())
	}
}

func TestASuspendedOrganizationBeginsNoPayment(t *testing.T) {
	w := newWorld(t)
	x, session := w.start(30, false)
	w.exec("update orgs set suspended_at = now() where org_id = $1", w.org)
	_, err := w.topups.Start(t.Context(), w.owner, topup.NewTopup{Org: w.org, ID: newID(), Cents: 1000})
	if !fault.Is(err, fault.Forbidden) || fault.Of(err).Code != "organization_suspended" {
		t.Errorf("%v", err)
	}
	w.pay(session, stripefake.Way{Number: stripefake.CardGood})
	if got := w.fulfil(x.ID); got.State != topup.Succeeded || w.books().available != usd(30) {
		t.Errorf("money that arrives: %+v, balance %s", got, w.books().available)
	}
	w.sound()
}
