package invoice_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/ids"
	"millrace/tenants"
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

// Less than a card can pay restricts nobody.
func TestACentSuspendsNobody(t *testing.T) {
	s := newShop(t)
	id := s.bill(invoice.LeastPush - 1)
	s.days(100)
	if got := s.mails(); len(got) != 3 || s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("%q, limit %s, suspended %t", got, s.limit(), s.suspended())
	}
	s.paidByHand(id, invoice.LeastPush-1)
	s.newOrg()
	id = s.bill(100_00)
	if s.days(100); s.limit() != usd(100_00) || !s.suspended() {
		t.Fatalf("limit %s, suspended %t", s.limit(), s.suspended())
	}
	s.paidByHand(id, 100_00-1)
	if s.turn(); s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("a cent is missing: limit %s, suspended %t", s.limit(), s.suspended())
	}
	s.sound()
}

// One mail of what holds now, not of each step on the way.
func TestAWorkerThatWasAwayForLongWritesOnce(t *testing.T) {
	s := newShop(t)
	id := s.bill(100_00)
	s.turn()
	s.clock.Advance((14 + 31) * aDay)
	s.turn()
	if got := s.mails(); len(got) != 1 || got[0] != "Your API keys are suspended" || s.limit() != usd(100_00) {
		t.Errorf("%q, limit %s", got, s.limit())
	}
	if steps, err := s.collect.Dunning(t.Context(), operator, s.org, id); err != nil || len(steps) != 2 {
		t.Errorf("%+v, %v", steps, err)
	}
}

// people are organizations as an operator sees them.
func (s *shop) people(t *testing.T) *tenants.Service {
	t.Helper()
	return tenants.New(s.db, nil, s.clock, silent{}, func(token string) string { return token })
}

func TestAnOperatorsSuspensionStays(t *testing.T) {
	s := newShop(t)
	id := s.bill(100_00)
	s.days(14 + 30)
	if !s.suspended() {
		t.Fatal("not suspended")
	}
	org, err := s.people(t).SuspendOrg(t.Context(), operator, s.org)
	if err != nil || org.SuspendedAt == nil {
		t.Fatal(org, err)
	}
	if n := s.number("select count(*) from audit_log where org_id = $1 and action = 'org.suspend'", s.org); n != 1 {
		t.Errorf("%d audited", n)
	}
	s.paidByHand(id, 100_00)
	if s.turn(); !s.suspended() || s.limit() != usd(1000_00) {
		t.Errorf("paid: suspended %t, limit %s", s.suspended(), s.limit())
	}
	// And the other way round: who was let in again stays in.
	s.newOrg()
	s.bill(100_00)
	s.days(14 + 30)
	_, err = s.people(t).RestoreOrg(t.Context(), operator, s.org)
	s.must(err)
	if s.days(30); s.suspended() {
		t.Error("an operator's restoring is undone")
	}
}

// Organizations that fail do not keep the others from being given back.
func TestASettledInvoiceIsFoundBehindAnyNumberThatFails(t *testing.T) {
	s := newShop(t)
	for range 101 {
		s.newOrg()
		id := s.bill(1_00)
		s.paidByHand(id, 1_00)
		s.exec("insert into invoice_dunning (org_id, invoice_id, step, done_at) values ($1, $2, 14, $3)", s.org, id, s.clock.Now())
		s.exec("insert into dunning_holds (org_id, was_nano, set_nano, limits_set) values ($1, 1000000000000, 1, 1)", s.org)
		s.exec("update orgs set credit_limit_nano = 1 where org_id = $1", s.org)
		s.exec("update budgets set cap_nano = 9223372036854775807 where org_id = $1", s.org) // nothing can be given back to it
	}
	s.newOrg()
	id := s.bill(100_00)
	s.clock.Advance((14 + 30) * aDay)
	for _, want := range []bool{true, false} {
		if err := s.collect.Dun(t.Context()); err == nil || strings.Count(err.Error(), "out of range") != 101 {
			t.Errorf("%v", err)
		}
		if s.suspended() != want {
			t.Errorf("suspended %t, want %t", s.suspended(), want)
		}
		if want {
			s.paidByHand(id, 100_00)
		}
	}
	if s.limit() != usd(1000_00) {
		t.Errorf("limit %s", s.limit())
	}
}
