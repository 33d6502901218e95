package invoice_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

func (s *shop) sendByHand(by tenants.Actor, id, note ids.ID, key string) (credit.Request, error) {
	out, err := s.bills.SendNoteByHand(context.Background(), by, s.org, id, note, "Their bank took the payment back", key)
	return out.Request, err
}

// refusing lets the payment provider refuse every credit note from now on.
func (s *shop) refusing() *scripted {
	x := &scripted{Till: s.gateway.Till(), fail: func(invoice.TillNote, int) error { return refused }}
	s.collect = s.collector(x)
	return x
}

// reconciled checks that the payment provider's balance is what the books say of it.
func (s *shop) reconciled() {
	s.t.Helper()
	s.must(s.db.InTx(context.Background(), db.System().Snapshot(), func(tx pgx.Tx) error {
		r, err := q.New(tx).TopupsAgainstLedger(context.Background())
		if err == nil && r.Difference != 0 {
			s.t.Errorf("the payment provider's balance differs: %+v", r)
		}
		return err
	}))
	s.sound()
}

func (s *shop) wantCode(what string, err error, code string) {
	s.t.Helper()
	if got := fault.Of(err); got == nil || got.Code != code {
		s.t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// The payment that a credit note was of is lost to a dispute: the payment provider refuses it every day, until an operator has
// sent it by hand. Then it is never asked for again.
func TestACreditNoteOfADisputedPaymentIsSentByHand(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	till := s.refusing()
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	note := s.get(id).Notes[0].ID
	_, err := s.sendByHand(operator, id, note, "early")
	s.wantCode("before the payment provider was asked", err, "being_sent")
	s.must(s.fake.Dispute(s.paymentOf(id)))
	s.hear()
	for range 3 {
		s.turn()
		s.clock.Advance(25 * time.Hour)
	}
	_, err = s.sendByHand(operator, id, note, "due")
	s.wantCode("when it is to be asked again", err, "being_sent")
	s.turn()
	if n := s.get(id).Notes[0]; len(till.keys) != 4 || n.Refused == "" || !n.SentAt.IsZero() {
		t.Fatalf("asked %d times in four days: %+v", len(till.keys), n)
	}
	_, err = s.sendByHand(tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}, id, note, "mine")
	if !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer: %v", err)
	}
	_, err = s.sendByHand(operator, id, ids.New(), "unknown")
	s.wantCode("another note", err, "not_found")
	for range 2 { // the same form
		r, err := s.sendByHand(operator, id, note, "sent")
		if err != nil || r.State != credit.Done {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	_, err = s.sendByHand(operator, id, note, "again")
	s.wantCode("again", err, "sent_by_hand")
	for range 3 {
		s.turn()
		s.clock.Advance(25 * time.Hour)
		_, err := s.collect.Retry(t.Context(), operator, s.org, id, false)
		s.must(err)
	}
	i, a := s.get(id), s.accounts()
	if n := i.Notes[0]; len(till.keys) != 4 || n.SentAt.IsZero() || n.SentWhy == "" || i.Due() != 100_00 {
		t.Errorf("asked %d times, %+v", len(till.keys), n)
	}
	if how := s.how(id); strings.Contains(how.Problem, "does not send back") || !strings.Contains(how.Problem, "$100.00 are due again") {
		t.Errorf("%+v", how)
	}
	if a[ledger.Cash] != -usd(40_00) || a[ledger.StripeClearing]+a[ledger.Fees] != 0 || a[ledger.Refunds] != usd(40_00) {
		t.Errorf("%v", a)
	}
	if got := s.number("SELECT count(*) FROM audit_log WHERE org_id = $1 AND action = 'invoice.send_note'", s.org); got != 1 {
		t.Errorf("%d entries in the audit log", got)
	}
	s.reconciled()
	// The dispute is won in the end: all of the payment is there, and what was sent stays sent.
	s.must(s.fake.CloseDispute(s.paymentOf(id), true))
	s.hear()
	s.turn()
	i = s.get(id)
	if a := s.accounts(); a[ledger.StripeClearing]+a[ledger.Fees] != usd(100_00) || i.Due() != 0 || len(till.keys) != 4 || s.how(id).Problem != "" {
		t.Errorf("won: %v, %+v, asked %d times", a, s.how(id), len(till.keys))
	}
	s.reconciled()
}

// A refund that failed at the customer's bank is sent by hand, too; one that arrived is not.
func TestAFailedRefundIsSentByHand(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	s.turn()
	note := s.get(id).Notes[0].ID
	_, err := s.sendByHand(operator, id, note, "arrived")
	s.wantCode("it arrived", err, "sent_there")
	s.must(s.fake.FailRefund(s.paymentOf(id)))
	s.hear()
	s.turn()
	if how := s.how(id); !strings.Contains(how.Problem, "$40.00 of its credit notes did not reach the customer") {
		t.Errorf("%+v", how)
	}
	_, err = s.sendByHand(operator, id, note, "failed")
	s.must(err)
	for range 2 {
		s.turn()
		s.clock.Advance(7 * time.Hour)
	}
	if how, a := s.how(id), s.accounts(); how.Problem != "" || how.State != invoice.PushDone || a[ledger.Cash] != -usd(40_00) || s.refundedOf(s.paymentOf(id)) != 0 {
		t.Errorf("%+v, %v", how, a)
	}
	s.reconciled()
}

func TestWhatIsNotSentByHand(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	s.must(s.note(id, 10_00, invoice.BackAsCredit))
	_, err := s.sendByHand(operator, id, s.get(id).Notes[0].ID, "credit")
	s.wantCode("what became credit", err, "not_by_provider")
	s.refusing()
	s.clock.Advance(time.Minute)
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	s.turn()
	s.must(s.fake.Refund(s.paymentOf(id), 25_00))
	s.hear()
	_, err = s.sendByHand(operator, id, s.get(id).Notes[1].ID, "part")
	s.wantCode("refunded there in part", err, "refunded_there")
	s.reconciled()
}

// While nobody knows what became of what was asked, nothing is sent by hand: a failure that is only repeated is no refusal. Nor is
// it shortly before the next try, which another machine's clock may begin.
func TestNothingIsSentByHandWhileTheAnswerIsUnknown(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	answers := []error{lost, replayed, refused}
	s.collect = s.collector(&scripted{Till: s.gateway.Till(), fail: func(_ invoice.TillNote, try int) error { return answers[min(try, len(answers))-1] }})
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	note := s.get(id).Notes[0].ID
	for _, what := range []string{"lost", "repeated"} {
		_ = s.collect.Turn(t.Context())
		_, err := s.sendByHand(operator, id, note, what)
		s.wantCode(what, err, "being_sent")
		s.clock.Advance(10 * time.Minute)
	}
	s.turn()
	s.clock.Advance(24*time.Hour - 30*time.Second)
	_, err := s.sendByHand(operator, id, note, "shortly before")
	s.wantCode("shortly before the next try", err, "being_sent")
	s.clock.Advance(time.Hour)
	s.turn()
	_, err = s.sendByHand(operator, id, note, "refused")
	s.must(err)
	s.reconciled()
}

// Above the limit a second operator approves. Many at once send it once.
func TestSendingByHandIsApprovedAndDoneOnce(t *testing.T) {
	s := newShop(t)
	s.desk.ApproveAbove(50 * money.NanoPerUSD)
	id := s.paidThere(100_00)
	s.refusing()
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	s.turn()
	note := s.get(id).Notes[0].ID
	r, err := s.sendByHand(operator, id, note, "with the note, above the limit")
	if err != nil || r.State != credit.Waiting || !s.get(id).Notes[0].SentAt.IsZero() {
		t.Fatalf("%+v, %v", r, err)
	}
	var done atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			second := tenants.Actor{User: ids.New(), Operator: true}
			if _, err := s.desk.Approve(context.Background(), second, r.ID); err == nil {
				done.Add(1)
			}
			if r, err := s.sendByHand(second, id, note, ids.New().String()); err == nil && r.State == credit.Done {
				done.Add(1)
			}
		})
	}
	all.Wait()
	if a := s.accounts(); done.Load() != 1 || a[ledger.Cash] != -usd(40_00) {
		t.Errorf("done %d times: %v", done.Load(), a)
	}
	s.reconciled()
}

