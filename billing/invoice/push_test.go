package invoice_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/db"
	"millrace/internal/ids"
	"millrace/tenants"
)

// one is the only invoice that the payment provider has.
func (s *shop) one() stripefake.InvoiceView {
	s.t.Helper()
	all := s.fake.Invoices()
	if len(all) != 1 {
		s.t.Fatalf("%d invoices at the payment provider: %+v", len(all), all)
	}
	return all[0]
}

func (s *shop) wantPaid(id ids.ID, cents int64) {
	s.t.Helper()
	i, a := s.get(id), s.accounts()
	if i.State != invoice.Paid || i.Paid != cents || i.Due() != 0 || len(i.Payments) != 1 || i.Payments[0].Method != "stripe" {
		s.t.Errorf("the invoice is %s with %d paid by %+v", i.State, i.Paid, i.Payments)
	}
	if a[ledger.Receivable] != 0 || a[ledger.StripeClearing]+a[ledger.Fees] != usd(cents) || a[ledger.Fees] <= 0 {
		s.t.Errorf("the books: %v", a)
	}
	s.sound()
}

func TestAnInvoiceIsSentAndPaidOnItsPage(t *testing.T) {
	s := newShop(t)
	id := s.bill(12_00, 34, 0, 5)
	s.turn()
	there := s.one()
	if there.Status != "open" || there.Total != 12_39 || len(there.Lines) != 3 || there.Sent != 1 || there.Metadata["invoice_id"] != ids.Format(ids.Invoice, id) {
		t.Errorf("%+v", there)
	}
	if days := there.Due.Sub(s.clock.Now()).Hours() / 24; days < 13.9 || days > 14.1 {
		t.Errorf("due in %v days", days)
	}
	how := s.how(id)
	if how.State != invoice.PushAsked || !strings.HasPrefix(how.URL, "http://pay.example/invoice/") || how.PDF == "" || how.Problem != "" || how.Charge {
		t.Errorf("%+v", how)
	}
	if problem := s.fake.PayInvoice(there.ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	s.wantPaid(id, 12_39)
	s.turn()
	if how := s.how(id); how.State != invoice.PushDone || !how.Next.IsZero() || how.URL != "" {
		t.Errorf("%+v", how)
	}
}

// Event, page and comparison each know that it was paid, in any order and often: it is booked once.
func TestPaidOnceWhoeverHearsFirst(t *testing.T) {
	ways := map[string]func(s *shop, id ids.ID){
		"event":      func(s *shop, _ ids.ID) { s.hear() },
		"page":       func(s *shop, id ids.ID) { s.must(s.collect.Settle(context.Background(), s.org, id)) },
		"comparison": func(s *shop, _ ids.ID) { _, err := s.collect.Compare(context.Background()); s.must(err) },
	}
	for first := range ways {
		t.Run(first, func(t *testing.T) {
			s := newShop(t)
			id := s.bill(40_00)
			s.turn()
			if problem := s.fake.PayInvoice(s.one().ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
				t.Fatal(problem)
			}
			ways[first](s, id)
			s.wantPaid(id, 40_00)
			for _, way := range ways {
				way(s, id)
			}
			s.turn()
			s.wantPaid(id, 40_00)
		})
	}
}

func TestTheKeptCardIsChargedWhenThatIsAgreed(t *testing.T) {
	s := newShop(t)
	s.keepCard(stripefake.CardGood)
	id := s.bill(99_00)
	s.turn()
	if there := s.one(); there.Status != "paid" || there.Sent != 0 || there.Attempts != 1 {
		t.Errorf("%+v", there)
	}
	s.wantPaid(id, 99_00)
}

func TestADeclinedCardIsTriedAgainWithTheReminders(t *testing.T) {
	s := newShop(t)
	s.keepCard(stripefake.CardDeclinesKept)
	id := s.bill(99_00)
	s.turn()
	how := s.how(id)
	if s.one().Attempts != 1 || how.State != invoice.PushAsked || !strings.Contains(how.Sentence, "declined") || how.URL == "" {
		t.Errorf("%+v, %+v", s.one(), how)
	}
	for _, c := range []struct {
		after    time.Duration
		attempts int64
	}{{time.Hour, 1}, {2 * 24 * time.Hour, 1}, {24 * time.Hour, 2}, {24 * time.Hour, 2}, {4 * 24 * time.Hour, 3}, {20 * 24 * time.Hour, 3}} {
		s.clock.Advance(c.after)
		s.turn()
		s.turn()
		if got := s.one().Attempts; got != c.attempts {
			t.Errorf("%v later: %d attempts, not %d", c.after, got, c.attempts)
		}
	}
	s.keepCard(stripefake.CardGood) // another card is tried within the hour
	s.clock.Advance(2 * time.Hour)
	s.turn()
	s.wantPaid(id, 99_00)
}

func TestWhatIsPaidPastTheProviderIsClosedThere(t *testing.T) {
	s := newShop(t)
	id := s.bill(50_00)
	s.turn()
	_, err := s.bills.RecordPayment(context.Background(), operator, s.org, id, invoice.PaymentInput{Cents: 20_00, Reference: "transfer 1", IdempotencyKey: "1"})
	s.must(err)
	s.turn()
	if there := s.one(); there.Remaining != 30_00 || there.Status != "open" {
		t.Errorf("after a part: %+v", there)
	}
	_, err = s.bills.RecordPayment(context.Background(), operator, s.org, id, invoice.PaymentInput{Cents: 30_00, Reference: "transfer 2", IdempotencyKey: "2"})
	s.must(err)
	s.turn()
	s.hear()
	s.turn()
	if there := s.one(); there.Status != "paid" || !there.OutOfBand {
		t.Errorf("%+v", there)
	}
	if i, a := s.get(id), s.accounts(); i.State != invoice.Paid || a[ledger.Cash] != usd(50_00) || a[ledger.StripeClearing] != 0 {
		t.Errorf("%+v, %v", i, a)
	}
	if how := s.how(id); how.State != invoice.PushDone || how.Problem != "" {
		t.Errorf("%+v", how)
	}
	s.sound()
}

func TestCreditNotesAndGivingUpReachTheProvider(t *testing.T) {
	s := newShop(t)
	ctx := context.Background()
	id := s.bill(50_00)
	s.turn()
	_, err := s.bills.CreditNote(ctx, operator, s.org, id, invoice.NoteInput{Cents: 10_00, Reason: "Too slow", IdempotencyKey: "n1"})
	s.must(err)
	s.turn()
	if there := s.one(); there.Remaining != 40_00 || there.Credited != 10_00 {
		t.Errorf("%+v", there)
	}
	if problem := s.fake.PayInvoice(s.one().ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	_, err = s.bills.CreditNote(ctx, operator, s.org, id, invoice.NoteInput{Cents: 15_00, Reason: "Far too slow", Back: invoice.BackByStripe, IdempotencyKey: "n2"})
	s.must(err)
	_, err = s.bills.CreditNote(ctx, operator, s.org, id, invoice.NoteInput{Cents: 5_00, Reason: "As credit", IdempotencyKey: "n3"})
	s.must(err)
	s.turn()
	s.hear()
	s.turn()
	there := s.one()
	p, err := s.gateway.Payment(ctx, there.Payment)
	if err != nil || p.Refunded != 15_00 || there.CreditedOfMoney != 15_00 { // what became credit is not told there
		t.Errorf("%+v, %+v, %v", p, there, err)
	}
	i, a := s.get(id), s.accounts()
	if i.State != invoice.Paid || a[ledger.StripeClearing]+a[ledger.Fees] != usd(25_00) || a[ledger.PrepaidPaid] != -usd(5_00) || a[ledger.Receivable] != 0 {
		t.Errorf("%+v, %v", i, a)
	}
	s.sound()

	s.newOrg()
	id = s.bill(7_00)
	s.turn()
	_, err = s.bills.WriteOff(ctx, operator, s.org, id, "Gone", "w1")
	s.must(err)
	s.turn()
	all := s.fake.Invoices()
	if there := all[1]; there.Status != "uncollectible" {
		t.Errorf("%+v", there)
	}
	if problem := s.fake.PayInvoice(all[1].ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" { // and it comes after all
		t.Fatal(problem)
	}
	s.hear()
	if i, a := s.get(id), s.accounts(); i.Paid != 7_00 || i.GivenUp != 0 || a[ledger.BadDebt] != 0 {
		t.Errorf("%+v, %v", i, a)
	}
	s.sound()

	s.newOrg()
	id = s.bill(8_00)
	s.turn()
	_, err = s.bills.CreditNote(ctx, operator, s.org, id, invoice.NoteInput{Cents: 8_00, Reason: "All of it", IdempotencyKey: "n4"})
	s.must(err)
	s.turn()
	if there := s.fake.Invoices()[2]; there.Status != "void" || s.get(id).State != invoice.Void {
		t.Errorf("%+v, %+v", there, s.get(id))
	}
}

func TestRefundsAndDisputesOfAnInvoiceMakeItDueAgain(t *testing.T) {
	s := newShop(t)
	id := s.bill(30_00)
	s.turn()
	if problem := s.fake.PayInvoice(s.one().ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	payment := s.one().Payment
	s.must(s.fake.Refund(payment, 4_00))
	s.hear()
	if i, a := s.get(id), s.accounts(); i.State != invoice.Open || i.Due() != 4_00 || a[ledger.Receivable] != usd(4_00) {
		t.Errorf("refunded: %+v, %v", i, a)
	}
	s.sound()
	s.must(s.fake.Dispute(payment))
	s.hear()
	if i := s.get(id); i.State != invoice.Open || i.Due() != 30_00 {
		t.Errorf("disputed: %+v", i)
	}
	s.sound()
	s.turn()
	if how := s.how(id); !strings.Contains(how.Problem, "taken back") || how.TakenBack != 30_00 {
		t.Errorf("%+v", how)
	}
	s.must(s.fake.CloseDispute(payment, true))
	s.hear()
	if i, a := s.get(id), s.accounts(); i.Due() != 4_00 || a[ledger.StripeClearing]+a[ledger.Fees] != usd(26_00) {
		t.Errorf("won: %+v, %v", i, a)
	}
	s.sound()
}

// Somebody meddles with a draft: it is never finalised, the operator sees why, and can start over.
func TestWhatDiffersIsNeverFinalised(t *testing.T) {
	s := newShop(t)
	till := &crashing{Till: s.gateway.Till(), at: -1}
	s.collect = s.collector(till)
	till.before = func(call string) {
		if call == "finalize" {
			return
		}
		if call == "lines" && len(s.fake.Invoices()) == 1 && len(s.one().Lines) == 1 {
			s.must(s.fake.AddLine(s.one().ID, 5_00, "A present"))
		}
	}
	id := s.bill(10_00)
	s.turn()
	if there, how := s.one(), s.how(id); there.Status != "draft" || how.State != invoice.PushStopped || !strings.Contains(how.Problem, "A present") {
		t.Errorf("%+v, %+v", there, how)
	}
	list, err := s.collect.Problems(t.Context(), operator)
	if err != nil || len(list) != 1 || list[0].Invoice != id || !strings.Contains(list[0].Problem, "A present") {
		t.Errorf("%+v, %v", list, err)
	}
	till.before = nil
	s.clock.Advance(7 * time.Hour)
	s.turn()
	if there := s.one(); there.Status != "draft" {
		t.Errorf("%+v", there)
	}
	if _, err := s.collect.Retry(t.Context(), tenants.Actor{Org: s.org, Role: tenants.Owner}, s.org, id, true); err == nil {
		t.Error("a customer starts over")
	}
	how, err := s.collect.Retry(t.Context(), operator, s.org, id, true)
	if there := s.one(); err != nil || there.Status != "open" || there.Total != 10_00 || how.State != invoice.PushAsked || how.Problem != "" {
		t.Errorf("%+v, %+v, %v", there, how, err)
	}
}

func TestWithoutAProviderInvoicesArePaidByHand(t *testing.T) {
	s := newShop(t)
	s.collect = s.collector(nil)
	id := s.bill(10_00)
	s.turn()
	if how := s.how(id); how.State != invoice.PushOff || !strings.Contains(how.Sentence, "bank transfer") || len(s.fake.Invoices()) != 0 {
		t.Errorf("%+v", how)
	}
	if err := s.collect.Settle(t.Context(), s.org, id); err == nil {
		t.Error("settled by nobody")
	}
	_, err := s.bills.RecordPayment(t.Context(), operator, s.org, id, invoice.PaymentInput{Cents: 10_00, Reference: "transfer", IdempotencyKey: "1"})
	s.must(err)
	s.turn()
	if s.get(id).State != invoice.Paid {
		t.Errorf("%+v", s.get(id))
	}
	s.sound()
}

func TestManyLinesAreAtMost250(t *testing.T) {
	s := newShop(t)
	cents := make([]int64, 400)
	var total int64
	for i := range cents {
		cents[i] = int64(i%7) + 1
		total += cents[i]
	}
	s.bill(cents...)
	s.turn()
	there := s.one()
	if there.Status != "open" || there.Total != total || len(there.Lines) > 250 || there.Lines[len(there.Lines)-1] != "Other usage, see the statement in the console" {
		t.Errorf("%s, %d, %d lines, the last %q", there.Status, there.Total, len(there.Lines), there.Lines[len(there.Lines)-1])
	}
}

var errCrash = errors.New("crashed")

// A customer who comes back from paying sees it, without an event; a page that shows itself anew does not ask each time.
func TestThePageSeesThePayment(t *testing.T) {
	s := newShop(t)
	owner := tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}
	till := &crashing{Till: s.gateway.Till(), at: -1}
	reads := 0
	till.before = func(call string) {
		if call == "read" {
			reads++
		}
	}
	id := s.bill(12_00)
	s.turn()
	s.collect = s.collector(till)
	look := func() invoice.Collection {
		t.Helper()
		c, err := s.collect.Look(t.Context(), owner, s.org, id)
		s.must(err)
		return c
	}
	for range 5 {
		if c := look(); c.URL == "" || c.Ref != "" || reads != 1 {
			t.Errorf("%+v, asked %d times", c, reads)
		}
	}
	if problem := s.fake.PayInvoice(s.one().ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.clock.Advance(time.Minute)
	if c := look(); c.URL != "" || c.Sentence != "" {
		t.Errorf("%+v", c)
	}
	s.wantPaid(id, 12_00)
	if _, err := s.collect.Look(t.Context(), tenants.Actor{User: ids.New(), Org: ids.New(), Role: tenants.Owner}, s.org, id); err == nil {
		t.Error("another organization looks")
	}
}

func TestACustomerWhoWasDeletedThereIsMadeAnew(t *testing.T) {
	s := newShop(t)
	s.exec("insert into payment_customers (org_id, customer_id, created_at, updated_at) values ($1, 'cus_gone', now(), now())", s.org)
	id := s.bill(12_00)
	s.turn()
	if there := s.one(); there.Status != "open" || s.how(id).State != invoice.PushAsked {
		t.Errorf("%+v, %+v", there, s.how(id))
	}
}

// The lines are ours and the total is not: a tax that the payment provider adds, a discount. It is never finalised.
func TestATotalThatDiffersIsNeverFinalised(t *testing.T) {
	for name, tamper := range map[string]func(s *invoice.TillState){"total": func(s *invoice.TillState) { s.Total++ }, "currency": func(s *invoice.TillState) { s.Currency = "eur" }} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			till := &crashing{Till: s.gateway.Till(), at: -1, see: tamper}
			s.collect = s.collector(till)
			id := s.bill(10_00)
			for range 4 {
				s.turn()
				s.clock.Advance(later)
			}
			if there, how := s.one(), s.how(id); there.Status != "draft" || how.State != invoice.PushStopped || !strings.Contains(how.Problem, "lines come to") || strings.Contains(how.Sentence, "page") {
				t.Errorf("%+v, %+v", there, how)
			}
			till.see = nil
			s.clock.Advance(later)
			s.turn()
			if there, how := s.one(), s.how(id); there.Status != "open" || how.Problem != "" {
				t.Errorf("healed: %+v, %+v", there, how)
			}
		})
	}
}

