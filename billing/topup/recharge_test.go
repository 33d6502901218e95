package topup_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// allow sets auto-recharge up for a customer with a card and 10 USD left.
func (w *world) allow(number string, below, to, most int64) {
	w.t.Helper()
	w.funded(50, true, number)
	w.spend(40)
	w.agree(topup.AutoInput{Org: w.org, Below: usd(below), To: usd(to), MonthlyMax: usd(most)})
}

// agree sets auto-recharge up by the sentence of now.
func (w *world) agree(in topup.AutoInput) {
	w.t.Helper()
	var err error
	in.Agreed, err = w.topups.Consent(context.Background(), w.owner, in)
	w.must(err)
	w.must(w.topups.SetAuto(context.Background(), w.owner, in))
}

// turn lets the worker do what is due.
func (w *world) turn() {
	w.t.Helper()
	w.must(w.topups.Turn(context.Background()))
}

func (w *world) autos() (list []topup.Topup) {
	w.t.Helper()
	all, err := w.topups.List(context.Background(), w.owner, w.org, topup.MaxTopups)
	w.must(err)
	for _, t := range all {
		if t.Kind == topup.Auto {
			list = append(list, t)
		}
	}
	return list
}

func (w *world) paused() topup.Pause {
	w.t.Helper()
	p, err := w.topups.Paused(context.Background(), w.owner, w.org)
	w.must(err)
	return p
}

func TestTheWholeGapIsChargedOnce(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	for range 3 {
		w.turn()
	}
	list := w.autos()
	if len(list) != 1 || list[0].Amount != usd(90) || list[0].State != topup.Succeeded || w.books().available != usd(100) {
		t.Errorf("%+v, balance %s", list, w.books().available)
	}
	if m := w.mails(); !slices.Contains(m, "Credit added: $90.00") {
		t.Errorf("mails %q", m)
	}
	w.spend(70)
	w.turn()
	if n := len(w.autos()); n != 1 {
		t.Errorf("charged at a balance of 30, above 20: %d charges", n)
	}
	w.sound()
}

func TestConsentIsKeptWordForWord(t *testing.T) {
	w := newWorld(t)
	in := topup.AutoInput{Org: w.org, Below: usd(20), To: usd(100), MonthlyMax: usd(500), Agreed: "x"}
	if err := w.topups.SetAuto(t.Context(), w.owner, in); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a card: %v", err)
	}
	w.allow(stripefake.CardGood, 20, 100, 500)
	sentence, err := w.topups.Consent(t.Context(), w.owner, in)
	if err != nil || !strings.Contains(sentence, "visa …4242") || !strings.Contains(sentence, "$500") {
		t.Errorf("%q, %v", sentence, err)
	}
	s, err := w.topups.Standing(t.Context(), w.owner, w.org)
	if err != nil || s.Auto.Consent != sentence || s.Auto.ConsentBy != w.owner.Name() {
		t.Errorf("%+v, %v", s, err)
	}
	in.Agreed = ""
	if err := w.topups.SetAuto(t.Context(), w.owner, in); !fault.Is(err, fault.Invalid) {
		t.Errorf("without consent: %v", err)
	}
	for name, bad := range map[string]topup.AutoInput{
		"to under below": {Below: usd(20), To: usd(20), MonthlyMax: usd(500)}, "below nothing": {Below: 0, To: usd(20), MonthlyMax: usd(500)},
		"too much": {Below: usd(20), To: usd(20_000), MonthlyMax: usd(50_000)}, "month under one charge": {Below: usd(20), To: usd(100), MonthlyMax: usd(79)},
	} {
		bad.Org, bad.Agreed = w.org, "x"
		if err := w.topups.SetAuto(t.Context(), w.owner, bad); !fault.Is(err, fault.Invalid) || fault.Of(err).Param == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.must(w.topups.StopAuto(t.Context(), w.owner, w.org))
	w.turn()
	if n := len(w.autos()); n != 0 {
		t.Errorf("charged after it was turned off: %d", n)
	}
}

