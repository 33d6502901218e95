package invoice_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

// Whatever happens to a payment and its credit notes, and whichever of them are sent by hand meanwhile: each is sent once, and
// what the books say of the payment provider is what it has.
func TestSendingByHandAfterAnyHistory(t *testing.T) {
	s := newShop(t)
	start := s.clock.Now()
	rapid.Check(t, func(rt *rapid.T) {
		s.t, s.clock = rt, clock.NewManual(start) // the ledger has no days after the next 400
		s.begin(t)
		s.newOrg()
		refusing, sent := false, map[ids.ID]int64{}
		s.collect = s.collector(&scripted{Till: s.gateway.Till(), fail: func(invoice.TillNote, int) error {
			if refusing {
				return refused
			}
			return nil
		}})
		id := s.paidThere(100_00)
		payment := s.paymentOf(id)
		turn := func() { s.hear(); s.turn() }
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1:
				s.clock.Advance(time.Second)
				if err := s.note(id, rapid.Int64Range(1, 30).Draw(rt, "dollars")*100, invoice.BackByStripe); err != nil && !fault.Is(err, fault.Conflict) {
					rt.Fatal(err)
				}
			case 2:
				_ = s.fake.Refund(payment, rapid.Int64Range(1, 30).Draw(rt, "refund")*100) // more than is left
			case 3:
				_ = s.fake.FailRefund(payment) // there is none
			case 4:
				_ = s.fake.Dispute(payment)
			case 5:
				_ = s.fake.CloseDispute(payment, rapid.Bool().Draw(rt, "won"))
			case 6:
				refusing = !refusing
			case 7:
				s.clock.Advance(25 * time.Hour)
			case 8, 9:
				for _, n := range s.get(id).Notes {
					if r, err := s.sendByHand(operator, id, n.ID, ids.New().String()); err == nil && r.State == credit.Done {
						if sent[n.ID] != 0 {
							rt.Errorf("%s was sent twice", n.Number)
						}
						sent[n.ID] = n.Cents - n.Relieved
					} else if err != nil && !fault.Is(err, fault.Conflict) {
						rt.Fatal(err)
					}
				}
			}
			if rapid.Bool().Draw(rt, "turn") {
				turn()
			}
		}
		refusing = false
		s.clock.Advance(25 * time.Hour)
		turn()
		turn()
		cash := int64(0)
		for _, n := range s.get(id).Notes {
			cash += sent[n.ID]
			if (sent[n.ID] != 0) != !n.SentAt.IsZero() {
				rt.Errorf("%+v was sent %d", n, sent[n.ID])
			}
		}
		a := s.accounts()
		if a[ledger.Cash] != -usd(cash) {
			rt.Errorf("%s left the bank, %d cents were sent", -a[ledger.Cash], cash)
		}
		there, err := s.gateway.Till().Invoice(context.Background(), s.refOf(id))
		s.must(err)
		// What credit notes gave and nobody sent so far: never taken by the payment provider, or failed at the bank.
		waits := s.number(`SELECT coalesce(sum(cents - relieved_cents), 0) FROM credit_notes WHERE invoice_id = $1 AND back = 'stripe' AND till_ref IS NULL AND sent_at IS NULL`, id) +
			s.number(`SELECT greatest(-loose_cents, 0) - greatest(loose_cents, 0) FROM invoice_pushes WHERE invoice_id = $1`, id)
		has := there.Paid - there.Refunded - there.Disputed
		if got := a[ledger.StripeClearing] + a[ledger.Fees] + usd(waits); there.Refunded+there.Disputed <= there.Paid && got != usd(has) {
			rt.Errorf("the books say %s, the payment provider has %s: %+v, %v, %d wait", got, usd(has), there, a, waits)
		}
		s.reconciled()
	})
}