// beforehand is a till that tells what was there before something happened.
type beforehand struct {
	invoice.Till
	then func()
}

func (x *beforehand) Invoice(ctx context.Context, ref string) (invoice.TillState, error) {
	seen, err := x.Till.Invoice(ctx, ref)
	if then := x.then; then != nil {
		x.then = nil
		then()
	}
	return seen, err
}

// Somebody looked before a credit note was sent back, and books afterwards: what he saw is not told by the notes of now. It would
// look as if an earlier refund had failed.
func TestALookBeforeACreditNoteWasSentBooksNothing(t *testing.T) {
	s := newShop(t)
	id := s.paidThere(100_00)
	s.must(s.fake.Refund(s.paymentOf(id), 30_00))
	s.hear()
	s.byHand(id, 30_00)
	s.turn()
	s.must(s.note(id, 40_00, invoice.BackByStripe))
	before, txns := s.accounts(), s.number("SELECT count(*) FROM ledger_txns WHERE org_id = $1", s.org)
	late := s.collector(&beforehand{Till: s.gateway.Till(), then: func() { s.must(invoice.TakeStep(context.Background(), s.collect, s.org, id)) }})
	s.must(late.Settle(t.Context(), s.org, id))
	after := s.accounts()
	if n := s.number("SELECT count(*) FROM ledger_txns WHERE org_id = $1", s.org); n != txns || after[ledger.PrepaidPaid] != before[ledger.PrepaidPaid] || after[ledger.StripeClearing] != before[ledger.StripeClearing] {
		t.Errorf("%d transactions more: %v, and before %v", n-txns, after, before)
	}
	s.turn()
	if s.refundedOf(s.paymentOf(id)) != 70_00 || s.how(id).Problem != "" {
		t.Errorf("%+v", s.how(id))
	}
	s.reconciled()
}
