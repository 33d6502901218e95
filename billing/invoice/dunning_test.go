package invoice_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

const aDay = 24 * time.Hour

// mails are the subjects of what was written to the organization after it was told of its invoice, oldest first.
func (s *shop) mails() (subjects []string) {
	s.t.Helper()
	s.system(func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), `select o.subject from outbox o where o.recipient in (select u.email from members m join users u on u.id = m.user_id where m.org_id = $1)
			and o.subject not like 'Invoice % for %' order by o.id`, s.org)
		if err == nil {
			subjects, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	return subjects
}

func (s *shop) limit() money.Nano {
	return money.Nano(s.number("select credit_limit_nano from orgs where org_id = $1", s.org))
}

func (s *shop) suspended() bool {
	return s.number("select count(*) from orgs where org_id = $1 and suspended_at is not null", s.org) == 1
}

// available is what may be spent.
func (s *shop) available() money.Nano {
	return money.Nano(s.number("select cap_nano - settled_nano - outstanding_nano from budgets where org_id = $1 and kind = 'balance'", s.org))
}

func (s *shop) days(n int) {
	s.t.Helper()
	for range n {
		s.clock.Advance(aDay)
		s.turn()
	}
}

func TestWhoDoesNotPayIsRemindedAndRestrictedStepByStep(t *testing.T) {
	for name, provider := range map[string]bool{"with a payment provider": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			if !provider {
				s.collect = s.collector(nil)
			}
			id := s.bill(100_00)
			s.turn()
			if s.days(13); len(s.mails()) != 0 {
				t.Errorf("before it is due: %v", s.mails())
			}
			for _, c := range []struct {
				days      int
				mails     int
				limit     money.Nano
				suspended bool
			}{{2, 1, usd(1000_00), false}, {1, 1, usd(1000_00), false}, {1, 2, usd(1000_00), false}, {4, 3, usd(1000_00), false}, {6, 3, usd(1000_00), false},
				{1, 4, usd(100_00), false}, {15, 4, usd(100_00), false}, {1, 5, usd(100_00), true}, {60, 5, usd(100_00), true}} {
				s.days(c.days)
				if got := s.mails(); len(got) != c.mails || s.limit() != c.limit || s.suspended() != c.suspended {
					t.Errorf("%d days later: %q, limit %s, suspended %t; want %+v", c.days, got, s.limit(), s.suspended(), c)
				}
				s.sound()
			}
			if got := s.available(); got != 0 {
				t.Errorf("%s may be spent", got)
			}
			steps, err := s.collect.Dunning(t.Context(), tenants.System(), s.org, id)
			if err != nil || len(steps) != 5 || steps[3].Day != 14 || steps[4].What != "suspended" || !steps[4].Undone.IsZero() {
				t.Errorf("%+v, %v", steps, err)
			}
			if n := s.number("select count(*) from audit_log where action = 'invoice.remind' and org_id = $1", s.org); n != 5 {
				t.Errorf("%d audited", n)
			}
			_, err = s.bills.RecordPayment(t.Context(), operator, s.org, id, invoice.PaymentInput{Cents: 100_00, Reference: "transfer", IdempotencyKey: "1"})
			s.must(err)
			s.turn()
			s.turn()
			if s.limit() != usd(1000_00) || s.suspended() || s.available() != usd(1000_00) || len(s.mails()) != 6 || !strings.Contains(s.mails()[5], "Thank you") {
				t.Errorf("paid: limit %s, suspended %t, %s may be spent, %q", s.limit(), s.suspended(), s.available(), s.mails())
			}
			s.sound()
		})
	}
}

// A worker that was away sends the last reminder that is due, not all of them at once.
func TestAWorkerThatWasAwayRemindsOnce(t *testing.T) {
	s := newShop(t)
	s.bill(100_00)
	s.turn()
	s.clock.Advance((14 + 8) * aDay)
	s.turn()
	if got := s.mails(); len(got) != 1 || !strings.HasPrefix(got[0], "Last reminder") {
		t.Errorf("%q", got)
	}
}

func TestADeclinedCardBeginsTheReminders(t *testing.T) {
	s := newShop(t)
	s.keepCard(stripefake.CardDeclinesKept)
	s.bill(100_00)
	s.turn()
	s.turn()
	if got := s.mails(); len(got) != 1 || !strings.HasPrefix(got[0], "Your card was declined") {
		t.Errorf("%q", got)
	}
	s.days(4)
	if got := s.mails(); len(got) != 2 || !strings.HasPrefix(got[1], "Reminder") {
		t.Errorf("%q", got)
	}
}

