package invoice_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/ids"
)

// paidOnItsPage is an invoice that the customer paid at the payment provider.
func (s *shop) paidOnItsPage(cents int64) (id ids.ID, payment string) {
	s.t.Helper()
	id = s.bill(cents)
	s.turn()
	for _, x := range s.fake.Invoices() {
		if x.Metadata["invoice_id"] != ids.Format(ids.Invoice, id) {
			continue
		}
		if problem := s.fake.PayInvoice(x.ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
			s.t.Fatal(problem)
		}
	}
	s.hear()
	s.turn()
	for _, x := range s.fake.Invoices() {
		if x.Metadata["invoice_id"] == ids.Format(ids.Invoice, id) {
			payment = x.Payment
		}
	}
	return id, payment
}

// lastMail is what was written last.
func (s *shop) lastMail() (body string) {
	s.t.Helper()
	s.system(func(tx pgx.Tx) error {
		return tx.QueryRow(context.Background(), `select o.body from outbox o where o.recipient in (select u.email from members m join users u on u.id = m.user_id where m.org_id = $1)
			order by o.id desc limit 1`, s.org).Scan(&body)
	})
	return body
}

// paidByHand is money that arrived past the payment provider.
func (s *shop) paidByHand(id ids.ID, cents int64) {
	s.t.Helper()
	_, err := s.bills.RecordPayment(context.Background(), operator, s.org, id, invoice.PaymentInput{Cents: cents, Reference: "transfer", IdempotencyKey: ids.New().String()})
	s.must(err)
}

// What the operator gave back himself is asked for, and never more than that.
func TestARefundLeadsToRemindersOnly(t *testing.T) {
	s := newShop(t)
	id, payment := s.paidOnItsPage(100_00)
	s.days(60)
	if got := s.mails(); len(got) != 0 {
		t.Fatalf("%q", got)
	}
	s.must(s.fake.Refund(payment, 40_00))
	s.hear()
	s.turn()
	if got := s.mails(); len(got) != 1 || s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("refunded: %q, limit %s, suspended %t", got, s.limit(), s.suspended())
	}
	if body := s.lastMail(); strings.Contains(body, "http://pay.example") || !strings.Contains(body, "bank transfer") || !strings.Contains(body, "$40.00") {
		t.Errorf("the mail: %s", body)
	}
	if how := s.how(id); how.URL != "" || !strings.Contains(how.Sentence, "bank transfer") {
		t.Errorf("the page: %+v", how)
	}
	s.days(90)
	if got := s.mails(); len(got) != 3 || s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("90 days later: %q, limit %s, suspended %t", got, s.limit(), s.suspended())
	}
	if body := s.lastMail(); strings.Contains(body, "API keys stop") {
		t.Errorf("what does not come is announced: %s", body)
	}
	s.paidByHand(id, 40_00)
	s.turn()
	if i := s.get(id); i.State != invoice.Paid || len(s.mails()) != 3 {
		t.Errorf("%+v, %q", i, s.mails())
	}
	s.sound()
}

// A dispute takes the money away, long after it came: every step is taken in its time from then on, and undone when it is won.
func TestADisputeCountsFromTheReopening(t *testing.T) {
	s := newShop(t)
	_, payment := s.paidOnItsPage(100_00)
	s.days(60)
	s.must(s.fake.Dispute(payment))
	s.hear()
	s.turn()
	if got := s.mails(); len(got) != 1 || s.limit() != usd(1000_00) || s.suspended() {
		t.Fatalf("disputed: %q, limit %s, suspended %t", got, s.limit(), s.suspended())
	}
	if s.days(13); s.limit() != usd(1000_00) || len(s.mails()) != 3 {
		t.Errorf("13 days later: limit %s, %q", s.limit(), s.mails())
	}
	if s.days(1); s.limit() != usd(100_00) || s.suspended() {
		t.Errorf("14 days later: limit %s", s.limit())
	}
	if s.days(15); s.suspended() {
		t.Error("suspended on day 29")
	}
	if s.days(1); !s.suspended() {
		t.Error("not suspended on day 30")
	}
	s.must(s.fake.CloseDispute(payment, true))
	s.hear()
	s.turn()
	if s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("won: limit %s, suspended %t", s.limit(), s.suspended())
	}
	s.sound()
}

// A refund that was reminded of is one thing, a dispute of the rest another: it begins anew.
func TestADisputeAfterARefundBeginsAnew(t *testing.T) {
	s := newShop(t)
	_, payment := s.paidOnItsPage(100_00)
	s.must(s.fake.Refund(payment, 40_00))
	s.hear()
	s.days(50)
	if got := s.mails(); len(got) != 3 || s.suspended() {
		t.Fatalf("%q", got)
	}
	s.must(s.fake.Dispute(payment))
	s.hear()
	s.turn()
	if got := s.mails(); len(got) != 4 || s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("%q, limit %s, suspended %t", got, s.limit(), s.suspended())
	}
	if s.days(14); s.limit() != usd(100_00) {
		t.Errorf("14 days later: limit %s", s.limit())
	}
}

// It was paid, and disputed before the worker looked: what was restricted is given back until its time comes.
func TestReopenedBeforeTheWorkerLooked(t *testing.T) {
	s := newShop(t)
	s.bill(100_00)
	s.days(14 + 31)
	if s.limit() != usd(100_00) || !s.suspended() {
		t.Fatalf("limit %s, suspended %t", s.limit(), s.suspended())
	}
	if problem := s.fake.PayInvoice(s.one().ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	s.must(s.fake.Dispute(s.one().Payment))
	s.hear()
	s.turn()
	if s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("limit %s, suspended %t", s.limit(), s.suspended())
	}
	s.sound()
}
