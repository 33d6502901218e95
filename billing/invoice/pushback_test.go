package invoice_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// paidThere makes an invoice that was paid at the payment provider.
func (s *shop) paidThere(cents int64) ids.ID {
	s.t.Helper()
	id := s.bill(cents)
	s.turn()
	if problem := s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		s.t.Fatal(problem)
	}
	s.hear()
	s.turn()
	return id
}

func (s *shop) byHand(id ids.ID, cents int64) ids.ID {
	s.t.Helper()
	reference := ids.New().String()
	_, err := s.bills.RecordPayment(context.Background(), operator, s.org, id, invoice.PaymentInput{Cents: cents, Reference: reference, IdempotencyKey: reference})
	s.must(err)
	list := s.get(id).Payments
	return list[slices.IndexFunc(list, func(p invoice.Payment) bool { return p.Reference == reference })].ID
}

func (s *shop) note(id ids.ID, cents int64, back invoice.Back) error {
	_, err := s.bills.CreditNote(context.Background(), operator, s.org, id, invoice.NoteInput{Cents: cents, Reason: "Too slow", Back: back, IdempotencyKey: ids.New().String()})
	return err
}

// Paid twice, and the second payment went back: the credit that it had become is taken, and the invoice stays paid.
func TestARefundOfADoublePaymentTakesTheCredit(t *testing.T) {
	s := newShop(t)
	id := s.bill(100_00)
	s.turn()
	s.byHand(id, 100_00)
	if problem := s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	want := func(what string, state invoice.State, due, credit, there int64) {
		t.Helper()
		i, a := s.get(id), s.accounts()
		if i.State != state || i.Due() != due || a[ledger.PrepaidPaid] != -usd(credit) || a[ledger.StripeClearing]+a[ledger.Fees] != usd(there) || a[ledger.Receivable] != usd(due) {
			t.Errorf("%s: %s, %d due, %v", what, i.State, i.Due(), a)
		}
		s.sound()
	}
	want("paid twice", invoice.Paid, 0, 100_00, 100_00)
	payment := s.paymentOf(id)
	s.must(s.fake.Dispute(payment))
	s.hear()
	want("disputed", invoice.Paid, 0, 0, 0)
	s.must(s.fake.CloseDispute(payment, true))
	s.hear()
	want("won", invoice.Paid, 0, 100_00, 100_00)
	s.must(s.fake.Refund(payment, 60_00))
	s.hear()
	want("refunded in part", invoice.Paid, 0, 40_00, 40_00)
	if err := s.note(id, 1_00, invoice.BackByStripe); err == nil {
		t.Error("the payment provider sends back what paid nothing")
	}
	s.must(s.fake.Refund(payment, 40_00))
	s.hear()
	want("refunded", invoice.Paid, 0, 0, 0)
	// Months tell what came from what went back by the kind: 100 came once, and 200 went back of which 100 came again.
	kind := func(kind string) int64 {
		return s.number("SELECT coalesce(sum(e.amount_nano), 0) FROM ledger_entries e JOIN ledger_txns t ON t.org_id = e.org_id AND t.day = e.day AND t.id = e.txn_id WHERE t.kind = $1 AND e.account IN ('stripe_clearing', 'fees')", kind)
	}
	if came, went := kind("payment"), kind("refund"); came != int64(usd(100_00)) || went != -came {
		t.Errorf("came %d, went %d", came, went)
	}
}

// What came by the payment provider and paid the invoice can go back there once, whatever disputes did meanwhile.
func TestCreditNotesGiveBackNoMoreThanThereIs(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	payment := s.paymentOf(id)
	s.must(s.fake.Dispute(payment))
	s.hear()
	s.must(s.fake.CloseDispute(payment, true))
	s.hear()
	s.must(s.fake.Refund(payment, 30_00))
	s.hear()
	s.byHand(id, 30_00)
	if err := s.note(id, 71_00, invoice.BackByStripe); !fault.Is(err, fault.Conflict) || fault.Of(err).Code != "not_paid_there" {
		t.Errorf("71 of 70: %v", err)
	}
	s.must(s.note(id, 70_00, invoice.BackByStripe))
	s.turn()
	if p, err := s.gateway.Payment(t.Context(), payment); err != nil || p.Refunded != 100_00 || s.how(id).Problem != "" {
		t.Errorf("%+v, %v, %+v", p, err, s.how(id))
	}
	s.sound()
}

