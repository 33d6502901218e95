package invoice_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// dollar is a model whose output tokens cost a dollar each.
func (w *world) dollar() price.Version {
	return w.model("acme/dollar", usage.Prices{usage.Output: money.Pico(money.NanoPerUSD) * money.PicoPerNano}, price.Terms{})
}

// used is a request of so many dollars that started at a moment.
func (c *customer) used(v price.Version, at time.Time, dollars int64) *usage.Event {
	return c.event(at, v, usage.Ordinary, usage.Vector{usage.Output: dollars})
}

// Which month a request is of, whenever it is booked: before the freeze its own invoice has it, later the next one, with its own
// month shown. A batch over a month's turn is split.
func TestUsageJoinsTheInvoiceOfItsMonthUntilTheFreeze(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	c := w.customer(10_000 * money.NanoPerUSD)
	one, two := w.month(1), w.month(2)
	turn := two
	w.at(turn.Add(30 * time.Second))
	c.paid(c.used(v, one.AddDate(0, 0, 3), 1), c.used(v, turn.Add(-time.Second), 10), c.used(v, turn.Add(time.Second), 100)) // one batch, two months
	if other, own := w.number("SELECT count(*) FROM ledger_txns WHERE kind = 'usage' AND usage_month = $1", one), w.number("SELECT count(*) FROM ledger_txns WHERE kind = 'usage' AND usage_month IS NULL"); other == 0 || own == 0 {
		t.Errorf("%d transactions of the month before, %d of their own day's", other, own)
	}
	w.at(turn.Add(47 * time.Hour))
	c.paid(c.used(v, one.AddDate(0, 0, 27), 1000)) // late, before the freeze
	w.at(turn.Add(49 * time.Hour))
	c.paid(c.used(v, one.AddDate(0, 0, 28), 2000), c.used(v, turn.Add(48*time.Hour), 4000)) // after it

	if n, err := w.invoices.Draft(t.Context(), operator, two); fault.Of(err).Code != "month_not_frozen" {
		t.Fatalf("a running month: %d, %v", n, err)
	}
	w.turn()
	first := c.invoice(one)
	if first == nil || first.Total != 1011_00 || len(first.Lines) != 2 { // and the first nano, of promotional credit
		t.Fatalf("the first invoice: %+v", first)
	}
	w.at(invoice.FreezeOf(two).Add(time.Hour))
	c.paid(c.used(v, one, 3), c.used(v, two, 5)) // both late for theirs
	w.turn()
	next := c.invoice(two)
	if next == nil || next.Total != 6100_00 {
		t.Fatalf("the second invoice: %+v", next)
	}
	want := map[time.Time]int64{two: 4100, one: 2000}
	for _, l := range next.Lines {
		if l.Kind == invoice.UsageLine && l.Quantity != want[l.Month] {
			t.Errorf("%d dollars of %s, want %d", l.Quantity, l.Month.Format("2006-01"), want[l.Month])
		}
	}
	if !next.Lines[0].Month.Equal(two) {
		t.Errorf("the first line is of %s", next.Lines[0].Month)
	}
	w.at(invoice.FreezeOf(w.month(2).AddDate(0, 1, 0)).Add(time.Hour))
	w.turn()
	if last := c.invoice(w.month(3)); last == nil || last.Total != 8_00 || len(last.Lines) != 2 {
		t.Fatalf("the third invoice: %+v", last)
	}
	again := c.invoice(one)
	if again.Total != first.Total || len(again.Lines) != len(first.Lines) || again.Number != first.Number || again.Version != first.Version {
		t.Errorf("the first invoice has changed: %+v", again)
	}
	w.sound()
}

