package invoice_test

import (
	"context"
	"testing"

	"millrace/billing/invoice"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// overdue makes an invoice of the next month and lets it stay unpaid for days.
func (s *shop) overdue(cents int64, days int) ids.ID {
	s.t.Helper()
	id := s.bill(cents)
	s.month = s.month.AddDate(0, 1, 0)
	s.days(14 + days)
	return id
}

func (s *shop) wantLimit(what string, limit money.Nano, suspended bool) {
	s.t.Helper()
	if s.limit() != limit || s.suspended() != suspended {
		s.t.Errorf("%s: limit %s, suspended %t; want %s, %t", what, s.limit(), s.suspended(), limit, suspended)
	}
	s.sound()
}

func (s *shop) setLimit(limit money.Nano) {
	s.t.Helper()
	s.must(s.desk.SetCreditLimit(context.Background(), tenants.System(), s.org, limit))
}

func (s *shop) giveUp(id ids.ID) {
	s.t.Helper()
	_, err := s.bills.WriteOff(context.Background(), tenants.System(), s.org, id, "They are gone.", ids.New().String())
	s.must(err)
}

func TestTheLimitComesBackInAnyOrder(t *testing.T) {
	for name, order := range map[string][]int{"the first first": {0, 1}, "the second first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			cents := []int64{100_00, 50_00}
			invoices := []ids.ID{s.overdue(cents[0], 20), s.overdue(cents[1], 20)}
			s.wantLimit("both are due", usd(100_00), true)
			for n, i := range order {
				s.paidByHand(invoices[i], cents[i])
				s.turn()
				if n == 0 {
					s.wantLimit("one is paid", min(usd(100_00), usd(150_00-cents[i])), s.suspended())
				}
			}
			s.wantLimit("both are paid", usd(1000_00), false)
		})
	}
}

func TestAnOperatorsLimitBetweenStays(t *testing.T) {
	for name, limit := range map[string]money.Nano{"higher": usd(300_00), "lower": usd(20_00), "the same": usd(100_00)} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			first := s.overdue(100_00, 20)
			s.wantLimit("one is due", usd(100_00), false)
			s.setLimit(limit)
			second := s.overdue(50_00, 20)
			s.wantLimit("both are due", min(limit, usd(150_00)), true)
			s.paidByHand(second, 50_00)
			s.turn()
			s.paidByHand(first, 100_00)
			s.turn()
			s.wantLimit("both are paid", limit, false)
		})
	}
}

// Giving up undoes nothing and frees nothing; what holds because of it ends with an operator's decision, or the money.
func TestGivingUpFreesNoCredit(t *testing.T) {
	s := newShop(t)
	first := s.overdue(100_00, 31)
	s.wantLimit("due", usd(100_00), true)
	s.giveUp(first)
	s.wantLimit("given up", 0, true)
	if got := s.available(); got != 0 {
		t.Errorf("%s may be spent", got)
	}
	s.days(3)
	s.wantLimit("days later", 0, true)
	_, err := s.people(t).RestoreOrg(t.Context(), operator, s.org)
	s.must(err)
	s.setLimit(usd(500_00))
	s.days(3)
	s.wantLimit("an operator gave another limit", usd(500_00), false)
	second := s.overdue(50_00, 31)
	s.wantLimit("the next is due", usd(50_00), true)
	s.paidByHand(second, 50_00)
	s.turn()
	s.wantLimit("the next is paid", usd(500_00), false)
}

func TestMoneyForWhatWasGivenUpGivesBack(t *testing.T) {
	s := newShop(t)
	id := s.overdue(100_00, 31)
	s.giveUp(id)
	s.paidByHand(id, 100_00)
	s.turn()
	s.wantLimit("paid after all", usd(900_00), false) // a write-off takes its sum off the limit, until an operator gives it back
}

// A part of an invoice was given up; that another part never came is no new invoice, and lifts nothing.
func TestAPaymentThatNeverCameLiftsNothing(t *testing.T) {
	s := newShop(t)
	id := s.bill(100_00)
	s.paidByHand(id, 40_00)
	s.days(14 + 31)
	s.wantLimit("due", usd(60_00), true)
	s.giveUp(id)
	s.wantLimit("given up", 0, true)
	_, err := s.bills.ReversePayment(t.Context(), operator, s.org, id, s.get(id).Payments[0].ID, "It never came.")
	s.must(err)
	s.turn()
	s.wantLimit("it never came", 0, true)
	if i := s.get(id); i.State != invoice.Open || i.Due() != 40_00 {
		t.Errorf("%s, %d due", i.State, i.Due())
	}
}

// Before the limit is reduced, giving up frees nothing either.
func TestAnEarlyWriteOffLowersTheLimit(t *testing.T) {
	s := newShop(t)
	id := s.bill(100_00)
	before := s.available()
	s.giveUp(id)
	s.wantLimit("given up", usd(900_00), false)
	if got := s.available(); got != before {
		t.Errorf("%s may be spent, %s before", got, before)
	}
	if s.get(id).State != invoice.Uncollectible {
		t.Error(s.get(id).State)
	}
}

// Money that comes does not free the limit again while something is overdue.
func TestTheLimitFollowsWhatIsOwed(t *testing.T) {
	s := newShop(t)
	id := s.overdue(100_00, 14)
	s.wantLimit("due", usd(100_00), false)
	s.paidByHand(id, 40_00)
	s.turn()
	s.wantLimit("a part is paid", usd(60_00), false)
	if got := s.available(); got != 0 {
		t.Errorf("%s may be spent", got)
	}
	s.paidByHand(id, 60_00)
	s.turn()
	s.wantLimit("all is paid", usd(1000_00), false)
}