// A card that is given between the page and the click is not what the page was about, nor are other figures.
func TestAConsentIsToTheSentenceThatWasShown(t *testing.T) {
	w := newWorld(t)
	w.giveCard(stripefake.CardGood)
	in := topup.AutoInput{Org: w.org, Below: usd(20), To: usd(100), MonthlyMax: usd(500)}
	shown, err := w.topups.Consent(t.Context(), w.owner, in)
	w.must(err)
	other := in
	other.MonthlyMax = usd(501)
	w.clock.Advance(time.Minute)
	refused := func(in topup.AutoInput, want string) {
		t.Helper()
		in.Agreed = shown
		err := w.topups.SetAuto(t.Context(), w.owner, in)
		if f := fault.Of(err); f == nil || f.Code != fault.CodeSentenceChanged || !strings.Contains(f.Message, want) {
			t.Errorf("%v", err)
		}
		if s, err := w.topups.Standing(t.Context(), w.owner, w.org); err != nil || s.Auto.Enabled {
			t.Errorf("%+v, %v", s, err)
		}
	}
	refused(other, "$501")
	w.giveCard(stripefake.CardMastercard)
	refused(in, mastercard)
	w.agree(in)
	if s, err := w.topups.Standing(t.Context(), w.owner, w.org); err != nil || !s.Auto.Enabled || !strings.Contains(s.Auto.Consent, mastercard) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestTheMonthsMaximumHolds(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 120)
	w.turn() // 90
	w.spend(95)
	w.turn() // the 30 that are left
	w.spend(25)
	for range 3 {
		w.turn()
	}
	if list := w.autos(); len(list) != 2 || list[0].Amount != usd(30) {
		t.Errorf("%+v", list)
	}
	if n := count(w.mails(), "Auto-recharge has reached its monthly maximum"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if p := w.paused(); p != "" {
		t.Errorf("a full month pauses: %s", p)
	}
	w.clock.Advance(32 * 24 * time.Hour)
	w.turn()
	if list := w.autos(); len(list) != 3 {
		t.Errorf("the next month does not charge: %d", len(list))
	}
}

func count(list []string, want string) (n int) {
	for _, s := range list {
		if s == want {
			n++
		}
	}
	return n
}

func TestARunawayIsStopped(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 5000)
	for range 5 {
		w.turn()
		w.spend(85)
	}
	if n := len(w.autos()); n != 3 || w.paused() != topup.PauseRunaway {
		t.Errorf("%d charges, paused %q", n, w.paused())
	}
	if n := count(w.mails(), "Auto-recharge is paused"); n != 1 {
		t.Errorf("told %d times", n)
	}
}

// What a bank says decides whether and when the card is charged again.
func TestDeclines(t *testing.T) {
	for name, c := range map[string]struct {
		number string
		after  []time.Duration // when it is charged again
		pause  topup.Pause
	}{
		"no funds":       {stripefake.CardNoFunds, []time.Duration{6 * time.Hour, 24 * time.Hour, 72 * time.Hour}, topup.PauseDeclined},
		"vague":          {stripefake.CardDeclinesKept, []time.Duration{24 * time.Hour}, topup.PauseCard},
		"lost":           {stripefake.CardLost, nil, topup.PauseCard},
		"stolen":         {stripefake.CardStolen, nil, topup.PauseCard},
		"authentication": {stripefake.CardAuthAlways, nil, topup.PauseAuth},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.funded(50, false, stripefake.CardGood)
			w.giveCard(c.number)
			w.spend(40)
			w.agree(topup.AutoInput{Org: w.org, Below: usd(20), To: usd(100), MonthlyMax: usd(500)})
			w.turn()
			for i, wait := range c.after {
				if x := w.autos()[0]; x.State != topup.Retrying || !x.Next.Equal(w.clock.Now().Add(wait).Truncate(time.Microsecond)) {
					t.Fatalf("after decline %d: %s, again in %s", i+1, x.State, x.Next.Sub(w.clock.Now()))
				}
				w.clock.Advance(wait - time.Minute)
				w.turn()
				if n := w.charges(); n != i+1 {
					t.Fatalf("charged before its time: %d charges", n)
				}
				w.clock.Advance(time.Minute)
				w.turn()
			}
			list := w.autos()
			if len(list) != 1 || list[0].State != topup.Failed || w.paused() != c.pause || w.charges() != len(c.after)+1 {
				t.Errorf("%+v, paused %q, %d charges", list, w.paused(), w.charges())
			}
			w.clock.Advance(30 * 24 * time.Hour)
			w.turn()
			if n := count(w.mails(), "Auto-recharge is paused"); n != 1 || w.charges() != len(c.after)+1 || w.books().available != usd(10) {
				t.Errorf("told %d times, %d charges, balance %s", n, w.charges(), w.books().available)
			}
			w.giveCard(stripefake.CardGood) // a new card ends the pause
			w.turn()
			if w.paused() != "" || w.books().available != usd(100) {
				t.Errorf("after a new card: paused %q, balance %s", w.paused(), w.books().available)
			}
		})
	}
}