// What an operator decides meanwhile stays; what two invoices took comes back when both are paid.
func TestUndoingLeavesWhatOthersDecided(t *testing.T) {
	s := newShop(t)
	pay := func(id ids.ID, cents int64) {
		t.Helper()
		_, err := s.bills.RecordPayment(t.Context(), operator, s.org, id, invoice.PaymentInput{Cents: cents, Reference: "transfer", IdempotencyKey: id.String()})
		s.must(err)
		s.turn()
	}
	first := s.bill(100_00)
	s.turn()
	s.month = s.month.AddDate(0, 1, 0)
	s.days(31)
	second := s.bill(50_00)
	s.days(14 + 30)
	if s.limit() != usd(100_00) || !s.suspended() {
		t.Fatalf("limit %s, suspended %t", s.limit(), s.suspended())
	}
	pay(first, 100_00)
	if s.limit() != usd(50_00) || !s.suspended() {
		t.Errorf("the second is not paid: limit %s, suspended %t", s.limit(), s.suspended())
	}
	pay(second, 50_00)
	if s.limit() != usd(1000_00) || s.suspended() {
		t.Errorf("both are paid: limit %s, suspended %t", s.limit(), s.suspended())
	}
	s.sound()

	s.newOrg()
	id := s.bill(100_00)
	s.days(14 + 30)
	s.must(s.desk.SetCreditLimit(t.Context(), operator, s.org, usd(300_00)))
	s.exec("update orgs set suspended_at = $2 where org_id = $1", s.org, s.clock.Now().Add(time.Hour))
	pay(id, 100_00)
	if s.limit() != usd(300_00) || !s.suspended() {
		t.Errorf("an operator's decision is undone: limit %s, suspended %t", s.limit(), s.suspended())
	}
	s.sound()
}

func TestTheComparisonTellsWhatDiffers(t *testing.T) {
	s := newShop(t)
	ctx := t.Context()
	compare := func() invoice.Comparison {
		t.Helper()
		s.clock.Advance(10 * time.Minute)
		c, err := s.collect.Compare(ctx)
		s.must(err)
		last, err := s.collect.LastComparison(ctx, operator)
		s.must(err)
		if !last.At.Equal(c.At) || !slices.Equal(last.Differences, c.Differences) || last.Invoices != c.Invoices {
			t.Errorf("%+v was kept of %+v", last, c)
		}
		return c
	}
	id := s.bill(50_00)
	s.turn()
	if c := compare(); c.Invoices != 1 || len(c.Differences) != 0 {
		t.Errorf("%+v", c)
	}
	s.must(s.fake.VoidInvoice(s.one().ID))
	if c := compare(); len(c.Differences) != 1 || !strings.Contains(c.Differences[0].What, "void there") {
		t.Errorf("%+v", c)
	}
	s.hear()
	s.turn()
	if how := s.how(id); how.State != invoice.PushStopped || !strings.Contains(how.Problem, "voided") {
		t.Errorf("%+v", how)
	}
	if _, err := s.collect.Retry(ctx, operator, s.org, id, true); err != nil { // asks anew: the voided one keeps its number
		t.Fatal(err)
	}
	all := s.fake.Invoices()
	if len(all) != 2 || all[1].Status != "open" {
		t.Fatalf("%+v", all)
	}
	if c := compare(); c.Invoices != 2 || len(c.Differences) != 0 {
		t.Errorf("%+v", c)
	}
	// Somebody makes another one for the same invoice in the payment provider's pages.
	var customer string
	s.system(func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "select customer_id from payment_customers where org_id = $1", s.org).Scan(&customer)
	})
	till := s.gateway.Till()
	twin, err := till.CreateInvoice(ctx, invoice.TillInvoice{Org: s.org, Invoice: id, Number: "TWIN", Attempt: 99, Customer: customer, Days: 14})
	s.must(err)
	s.must(till.AddLine(ctx, twin, invoice.TillLine{Key: "l1", Text: "Twin", Cents: 50_00}, 1))
	_, err = till.FinalizeInvoice(ctx, twin.Ref, 1)
	s.must(err)
	stranger, err := till.CreateInvoice(ctx, invoice.TillInvoice{Org: s.org, Invoice: ids.New(), Number: "STRANGER", Attempt: 1, Customer: customer, Days: 14})
	s.must(err)
	c := compare()
	var what []string
	for _, d := range c.Differences {
		what = append(what, d.Ref+" "+d.What)
	}
	slices.Sort(what)
	text := strings.Join(what, "\n")
	if len(what) != 2 || !strings.Contains(text, twin.Ref+" the payment provider asks for") || !strings.Contains(text, stranger.Ref+" the payment provider has an invoice that is not known here") {
		t.Errorf("%s", text)
	}
}
