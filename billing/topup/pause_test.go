package topup_test

import (
	"testing"

	"millrace/billing/stripefake"
	"millrace/billing/topup"
)

// manual is a customer with 10 USD left of the 50 that a page brought, who is charged below 5.
func (w *world) manual() (payment string) {
	w.t.Helper()
	payment = w.row(w.funded(50, true, stripefake.CardGood).ID).payment
	w.spend(40)
	w.again()
	return payment
}

// again turns auto-recharge on.
func (w *world) again() {
	w.t.Helper()
	w.agree(topup.AutoInput{Org: w.org, Below: usd(5), To: usd(100), MonthlyMax: usd(500)})
}

// Who disputes a payment, or is given it back, is not charged for it again before he says so.
func TestMoneyThatWentBackIsNotChargedAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		back func(w *world, payment string) error
		want topup.Pause
		gap  int64 // that is charged once it is turned on again
	}{
		"a dispute":                       {func(w *world, p string) error { return w.fake.Dispute(p) }, topup.PauseDispute, 140},
		"a refund below the amount":       {func(w *world, p string) error { return w.fake.Refund(p, 8_00) }, topup.PauseRefund, 98},
		"a refund that leaves the amount": {func(w *world, p string) error { return w.fake.Refund(p, 5_00) }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.must(c.back(w, w.manual()))
			w.hear(w.fake.Messages())
			w.turn()
			if n := len(w.autos()); n != 0 || w.paused() != c.want {
				t.Errorf("%d charges, paused %q", n, w.paused())
			}
			if n := count(w.mails(), "Auto-recharge is paused"); n != 1 && c.want != "" || c.want.Sentence() == "" && c.want != "" {
				t.Errorf("told %d times: %s", n, c.want.Sentence())
			}
			if c.want == "" {
				w.spend(1)
				w.turn()
				if list := w.autos(); len(list) != 1 {
					t.Errorf("what is used behind the refund is not charged: %+v", list)
				}
				return
			}
			w.again()
			w.turn()
			if list := w.autos(); len(list) != 1 || list[0].Amount != usd(c.gap) || w.paused() != "" {
				t.Errorf("turned on again: %+v, paused %q", list, w.paused())
			}
			w.sound()
		})
	}
}

// A card that is given later ends a pause that was for want of one, and no other.
func TestWhichPauseANewCardEnds(t *testing.T) {
	for why, ends := range map[topup.Pause]bool{topup.PauseAuth: true, topup.PauseDeclined: true, topup.PauseCard: true, topup.PauseNoCard: true,
		topup.PauseDispute: false, topup.PauseRefund: false, topup.PauseRunaway: false} {
		t.Run(string(why), func(t *testing.T) {
			w := newWorld(t)
			w.manual()
			w.exec("update auto_recharges set paused = $2, paused_at = now() where org_id = $1", w.org, string(why))
			w.giveCard(stripefake.CardMastercard)
			if got := w.paused(); w.kept() != mastercard || (got == "") != ends || !ends && got != why {
				t.Errorf("%q is kept, paused %q", w.kept(), got)
			}
		})
	}
}

// A dispute that comes while it is paused for a card's sake counts: the next card does not end it.
func TestADisputeTakesThePlaceOfACardsPause(t *testing.T) {
	w := newWorld(t)
	payment := w.manual()
	w.exec("update auto_recharges set paused = 'declined', paused_at = now() where org_id = $1", w.org)
	w.must(w.fake.Dispute(payment))
	w.hear(w.fake.Messages())
	w.giveCard(stripefake.CardMastercard)
	w.turn()
	if got := w.paused(); got != topup.PauseDispute || len(w.autos()) != 0 {
		t.Errorf("paused %q, %d charges", got, len(w.autos()))
	}
}
