package topup_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
)

// declined is a customer whose card was declined and who has given a good one since: the charge is made again in 6 hours.
func (w *world) declined(below, to, most int64) {
	w.t.Helper()
	w.allow(stripefake.CardGood, below, to, most)
	w.giveCard(stripefake.CardNoFunds)
	w.turn()
	w.giveCard(stripefake.CardGood)
	if list := w.autos(); len(list) != 1 || list[0].State != topup.Retrying {
		w.t.Fatalf("%+v", list)
	}
}

// taken is how often a kept card was charged and the money came.
func (w *world) taken() (n int) {
	w.t.Helper()
	w.must(w.gateway.Payments(context.Background(), time.Unix(0, 0), func(p topup.Payment) error {
		if p.Attempt > 0 && p.State == topup.PaymentSucceeded {
			n++
		}
		return nil
	}))
	return n
}

// A first try and a retry hang, and charge long after we gave up: no second charge is made meanwhile.
func TestAChargeThatHangsIsMadeOnce(t *testing.T) {
	for name, begin := range map[string]func(w *world){
		"first try": func(w *world) { w.allow(stripefake.CardGood, 20, 100, 500) },
		"retry":     func(w *world) { w.declined(20, 100, 500); w.clock.Advance(6 * time.Hour) },
	} {
		for _, delay := range []time.Duration{5 * time.Minute, 15 * time.Minute} {
			t.Run(name+" "+delay.String(), func(t *testing.T) {
				w := newWorld(t)
				begin(w)
				w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusInternalServerError, Delay: delay})
				if err := w.topups.Turn(t.Context()); err == nil {
					t.Fatal("the failure is not told")
				}
				for range 30 {
					w.clock.Advance(time.Minute)
					_ = w.topups.Turn(t.Context()) // the same key gives the same failure for a while
				}
				if list := w.autos(); len(list) != 1 || list[0].State != topup.Succeeded || w.taken() != 1 || w.books().available != usd(100) {
					t.Errorf("%+v, charged %d times, balance %s", list, w.taken(), w.books().available)
				}
				w.sound()
			})
		}
	}
}

// Two attempts of one top-up: the one that was paid counts, and not the newer one that was declined.
func TestAnAttemptThatSucceededLateIsCredited(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusTooManyRequests, After: true})
	if err := w.topups.Turn(t.Context()); err == nil {
		t.Fatal("the failure is not told")
	}
	list := w.autos()
	if len(list) != 1 {
		t.Fatalf("%+v", list)
	}
	w.giveCard(stripefake.CardNoFunds)
	p, err := w.gateway.Charge(t.Context(), topup.Charge{Key: "another", Customer: w.customer(), Method: w.method(), Topup: list[0].ID, Attempt: 2, Cents: 90_00})
	if err != nil || p.State != topup.PaymentDeclined {
		t.Fatalf("%+v, %v", p, err)
	}
	w.clock.Advance(2 * time.Minute)
	w.turn()
	if got := w.autos(); len(got) != 1 || got[0].State != topup.Succeeded || w.books().available != usd(100) {
		t.Errorf("%+v, balance %s", got, w.books().available)
	}
	w.sound()
}

// What is charged after the turn of the month counts for the month in which the money was taken.
func TestAChargeCountsForTheMonthInWhichItIsMade(t *testing.T) {
	w := newWorld(t)
	zone, err := time.LoadLocation("Europe/Berlin")
	w.must(err)
	now := w.clock.Now().In(zone)
	turn := time.Date(now.Year(), now.Month()+2, 1, 0, 0, 0, 0, zone)
	w.clock.Advance(turn.Add(-3 * time.Hour).Sub(now))
	w.declined(20, 100, 120)
	w.clock.Advance(6 * time.Hour)
	w.turn()
	if s, err := w.topups.Standing(t.Context(), w.owner, w.org); err != nil || s.Auto.ThisMonth != usd(90) {
		t.Errorf("%+v, %v", s.Auto, err)
	}
	w.spend(95)
	w.turn()
	if list := w.autos(); len(list) != 2 || list[0].Amount != usd(30) {
		t.Errorf("%+v", list)
	}
	w.sound()
}

// Who lowers the month's maximum while a charge waits for its retry is not charged more than that.
func TestARetryKeepsWithinALoweredMaximum(t *testing.T) {
	for name, c := range map[string]struct{ to, most, want int64 }{
		"the maximum alone": {100, 85, 85}, "the target too": {50, 40, 40},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.declined(20, 100, 500)
			w.agree(topup.AutoInput{Org: w.org, Below: usd(20), To: usd(c.to), MonthlyMax: usd(c.most)})
			w.clock.Advance(6 * time.Hour)
			w.turn()
			w.turn()
			if list := w.autos(); len(list) != 2 || list[1].State != topup.Expired || list[0].Amount != usd(c.want) || w.taken() != 1 {
				t.Errorf("%+v, charged %d times", list, w.taken())
			}
			w.sound()
		})
	}
}

func TestASuspendedOrganizationIsNotChargedAgain(t *testing.T) {
	w := newWorld(t)
	w.declined(20, 100, 500)
	w.exec("update orgs set suspended_at = now() where org_id = $1", w.org)
	w.clock.Advance(6 * time.Hour)
	w.turn()
	w.turn()
	if list := w.autos(); len(list) != 1 || list[0].State != topup.Expired || w.taken() != 0 {
		t.Errorf("%+v, charged %d times", list, w.taken())
	}
}