// Before the first month nothing is invoiced; it takes what was booked since it began, of whatever month, and so a transaction that
// the release before made of requests of two months.
func TestTheFirstMonthTakesWhatWasBookedInIt(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	c := w.customer(10_000 * money.NanoPerUSD)
	w.at(w.first.Add(-time.Hour))
	c.paid(c.used(v, w.first.Add(-2*time.Hour), 1))
	w.at(w.first.Add(time.Minute))
	c.paid(c.used(v, w.first.Add(-time.Minute), 20))
	w.at(w.first.Add(2 * time.Minute))
	both := ids.At(w.clock.Now())
	c.post(ledger.Txn{ID: both, Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 4300*money.NanoPerUSD), ledger.Credit(ledger.Revenue, 4300*money.NanoPerUSD)}})
	c.copied(w.first.Add(-time.Second), both, 300)
	c.copied(w.first.Add(time.Second), both, 4000)
	w.at(invoice.FreezeOf(w.first).Add(time.Hour))
	w.turn()
	i := c.invoice(w.first)
	if i == nil || i.State != invoice.Open || i.Total != 4320_00 || i.Receivable != 4320*money.NanoPerUSD {
		t.Fatalf("%+v", i)
	}
	if _, err := w.invoices.Draft(t.Context(), operator, w.first.AddDate(0, -1, 0)); !fault.Is(err, fault.Invalid) {
		t.Errorf("a month before the first: %v", err)
	}
	w.sound()
}

// Nothing is owed, nothing is invoiced; a sum of less than a cent makes an invoice of nothing, which is paid.
func TestWhatCreditCoversIsNotInvoiced(t *testing.T) {
	w := newWorld(t)
	v := w.model("acme/nano", usage.Prices{usage.Output: 1000}, price.Terms{})
	rich, poor := w.customer(0), w.customer(money.NanoPerUSD)
	rich.grant(credit.Paid, money.NanoPerUSD)
	at := w.month(1).Add(time.Hour)
	rich.paid(rich.event(at, v, usage.Ordinary, usage.Vector{usage.Output: 500_000}))
	poor.paid(poor.event(at, v, usage.Ordinary, usage.Vector{usage.Output: 4_000_000}))
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	if i := rich.invoice(w.month(1)); i != nil {
		t.Errorf("an invoice though all was prepaid: %+v", i)
	}
	i := poor.invoice(w.month(1))
	if i == nil || i.State != invoice.Paid || i.Total != 0 || i.Receivable != 3_999_999 || i.Number == "" {
		t.Fatalf("less than a cent: %+v", i)
	}
	if due := poor.account(ledger.Receivable); due != 0 {
		t.Errorf("%s USD still receivable", due)
	}
	w.sound()
}