// scripted is a till whose credit notes end as a test says.
type scripted struct {
	invoice.Till
	keys []string // of the tries, with their attempts
	fail func(n invoice.TillNote, try int) error
}

func (x *scripted) CreditNote(ctx context.Context, n invoice.TillNote, attempt int) (invoice.TillNote, error) {
	x.keys = append(x.keys, n.Key+" "+string(rune('0'+attempt)))
	if err := x.fail(n, len(x.keys)); err != nil {
		return n, err
	}
	return x.Till.CreditNote(ctx, n, attempt)
}

var (
	lost     = fault.New(fault.Unavailable, "The payment provider cannot be reached.")
	replayed = fault.New(fault.Unavailable, "The payment provider repeats an earlier failure.").WithCode(invoice.CodeReplayed)
	refused  = fault.New(fault.Upstream, "The payment provider refused the request.").WithCode(invoice.CodeRefused)
)

// "Try again" uses the same key: what is under way is not done twice. Only what was answered gets another.
func TestTryAgainSendsNothingBackTwice(t *testing.T) {
	for name, begin := range map[string]func(s *shop) ids.ID{
		"sent back": func(s *shop) ids.ID {
			id := s.paidThere(50_00)
			s.must(s.note(id, 20_00, invoice.BackByStripe))
			return id
		},
		"lowered": func(s *shop) ids.ID { id := s.bill(50_00); s.turn(); s.byHand(id, 20_00); return id },
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			id := begin(s)
			till := &scripted{Till: s.gateway.Till(), fail: func(_ invoice.TillNote, try int) error {
				return map[int]error{1: lost, 2: lost, 3: lost, 4: replayed}[try]
			}}
			s.collect = s.collector(till)
			if err := s.collect.Turn(t.Context()); !errors.Is(err, lost) {
				t.Errorf("%v", err)
			}
			for range 2 {
				_, err := s.collect.Retry(t.Context(), operator, s.org, id, false)
				if !errors.Is(err, lost) {
					t.Errorf("%v", err)
				}
			}
			s.clock.Advance(later)
			_ = s.collect.Turn(t.Context()) // answered: it failed
			s.clock.Advance(later)
			s.turn()
			if len(till.keys) != 5 || till.keys[0] != till.keys[2] || till.keys[2] != till.keys[3] || till.keys[3] == till.keys[4] {
				t.Errorf("%q", till.keys)
			}
			if how := s.how(id); how.Problem != "" {
				t.Errorf("%+v", how)
			}
			s.sound()
		})
	}
}

// A note whose money became credit takes no room at the payment provider from one that it sends back; one that it refuses
// does not keep the next one, and is tried again a day later, or at once when an operator says so.
func TestARefusedNoteKeepsNoOther(t *testing.T) {
	s := newShop(t)
	id := s.bill(100_00)
	s.turn()
	s.byHand(id, 30_00)
	s.turn()
	if problem := s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	s.must(s.note(id, 30_00, invoice.BackAsCredit))
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	s.must(s.note(id, 30_00, invoice.BackByStripe))
	refusing := true
	till := &scripted{Till: s.gateway.Till(), fail: func(n invoice.TillNote, _ int) error {
		if refusing && n.Cents == 40_00 {
			return refused
		}
		return nil
	}}
	s.collect = s.collector(till)
	s.turn()
	refunded := func() int64 {
		p, err := s.gateway.Payment(t.Context(), s.paymentOf(id))
		s.must(err)
		return p.Refunded
	}
	if how := s.how(id); refunded() != 30_00 || how.State == invoice.PushDone || !strings.Contains(how.Problem, "$40.00 of credit note") {
		t.Errorf("%d, %+v", refunded(), how)
	}
	refusing = false
	s.clock.Advance(23 * time.Hour)
	s.turn()
	if refunded() != 30_00 || len(till.keys) != 2 {
		t.Errorf("%d, %q", refunded(), till.keys)
	}
	_, err := s.collect.Retry(t.Context(), operator, s.org, id, false)
	s.must(err)
	if how := s.how(id); refunded() != 70_00 || how.State != invoice.PushDone || how.Problem != "" {
		t.Errorf("%d, %+v", refunded(), how)
	}

	// The customer's bank sends a refund back: somebody has to know.
	s.hear()
	s.must(s.fake.FailRefund(s.paymentOf(id)))
	s.hear()
	s.turn()
	if how := s.how(id); !strings.Contains(how.Problem, "did not reach the customer") {
		t.Errorf("%+v", how)
	}
	list, err := s.collect.Problems(t.Context(), operator)
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	s.must(s.fake.Refund(s.paymentOf(id), 40_00))
	s.hear()
	s.turn()
	if how := s.how(id); how.State != invoice.PushDone || how.Problem != "" {
		t.Errorf("%+v", how)
	}
	s.sound()
}