// giveCard keeps a card by a page, as a customer does.
func (w *world) giveCard(number string) {
	w.t.Helper()
	w.giveCardBy(newID(), number)
}

// giveCardBy does so by a form that has a key.
func (w *world) giveCardBy(key ids.ID, number string) {
	w.t.Helper()
	page := w.cardPage(key)
	w.pay(page, stripefake.Way{Number: number, Confirmed: true})
	w.must(w.topups.CardAdded(context.Background(), w.owner, w.org, page))
}

// cardPage is a page to give a card.
func (w *world) cardPage(key ids.ID) string {
	w.t.Helper()
	url, err := w.topups.AddCard(context.Background(), w.owner, w.org, key)
	w.must(err)
	return url[strings.LastIndex(url, "/")+1:]
}

// charges is how often a kept card was charged, or tried.
func (w *world) charges() (n int) {
	w.t.Helper()
	w.must(w.gateway.Payments(context.Background(), time.Unix(0, 0), func(p topup.Payment) error {
		if p.Attempt > 0 {
			n++
		}
		return nil
	}))
	return n
}

func TestARetryThatIsNotNeededIsNotMade(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.giveCard(stripefake.CardNoFunds)
	w.turn()
	w.funded(200, false, stripefake.CardGood)
	w.clock.Advance(7 * time.Hour)
	w.turn()
	if list := w.autos(); len(list) != 1 || list[0].State != topup.Expired || w.charges() != 1 {
		t.Errorf("%+v, %d charges", list, w.charges())
	}
}

// Whatever the API answers to a charge, the card is charged once.
func TestAnUnknownOutcomeChargesOnce(t *testing.T) {
	for name, f := range map[string]stripefake.Fault{
		"lock timeout, not done":      {Status: http.StatusTooManyRequests},
		"lock timeout, done":          {Status: http.StatusTooManyRequests, After: true},
		"server error, not done":      {Status: http.StatusInternalServerError},
		"server error, but it's done": {Status: http.StatusInternalServerError, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.allow(stripefake.CardGood, 20, 100, 500)
			f.Path, f.Times = "/v1/payment_intents", 1
			w.fake.Fail(f)
			if err := w.topups.Turn(t.Context()); err == nil {
				t.Fatal("the failure is not told")
			}
			for range 15 {
				w.clock.Advance(2 * time.Minute)
				_ = w.topups.Turn(t.Context()) // the same key gives the same failure for a while
			}
			if list := w.autos(); len(list) != 1 || list[0].State != topup.Succeeded || w.charges() != 1 || w.books().available != usd(100) {
				t.Errorf("%+v, %d charges, balance %s", list, w.charges(), w.books().available)
			}
			w.sound()
		})
	}
}

func TestARemovedCardIsNotCharged(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.must(w.topups.RemoveCard(t.Context(), w.owner, w.org))
	w.turn()
	s, err := w.topups.Standing(t.Context(), w.owner, w.org)
	if err != nil || s.Auto.Enabled || s.Card != (topup.Kept{}) || len(w.autos()) != 0 {
		t.Errorf("%+v, %v, %d charges", s, err, len(w.autos()))
	}
}
