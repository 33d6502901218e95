package invoice_test

import (
	"testing"

	"millrace/billing/stripefake"
	"millrace/internal/ids"
)

// doing is something that happens to the money of an invoice of 100 USD.
type doing func(s *shop, id ids.ID)

func refund(cents int64) doing {
	return func(s *shop, id ids.ID) { s.must(s.fake.Refund(s.paymentOf(id), cents)) }
}

func hand(cents int64) doing { return func(s *shop, id ids.ID) { s.byHand(id, cents) } }

var (
	page doing = func(s *shop, id ids.ID) {
		if problem := s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood}); problem != "" {
			s.t.Fatal(problem)
		}
	}
	twice   doing = func(s *shop, id ids.ID) { hand(100_00)(s, id); page(s, id) } // before it is closed there
	dispute doing = func(s *shop, id ids.ID) { s.must(s.fake.Dispute(s.paymentOf(id))) }
	won     doing = func(s *shop, id ids.ID) { s.must(s.fake.CloseDispute(s.paymentOf(id), true)) }
	bounce  doing = func(s *shop, id ids.ID) { s.must(s.fake.FailRefund(s.paymentOf(id))) }
	reverse doing = func(s *shop, id ids.ID) { // the first payment by hand never came
		for _, p := range s.get(id).Payments {
			if p.Method == "hand" && p.ReversedAt.IsZero() {
				_, err := s.bills.ReversePayment(s.t.(*testing.T).Context(), operator, s.org, id, p.ID, "It never came.")
				s.must(err)
				return
			}
		}
		s.t.Fatal("nothing was paid by hand")
	}
)

// What is due is the customer's to pay, or the operator's own refund: a refund that was paid again, or that took credit only,
// hides nothing that becomes due later. Days count from when the customer himself owes something again.
func TestARefundHidesNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		before   []doing // 60 days before the last one
		last     doing   // with all that is told of at once
		due      int64
		restrict bool // 14 days later, and not sooner
	}{
		"refunded":                                 {before: []doing{page}, last: refund(60_00), due: 60_00},
		"refunded, refunded":                       {before: []doing{page, refund(30_00)}, last: refund(30_00), due: 60_00},
		"refunded, disputed":                       {before: []doing{page, refund(60_00)}, last: dispute, due: 100_00, restrict: true},
		"refunded, paid again, disputed":           {before: []doing{page, refund(60_00), hand(60_00)}, last: dispute, due: 40_00, restrict: true},
		"refunded, paid in part, disputed":         {before: []doing{page, refund(60_00), hand(20_00)}, last: dispute, due: 80_00, restrict: true},
		"refunded, paid in part":                   {before: []doing{page, refund(60_00)}, last: hand(20_00), due: 40_00},
		"refunded, paid again, refunded":           {before: []doing{page, refund(60_00), hand(60_00)}, last: refund(40_00), due: 40_00},
		"disputed, paid again, won, refunded":      {before: []doing{page, dispute, hand(100_00), won}, last: refund(60_00)},
		"the same, and the payment never came":     {before: []doing{page, dispute, hand(100_00), won, refund(60_00)}, last: reverse, due: 100_00, restrict: true},
		"refunded, disputed, won":                  {before: []doing{page, refund(60_00), dispute}, last: won, due: 60_00},
		"disputed, refunded and won at once":       {before: []doing{page, dispute}, last: func(s *shop, id ids.ID) { won(s, id); refund(60_00)(s, id) }, due: 60_00},
		"refunded, the bank sends it back":         {before: []doing{page, refund(60_00)}, last: bounce},
		"refunded, disputed, the bank sends it":    {before: []doing{page, refund(60_00), dispute, won}, last: func(s *shop, id ids.ID) { bounce(s, id); refund(10_00)(s, id) }, due: 10_00},
		"refunded, a payment by hand never came":   {before: []doing{hand(30_00), page, refund(60_00)}, last: reverse, due: 90_00, restrict: true},
		"refunded, the payment for it never came":  {before: []doing{page, refund(60_00), hand(60_00)}, last: reverse, due: 60_00, restrict: true},
		"paid twice, the second one is refunded":   {before: []doing{twice}, last: refund(100_00)},
		"the same, and the first one never came":   {before: []doing{twice, refund(100_00)}, last: reverse, due: 100_00, restrict: true},
		"paid twice, and the first one never came": {before: []doing{twice}, last: reverse, due: 100_00, restrict: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.bill(100_00)
			s.turn()
			do := func(d doing) { d(s, id); s.hear(); s.turn() }
			for _, d := range c.before {
				do(d)
			}
			s.days(60)
			s.setLimit(usd(1000_00)) // whatever was restricted before
			s.turn()
			restricted := s.limit() < usd(1000_00)
			do(c.last)
			if i := s.get(id); i.Due() != c.due {
				t.Fatalf("%d due, not %d", i.Due(), c.due)
			}
			if s.days(13); s.limit() != usd(1000_00) {
				t.Errorf("13 days later: limit %s, restricted before: %t", s.limit(), restricted)
			}
			if s.days(1); s.limit() < usd(1000_00) != c.restrict {
				t.Errorf("14 days later: limit %s", s.limit())
			}
			s.sound()
		})
	}
}