// Closing a month twice, by several workers at once, after any crash: the same invoice, one number, no gap.
func TestClosingTwiceGivesTheSameInvoice(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	var customers []*customer
	for range 6 {
		c := w.customer(1000 * money.NanoPerUSD)
		c.paid(c.used(v, w.month(1).Add(time.Hour), 7))
		customers = append(customers, c)
	}
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	var wg sync.WaitGroup
	for range 3 { // each a process of its own
		s := w.service()
		wg.Go(func() {
			if err := s.Turn(w.ctx(), true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	w.turn()
	numbers := make(map[string]bool)
	for _, c := range customers {
		i := c.invoice(w.month(1))
		if i == nil || i.State != invoice.Open || i.Total != 7_00 {
			t.Fatalf("%+v", i)
		}
		numbers[i.Number] = true
		again, err := w.invoices.Finalize(t.Context(), operator, c.org, i.ID)
		if err != nil || again.Number != i.Number || again.Version != i.Version {
			t.Errorf("final again: %+v, %v", again, err)
		}
	}
	if last := w.number("SELECT max(last) FROM invoice_series"); len(numbers) != 6 || last != 6 {
		t.Errorf("%d numbers, the last is %d", len(numbers), last)
	}
	w.sound()
}

// Whoever looks after the organization's money is told, once, and so is the address that its invoices go to.
func TestAFinalInvoiceIsMailed(t *testing.T) {
	w := newWorld(t)
	c := w.customer(1000 * money.NanoPerUSD)
	person := ids.New()
	w.exec("INSERT INTO users (id, email) VALUES ($1, 'owner@acme.example')", person)
	w.exec("INSERT INTO members (org_id, user_id, role) VALUES ($1, $2, 'owner')", c.org, person)
	c.must(w.invoices.SetDetails(t.Context(), operator, c.org, invoice.Details{Email: "ap@acme.example"}))
	c.paid(c.used(w.dollar(), w.month(1).Add(time.Hour), 7))
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	w.turn()
	i := c.invoice(w.month(1))
	for _, address := range []string{"owner@acme.example", "ap@acme.example"} {
		var n int
		var body string
		w.read("SELECT count(*), coalesce(min(body), '') FROM outbox WHERE recipient = $1 AND subject LIKE '%' || $2 || '%'", []any{address, i.Number}, &n, &body)
		if n != 1 || !strings.Contains(body, "$7.00") || !strings.Contains(body, "https://millrace.example/billing/invoices/"+ids.Format(ids.Invoice, i.ID)) {
			t.Errorf("%d mails to %s: %s", n, address, body)
		}
	}
}

// A worker that dies at any step leaves nothing half done; the next one ends it.
func TestAWorkerMayDieAnywhere(t *testing.T) {
	w := newWorld(t)
	v := w.model("acme/odd", usage.Prices{usage.Output: 1_234_567_891}, price.Terms{})
	customers := []*customer{w.customer(1000 * money.NanoPerUSD), w.customer(1000 * money.NanoPerUSD)}
	died := errors.New("killed")
	const steps = 11 // two drafts, one month, two that become final
	for step := range steps {
		month := w.month(1 + step)
		w.at(month.AddDate(0, 0, 5))
		for _, c := range customers {
			c.paid(c.event(w.clock.Now(), v, usage.Ordinary, usage.Vector{usage.Output: int64(100_003 + step)}))
		}
		w.at(invoice.FreezeOf(month).Add(time.Hour))
		s := w.service()
		invoice.FailAt(s, step, died)
		if err := s.Turn(w.ctx(), true); !errors.Is(err, died) {
			t.Fatalf("step %d: %v", step, err)
		}
		w.sound()
		w.turn()
		for _, c := range customers {
			if i := c.invoice(month); i == nil || i.State != invoice.Open || i.Receivable == 0 || len(i.Lines) == 0 {
				t.Fatalf("step %d: %+v", step, i)
			}
		}
		if final, last := w.number("SELECT count(*) FROM invoices WHERE number IS NOT NULL"), w.number("SELECT sum(last) FROM invoice_series"); final != int64(2*(step+1)) || last != final {
			t.Errorf("step %d: %d final invoices, the last number is %d", step, final, last)
		}
		w.sound()
	}
}

// A final invoice stays, whoever tries.
func TestAFinalInvoiceStays(t *testing.T) {
	w := newWorld(t)
	c := w.customer(100 * money.NanoPerUSD)
	c.paid(c.used(w.dollar(), w.month(1).Add(time.Hour), 7))
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	for _, sql := range []string{"UPDATE invoices SET total_cents = 1, subtotal_cents = 1", "UPDATE invoices SET bill_to = '{}'", "UPDATE invoices SET number = NULL, state = 'draft'",
		"DELETE FROM invoices", "DELETE FROM invoice_lines", "UPDATE invoice_lines SET cents = 1", "DELETE FROM invoice_payments"} {
		err := w.try(sql)
		if sql == "DELETE FROM invoice_payments" && err == nil {
			t.Errorf("%s passed", sql)
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "final") && !strings.Contains(err.Error(), "permission") {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// A draft whose lines do not add up says why and is not made final; when the cause is mended the worker draws it anew.
func TestADraftThatDoesNotAddUpWaits(t *testing.T) {
	w := newWorld(t)
	c := w.customer(100 * money.NanoPerUSD)
	c.paid(c.used(w.dollar(), w.month(1).Add(time.Hour), 7))
	// Somebody books usage that no request explains.
	w.at(w.clock.Now().Add(time.Second))
	c.post(ledger.Txn{ID: ids.At(w.clock.Now()), Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 5*money.NanoPerUSD), ledger.Credit(ledger.Revenue, 5*money.NanoPerUSD)}})
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	i := c.invoice(w.month(1))
	if i == nil || i.State != invoice.Draft || !strings.Contains(i.Problem, "by its tokens") {
		t.Fatalf("%+v", i)
	}
	if _, err := w.invoices.Finalize(t.Context(), operator, c.org, i.ID); fault.Of(err).Code != "invoice_has_a_problem" {
		t.Errorf("final with a problem: %v", err)
	}
	if list, err := w.invoices.List(t.Context(), tenants.Actor{Org: c.org, Role: tenants.Owner}, c.org, 0, ids.Nil); err != nil || len(list) != 0 {
		t.Errorf("the customer sees drafts: %v, %v", list, err)
	}
	if _, err := w.invoices.Get(t.Context(), tenants.Actor{Org: c.org, Role: tenants.Owner}, c.org, i.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("the customer sees a draft: %v", err)
	}
}

// Who may do what.
func TestInvoicesCheckWhoAsks(t *testing.T) {
	w := newWorld(t)
	c := w.customer(100 * money.NanoPerUSD)
	c.paid(c.used(w.dollar(), w.month(1).Add(time.Hour), 7))
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	i := c.invoice(w.month(1))
	owner, billing := tenants.Actor{Org: c.org, Role: tenants.Owner}, tenants.Actor{Org: c.org, Role: tenants.Billing}
	developer, stranger := tenants.Actor{Org: c.org, Role: tenants.Developer}, tenants.Actor{Org: ids.New(), Role: tenants.Owner}
	s, ctx := w.invoices, t.Context()
	for name, do := range map[string]func(tenants.Actor) error{
		"get":     func(a tenants.Actor) error { _, err := s.Get(ctx, a, c.org, i.ID); return err },
		"list":    func(a tenants.Actor) error { _, err := s.List(ctx, a, c.org, 0, ids.Nil); return err },
		"so far":  func(a tenants.Actor) error { _, err := s.SoFar(ctx, a, c.org); return err },
		"details": func(a tenants.Actor) error { _, err := s.Details(ctx, a, c.org); return err },
		"set": func(a tenants.Actor) error {
			return s.SetDetails(ctx, a, c.org, invoice.Details{LegalName: "Acme"})
		},
	} {
		if err := errors.Join(do(owner), do(billing), do(operator)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := do(developer); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s by a developer: %v", name, err)
		}
		if err := do(stranger); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s by a stranger: %v", name, err)
		}
	}
	for name, do := range map[string]func(tenants.Actor) error{
		"all":      func(a tenants.Actor) error { _, err := s.All(ctx, a, invoice.Filter{}); return err },
		"draft":    func(a tenants.Actor) error { _, err := s.Draft(ctx, a, w.month(1)); return err },
		"finalize": func(a tenants.Actor) error { _, err := s.Finalize(ctx, a, c.org, i.ID); return err },
		"pay": func(a tenants.Actor) error {
			_, err := s.RecordPayment(ctx, a, c.org, i.ID, invoice.PaymentInput{Cents: 1, Reference: "r", IdempotencyKey: "k"})
			return err
		},
		"credit": func(a tenants.Actor) error {
			_, err := s.CreditNote(ctx, a, c.org, i.ID, invoice.NoteInput{Cents: 1, Reason: "r", IdempotencyKey: "n"})
			return err
		},
		"write off": func(a tenants.Actor) error { _, err := s.WriteOff(ctx, a, c.org, i.ID, "r", "w"); return err },
	} {
		if err := do(owner); !fault.Is(err, fault.Forbidden) {
			t.Errorf("%s by an owner: %v", name, err)
		}
	}
}