// Organizations that are low but charge nothing hold nobody up.
func TestEveryOrganizationHasItsTurn(t *testing.T) {
	w := newWorld(t)
	const others = 250
	w.exec(`insert into orgs (org_id, name, time_zone) select ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, 'Full', 'UTC' from generate_series(1, $1::int) i`, others)
	w.exec(`insert into payment_customers (org_id, customer_id, method_id, created_at, updated_at) select org_id, org_id::text, org_id::text, now(), now() from orgs where name = 'Full'`)
	w.exec(`insert into auto_recharges (org_id, enabled, below_nano, to_nano, monthly_max_nano, consent, consented_by, consented_at, updated_at)
		select org_id, true, 10, 20, 1, '', '', now(), now() from orgs where name = 'Full'`)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.turn()
	if list := w.autos(); len(list) != 1 || list[0].State != topup.Succeeded {
		t.Errorf("%+v", list)
	}
}

// While an outcome is unknown, nothing that the customer changes leads to another charge, and what was charged is credited.
func TestAnUnknownOutcomeOutlastsChanges(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"another card": func(w *world) { w.giveCard(stripefake.CardMastercard) },
		"turned off":   func(w *world) { w.must(w.topups.StopAuto(context.Background(), w.owner, w.org)) },
		"suspended":    func(w *world) { w.exec("update orgs set suspended_at = now() where org_id = $1", w.org) },
		"card removed": func(w *world) { w.must(w.topups.RemoveCard(context.Background(), w.owner, w.org)) },
		"looked at": func(w *world) {
			for _, x := range w.autos() {
				_, err := w.topups.Look(context.Background(), w.owner, w.org, x.ID)
				w.must(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.allow(stripefake.CardGood, 20, 100, 500)
			w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusInternalServerError, Delay: 3 * time.Minute})
			if err := w.topups.Turn(t.Context()); err == nil {
				t.Fatal("the failure is not told")
			}
			if name == "card removed" { // the charge that hangs was made with it, and is through before that
				w.clock.Advance(3 * time.Minute)
			}
			change(w)
			for range 30 {
				w.clock.Advance(time.Minute)
				_ = w.topups.Turn(t.Context())
			}
			if list := w.autos(); len(list) != 1 || list[0].State != topup.Succeeded || w.charges() != 1 || w.books().available != usd(100) {
				t.Errorf("%+v, %d charges, balance %s", list, w.charges(), w.books().available)
			}
			w.sound()
		})
	}
}

// Who turns auto-recharge off while it is unknown whether a charge was made, and it was not, is not charged.
func TestNothingIsAskedForAgainOnceItIsTurnedOff(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusInternalServerError})
	if err := w.topups.Turn(t.Context()); err == nil {
		t.Fatal("the failure is not told")
	}
	w.must(w.topups.StopAuto(t.Context(), w.owner, w.org))
	for range 30 {
		w.clock.Advance(time.Minute)
		w.turn()
	}
	if list := w.autos(); len(list) != 1 || list[0].State != topup.Expired || w.charges() != 0 {
		t.Errorf("%+v, %d charges", list, w.charges())
	}
}

// A retry brings the balance to no more than what the customer says now.
func TestARetryKeepsToALoweredTarget(t *testing.T) {
	w := newWorld(t)
	w.declined(20, 100, 500)
	w.agree(topup.AutoInput{Org: w.org, Below: usd(20), To: usd(50), MonthlyMax: usd(500)})
	w.clock.Advance(6 * time.Hour)
	w.turn()
	w.turn()
	if list := w.autos(); len(list) != 2 || list[1].State != topup.Expired || list[0].Amount != usd(40) || w.books().available != usd(50) {
		t.Errorf("%+v, balance %s", list, w.books().available)
	}
	w.sound()
}

// A charge that outlasts all patience is a second payment: no credit comes of it, and operators see it until it went back.
func TestASecondPaymentIsListed(t *testing.T) {
	w := newWorld(t)
	w.allow(stripefake.CardGood, 20, 100, 500)
	w.fake.Fail(stripefake.Fault{Path: "/v1/payment_intents", Times: 1, Status: http.StatusInternalServerError, Delay: time.Hour})
	for range 35 {
		_ = w.topups.Turn(t.Context())
		w.clock.Advance(2 * time.Minute)
	}
	w.hear(w.fake.Messages())
	if w.taken() != 2 || len(w.autos()) != 1 || w.books().available != usd(100) {
		t.Fatalf("charged %d times, balance %s", w.taken(), w.books().available)
	}
	w.clock.Advance(10 * time.Minute)
	c, err := w.topups.Compare(t.Context(), w.inbox)
	if err != nil || len(c.Differences) != 1 || !strings.Contains(c.Differences[0].What, "a second payment of $90.00") {
		t.Fatalf("%+v, %v", c, err)
	}
	w.must(w.fake.Refund(c.Differences[0].Payment, 90_00))
	w.hear(w.fake.Messages())
	if c, err = w.topups.Compare(t.Context(), w.inbox); err != nil || len(c.Differences) != 0 || w.books().available != usd(100) {
		t.Errorf("after it went back: %+v, %v, balance %s", c, err, w.books().available)
	}
	w.sound()
}