// A line whose answer was lost arrives long afterwards, beside its repetition: the draft starts over.
func TestADoubledLineMakesTheDraftStartOver(t *testing.T) {
	s := newShop(t)
	real := s.gateway.Till()
	till := &crashing{Till: real, at: -1}
	s.collect = s.collector(till)
	doubled := false
	till.before = func(call string) {
		if call != "lines" || doubled || len(s.fake.Invoices()) == 0 || len(s.one().Lines) != 2 {
			return
		}
		doubled = true
		draft, err := real.Invoice(t.Context(), s.one().ID)
		s.must(err)
		s.must(real.AddLine(t.Context(), draft, invoice.TillLine{Key: "l1", Text: "Late", Cents: 10_00}, 99))
	}
	id := s.bill(10_00, 5_00)
	s.turn()
	if there := s.one(); !doubled || there.Status != "open" || len(there.Lines) != 2 || there.Total != 15_00 || s.how(id).Problem != "" {
		t.Errorf("%t, %+v, %+v", doubled, there, s.how(id))
	}
}

// A look that others overtook is not acted on: what it saw is no longer so.
func TestAnOvertakenLookIsNotActedOn(t *testing.T) {
	s := newShop(t)
	id := s.bill(30_00)
	s.turn()
	if problem := s.fake.PayInvoice(s.one().ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	s.must(s.fake.Dispute(s.one().Payment))
	all := s.fake.Messages()
	last, err := s.gateway.Parse(all[len(all)-1].Body, all[len(all)-1].Signature)
	s.must(err)
	slow, err := s.collect.Handle(t.Context(), last)
	s.must(err)
	s.must(s.collect.Settle(t.Context(), s.org, id))
	s.must(s.fake.CloseDispute(s.one().Payment, true))
	s.must(s.collect.Settle(t.Context(), s.org, id))
	err = s.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error { return slow.Apply(t.Context(), tx) })
	if i := s.get(id); err == nil || i.State != invoice.Paid || i.Due() != 0 {
		t.Errorf("%v, %s with %d due", err, i.State, i.Due())
	}
	s.sound()
}