// Nobody tells of a refund, and a dispute, of an invoice that is done: the comparison finds them.
func TestTheComparisonSeesWhatWentBack(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(30_00)
	if how := s.how(id); how.State != invoice.PushDone {
		t.Fatalf("%+v", how)
	}
	s.must(s.fake.Refund(s.paymentOf(id), 4_00))
	s.clock.Advance(time.Hour)
	compare := func(due int64) {
		t.Helper()
		found, err := s.collect.Compare(t.Context())
		if i := s.get(id); err != nil || len(found.Differences) != 0 || i.Due() != due {
			t.Errorf("%v, %+v, %d due, not %d", err, found.Differences, i.Due(), due)
		}
		s.sound()
	}
	compare(4_00)
	s.must(s.fake.Dispute(s.paymentOf(id)))
	s.clock.Advance(time.Hour)
	compare(30_00)
	s.clock.Advance(time.Hour)
	compare(30_00)
}

// Somebody deletes a draft in the payment provider's pages: its key gives it again, so another one is used.
func TestADraftThatWasDeletedThereIsMadeAnew(t *testing.T) {
	s := newShop(t)
	real := s.gateway.Till()
	till := &crashing{Till: real, at: -1}
	s.collect = s.collector(till)
	deleted, creates := false, 0
	till.before = func(call string) {
		switch {
		case call == "create":
			creates++
		case call == "lines" && !deleted:
			deleted = true
			s.must(real.DeleteDraft(t.Context(), s.one().ID))
		}
	}
	id := s.bill(10_00)
	for range 3 {
		_ = s.collect.Turn(t.Context()) // adding to what is gone fails
		s.clock.Advance(later)
	}
	if there := s.one(); there.Status != "open" || creates != 2 || s.how(id).State != invoice.PushAsked || s.how(id).Problem != "" {
		t.Errorf("%+v, made %d times, %+v", there, creates, s.how(id))
	}
}

// The payment provider does not know a final invoice any more: an operator starts over, and not where money came or nothing is
// due.
func TestStartingOverWhatIsGone(t *testing.T) {
	s := newShop(t)
	id := s.bill(10_00)
	s.turn()
	first := s.refOf(id)
	s.exec("UPDATE invoice_pushes SET ref = 'in_gone' WHERE invoice_id = $1", id)
	s.must(s.fake.VoidInvoice(first))
	s.clock.Advance(later)
	s.turn()
	if how := s.how(id); how.State != invoice.PushStopped || !strings.Contains(how.Problem, "does not know") {
		t.Errorf("%+v", how)
	}
	how, err := s.collect.Retry(t.Context(), operator, s.org, id, true)
	if err != nil || how.State != invoice.PushAsked || how.Problem != "" || s.refOf(id) == first || s.view(id).Status != "open" {
		t.Errorf("%v, %+v, %+v", err, how, s.view(id))
	}
	if problem := s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	code := func() string {
		_, err := s.collect.Retry(t.Context(), operator, s.org, id, true)
		if err == nil {
			return ""
		}
		return fault.Of(err).Code
	}
	if got := code(); got != "nothing_due" {
		t.Errorf("paid: %q", got)
	}
	s.must(s.fake.Refund(s.paymentOf(id), 1_00))
	s.hear()
	if got := code(); got != "paid_there" {
		t.Errorf("refunded: %q", got)
	}
}

