package invoice_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/ledger"
)

// refundedOf is what of a payment went back there, in cents.
func (s *shop) refundedOf(payment string) int64 {
	s.t.Helper()
	p, err := s.gateway.Payment(context.Background(), payment)
	s.must(err)
	return p.Refunded
}

// A credit note that was refused, and the operator refunds it by hand in the payment provider's own pages: nobody pays twice,
// neither at the next try nor when he says "try again".
func TestARefundByHandIsTheCreditNotes(t *testing.T) {
	for name, c := range map[string]struct {
		before  int64   // refunded past credit notes before there was one, and paid again by hand
		notes   []int64 // refused
		byHand  []int64 // refunded there then
		state   invoice.PushState
		problem string // "" = none
		sent    int64  // by the worker, once nothing is refused
	}{
		"the same sum":                  {notes: []int64{40_00}, byHand: []int64{40_00}, state: invoice.PushDone},
		"in two parts":                  {notes: []int64{40_00}, byHand: []int64{25_00, 15_00}, state: invoice.PushDone},
		"a part":                        {notes: []int64{40_00}, byHand: []int64{25_00}, state: invoice.PushAsked, problem: "$25.00 were refunded there by hand. Refund the other $15.00 of it there, too"},
		"more":                          {notes: []int64{40_00}, byHand: []int64{50_00}, state: invoice.PushAsked, problem: "$10.00 are due again"},
		"the second of two":             {notes: []int64{30_00, 40_00}, byHand: []int64{40_00}, state: invoice.PushDone, sent: 30_00},
		"both at once":                  {notes: []int64{30_00, 40_00}, byHand: []int64{70_00}, state: invoice.PushDone},
		"none":                          {notes: []int64{40_00}, state: invoice.PushDone, sent: 40_00},
		"one before there was a note":   {before: 40_00, notes: []int64{40_00}, state: invoice.PushDone, sent: 40_00},
		"one before, and the note's":    {before: 30_00, notes: []int64{40_00}, byHand: []int64{40_00}, state: invoice.PushDone},
		"one before, a part of another": {before: 30_00, notes: []int64{40_00}, byHand: []int64{10_00}, state: invoice.PushAsked, problem: "$10.00 were refunded there by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := s.paidThere(100_00)
			payment, total := s.paymentOf(id), c.before+c.sent
			if c.before > 0 {
				s.must(s.fake.Refund(payment, c.before))
				s.hear()
				s.byHand(id, c.before)
			}
			refusing := true
			s.collect = s.collector(&scripted{Till: s.gateway.Till(), fail: func(invoice.TillNote, int) error {
				if refusing {
					return refused
				}
				return nil
			}})
			for _, cents := range c.notes {
				s.must(s.note(id, cents, invoice.BackByStripe))
			}
			s.turn()
			if how := s.how(id); s.refundedOf(payment) != c.before || !strings.Contains(how.Problem, "does not send back") {
				t.Fatalf("refused: %d, %+v", s.refundedOf(payment), how)
			}
			refusing = false
			for _, cents := range c.byHand {
				total += cents
				s.must(s.fake.Refund(payment, cents))
				s.hear()
				s.turn()
			}
			for range 3 {
				s.clock.Advance(25 * time.Hour)
				s.turn()
				_, err := s.collect.Retry(t.Context(), operator, s.org, id, false)
				s.must(err)
			}
			if got := s.refundedOf(payment); got != total {
				t.Errorf("%d went back, not %d", got, total)
			}
			if how := s.how(id); how.State != c.state || !strings.Contains(how.Problem, c.problem) || c.problem == "" && how.Problem != "" {
				t.Errorf("%+v", how)
			}
			if a := s.accounts(); a[ledger.PrepaidPaid] != 0 {
				t.Errorf("%s of credit that nobody paid for", -a[ledger.PrepaidPaid])
			}
			s.sound()
		})
	}
}

// The answer was lost: what the payment provider has of a credit note is no refund by hand.
func TestALostCreditNoteIsNoRefundByHand(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	for _, cents := range []int64{30_00, 40_00} {
		s.must(s.note(id, cents, invoice.BackByStripe))
	}
	died := s.dies(&crashing{Till: s.gateway.Till(), at: 3, behind: true})
	if got := s.refundedOf(s.paymentOf(id)); !died || got != 30_00 && got != 40_00 { // of one moment: either may be the first
		t.Fatalf("died %t, %d went back", died, got)
	}
	s.clock.Advance(later)
	s.turn()
	refs := s.number("SELECT count(*) FROM credit_notes WHERE invoice_id = $1 AND till_ref LIKE 'cn_%'", id)
	if got := s.refundedOf(s.paymentOf(id)); got != 70_00 || refs != 2 || s.how(id).Problem != "" {
		t.Errorf("%d went back, %d of 2 credit notes are known, %+v", got, refs, s.how(id))
	}
	s.sound()
}

// One credit note is refused, and the answer about a later one is lost: the later one is found, and what was refused is not asked
// for again before its time, however much the later one sent back.
func TestALostCreditNoteDoesNotHurryARefusedOne(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	till := &scripted{Till: s.gateway.Till()}
	first := ""
	till.fail = func(n invoice.TillNote, _ int) error {
		if first == "" {
			first = n.Key
		}
		if n.Key == first {
			return refused
		}
		_, err := till.Till.CreditNote(t.Context(), n, 1)
		s.must(err)
		return lost
	}
	s.collect = s.collector(till)
	s.must(s.note(id, 30_00, invoice.BackByStripe))
	s.turn()
	s.clock.Advance(time.Minute)
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	if err := s.collect.Turn(t.Context()); err == nil {
		t.Error("nothing was lost")
	}
	for range 2 {
		s.clock.Advance(time.Hour)
		s.turn()
	}
	refs := s.number("SELECT count(*) FROM credit_notes WHERE invoice_id = $1 AND till_ref LIKE 'cn_%'", id)
	if how := s.how(id); len(till.keys) != 2 || refs != 1 || !strings.Contains(how.Problem, "does not send back $30.00") {
		t.Errorf("asked for %d times, %d of 2 credit notes are known, %+v", len(till.keys), refs, how)
	}
	s.sound()
}
