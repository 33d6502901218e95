package invoice_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/internal/ids"
	"millrace/tenants"
)

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

// together does all of these at once, each of them n times.
func (s *shop) together(t *testing.T, n int, all ...func(n int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, do := range all {
		wg.Go(func() {
			for i := range n {
				if err := do(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func (s *shop) dunning() func(int) error {
	return func(int) error { return s.collect.Dun(context.Background()) }
}

func (s *shop) limits() func(int) error {
	return func(n int) error {
		return s.desk.SetCreditLimit(context.Background(), tenants.System(), s.org, usd(int64(500_00+n)))
	}
}

// suspensions end with the organization restored.
func (s *shop) suspensions(t *testing.T) func(int) error {
	people := s.people(t)
	return func(int) error {
		if _, err := people.SuspendOrg(context.Background(), operator, s.org); err != nil {
			return err
		}
		_, err := people.RestoreOrg(context.Background(), operator, s.org)
		return err
	}
}

// refunds are of a dollar each.
func (s *shop) refunds(id ids.ID) func(int) error {
	payment := s.paymentOf(id)
	return func(int) error {
		if err := s.fake.Refund(payment, 1_00); err != nil {
			return err
		}
		return s.collect.Settle(context.Background(), s.org, id)
	}
}

// Dunning, limits, suspensions, payments, reversals and refunds of one organization at once: nobody waits for each other in a circle.
func TestDunningBesideEverything(t *testing.T) {
	s := newShop(t)
	third, _ := s.paidOnItsPage(100_00)
	s.month = s.month.AddDate(0, 1, 0)
	first, second := s.overdue(100_00, 14), s.overdue(50_00, 14)
	const times = 20
	_, err := s.bills.ReversePayment(t.Context(), operator, s.org, first, s.byHand(first, 1_00), "So that every account has a balance.") // doc.go
	s.must(err)
	pay := func(id ids.ID) func(int) error {
		return func(n int) error {
			_, err := s.bills.RecordPayment(context.Background(), operator, s.org, id, invoice.PaymentInput{Cents: 1_00, Reference: "transfer", IdempotencyKey: fmt.Sprint(id, n)})
			return err
		}
	}
	never := func(n int) error { // a payment of the first invoice that does not come
		key := fmt.Sprint("never ", n)
		i, err := s.bills.RecordPayment(context.Background(), operator, s.org, first, invoice.PaymentInput{Cents: 2_00, Reference: key, IdempotencyKey: key})
		if err == nil {
			i, err = s.bills.Get(context.Background(), operator, s.org, first)
		}
		if err != nil {
			return err
		}
		for _, p := range i.Payments {
			if p.Reference == key {
				_, err = s.bills.ReversePayment(context.Background(), operator, s.org, first, p.ID, "It never came.")
			}
		}
		return err
	}
	s.together(t, times, s.dunning(), s.dunning(), s.limits(), s.suspensions(t), pay(first), pay(second), never, s.refunds(third))
	s.turn()
	if owed := usd(110_00 + times*1_00); s.accounts()[ledger.Receivable] != owed || s.limit() > owed || s.suspended() {
		t.Errorf("a part is paid: limit %s, suspended %t, %v", s.limit(), s.suspended(), s.accounts())
	}
	s.sound()
	s.paidByHand(first, 80_00)
	s.paidByHand(second, 30_00)
	s.turn()
	s.wantLimit("what is refunded is due only", usd(500_00+times-1), false)
	if i := s.get(third); i.Due() != times*1_00 {
		t.Errorf("%d due", i.Due())
	}
	s.wantNoDeadlock(t)
}
