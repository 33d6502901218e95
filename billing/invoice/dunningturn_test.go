package invoice_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"millrace/billing/invoice"
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

// Dunning, limits, suspensions and payments of one organization at once: nobody waits for each other in a circle.
func TestDunningBesideEverything(t *testing.T) {
	s := newShop(t)
	first, second := s.overdue(100_00, 14), s.overdue(50_00, 14)
	people, ctx := s.people(t), t.Context()
	pay := func(id ids.ID) func(int) error {
		return func(n int) error {
			_, err := s.bills.RecordPayment(ctx, operator, s.org, id, invoice.PaymentInput{Cents: 1_00, Reference: "transfer", IdempotencyKey: fmt.Sprint(id, n)})
			return err
		}
	}
	var all sync.WaitGroup
	for _, do := range []func(n int) error{
		func(int) error { return s.collect.Dun(ctx) },
		func(int) error { return s.collect.Dun(ctx) },
		func(n int) error { return s.desk.SetCreditLimit(ctx, tenants.System(), s.org, usd(int64(500_00+n))) },
		func(int) error { _, err := people.SuspendOrg(ctx, operator, s.org); return err },
		func(int) error { _, err := people.RestoreOrg(ctx, operator, s.org); return err },
		pay(first), pay(second),
	} {
		all.Go(func() {
			for n := range 20 {
				if err := do(n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, err := people.RestoreOrg(ctx, operator, s.org)
	s.must(err)
	s.turn()
	s.wantLimit("a part is paid", usd(110_00), false)
	s.paidByHand(first, 80_00)
	s.paidByHand(second, 30_00)
	s.turn()
	s.wantLimit("all is paid", usd(500_00+19), false)
}