// A draft that stopped is looked at once in a turn.
func TestWhatStoppedIsLookedAtOnce(t *testing.T) {
	s := newShop(t)
	till := &crashing{Till: s.gateway.Till(), at: -1, see: func(x *invoice.TillState) { x.Total++ }}
	s.collect = s.collector(till)
	id := s.bill(10_00)
	s.turn()
	reads := 0
	till.before = func(call string) {
		if call == "read" {
			reads++
		}
	}
	s.clock.Advance(later)
	s.turn()
	if how := s.how(id); how.State != invoice.PushStopped || reads != 1 {
		t.Errorf("%+v, read %d times", how, reads)
	}
}

// A payment by hand that never came is taken back once, with a reason, and not when a credit note gave a part of it back.
func TestAPaymentByHandIsReversed(t *testing.T) {
	s := newShop(t)
	id := s.bill(50_00)
	first, wrong := s.byHand(id, 20_00), s.byHand(id, 30_00)
	of := func(i invoice.Invoice, payment ids.ID) invoice.Payment {
		return i.Payments[slices.IndexFunc(i.Payments, func(p invoice.Payment) bool { return p.ID == payment })]
	}
	reverse := func(payment ids.ID, reason string) string {
		_, err := s.bills.ReversePayment(t.Context(), operator, s.org, id, payment, reason)
		if err == nil {
			return ""
		}
		return fault.Of(err).Code
	}
	if _, err := s.bills.ReversePayment(t.Context(), tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}, s.org, id, wrong, "Mine"); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer: %v", err)
	}
	if _, err := s.bills.ReversePayment(t.Context(), operator, s.org, id, wrong, " "); !fault.Is(err, fault.Invalid) {
		t.Errorf("without a reason: %v", err)
	}
	if got := reverse(ids.New(), "No such"); got != "not_found" {
		t.Errorf("no such payment: %q", got)
	}
	if got := reverse(wrong, "Another customer's"); got != "" {
		t.Errorf("%q", got)
	}
	if i, a := s.get(id), s.accounts(); i.State != invoice.Open || i.Due() != 30_00 || a[ledger.Cash] != usd(20_00) || a[ledger.Receivable] != usd(30_00) ||
		of(i, wrong).ReversedWhy != "Another customer's" || of(i, wrong).ReversedAt.IsZero() || !of(i, first).ReversedAt.IsZero() {
		t.Errorf("%+v, %v", i, a)
	}
	if got := reverse(wrong, "Again"); got != "reversed" {
		t.Errorf("twice: %q", got)
	}
	if n := s.number("SELECT count(*) FROM audit_log WHERE action = 'invoice.reverse_payment' AND after->>'reason' = 'Another customer''s'"); n != 1 {
		t.Errorf("%d entries in the audit log", n)
	}
	s.must(s.note(id, 31_00, invoice.BackByHand))
	if got := reverse(first, "Too late"); got != "credited" {
		t.Errorf("credited: %q", got)
	}
	s.sound()
}

// An invoice that moves here wakes the worker, which else looks at none.
func TestOnlyWhatMovedIsWoken(t *testing.T) {
	s := newShop(t)
	id := s.bill(50_00)
	s.turn()
	next := s.how(id).Next
	s.turn()
	if n := s.number("SELECT count(*) FROM invoice_pushes WHERE moved"); n != 0 || !s.how(id).Next.Equal(next) {
		t.Errorf("%d moved, next at %v, not %v", n, s.how(id).Next, next)
	}
	s.byHand(id, 10_00)
	if n := s.number("SELECT count(*) FROM invoice_pushes WHERE moved"); n != 1 {
		t.Errorf("%d moved", n)
	}
	s.turn()
	if n := s.number("SELECT count(*) FROM invoice_pushes WHERE moved"); n != 0 || s.one().Remaining != 40_00 {
		t.Errorf("%d moved, %+v", n, s.one())
	}
}
