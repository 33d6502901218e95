package invoice_test

import (
	"fmt"
	"strings"
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
)

// Lines that are all rounded up do not bill what is not owed: the line of cents brings the total to what is receivable.
func TestTheTotalIsRoundedOnce(t *testing.T) {
	w := newWorld(t)
	c := w.customer(10 * money.NanoPerUSD)
	c.grant(credit.Paid, 1_018_999_999) // and a nano of promotional credit
	var events []*usage.Event
	for n := range 200 {
		v := w.model(fmt.Sprintf("acme/small-%d", n), usage.Prices{usage.Output: 5_100_000 * money.PicoPerNano}, price.Terms{})
		events = append(events, c.event(w.month(1).Add(time.Hour), v, usage.Ordinary, usage.Vector{usage.Output: 1}))
	}
	c.paid(events...)
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	i := c.invoice(w.month(1))
	if i == nil || i.Receivable != 1_000_000 || i.Total != 0 || i.State != invoice.Paid {
		t.Fatalf("%+v", i)
	}
	var sum, rounding int64
	for _, l := range i.Lines {
		sum += l.Cents
		if l.Kind == invoice.CentsLine {
			rounding = l.Cents
		}
	}
	if sum != 0 || rounding != -98 {
		t.Errorf("lines of %d cents, %d of them for rounding", sum, rounding)
	}
	w.sound()
}

// An organization whose month cannot be read rests for an hour; everybody else has an invoice at once.
func TestABrokenOrganizationStopsNobodyElse(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	broken, fine := w.customer(1000*money.NanoPerUSD), w.customer(1000*money.NanoPerUSD)
	for _, c := range []*customer{broken, fine} {
		c.paid(c.used(v, w.month(1).Add(time.Hour), 7))
	}
	txn := ids.At(w.clock.Now())
	broken.post(ledger.Txn{ID: txn, Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 5*money.NanoPerUSD), ledger.Credit(ledger.Revenue, 5*money.NanoPerUSD)}})
	broken.copied(w.month(1).Add(2*time.Hour), txn, 5)
	unknown := v
	unknown.ID = ids.New()
	w.force("UPDATE usage_events SET price_version_id = $1 WHERE txn_id = $2", unknown.ID, txn)
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	err := w.invoices.Turn(w.ctx(), true)
	if err == nil || !strings.Contains(err.Error(), ids.Format(ids.Org, broken.org)) {
		t.Errorf("a turn with an organization that cannot be read: %v", err)
	}
	if i := fine.invoice(w.month(1)); i == nil || i.State != invoice.Open || i.Total != 7_00 {
		t.Fatalf("the other organization's: %+v", i)
	}
	if n := w.number("SELECT count(*) FROM invoice_months WHERE month = $1", w.month(1)); n != 0 {
		t.Error("the month counts as drafted")
	}
	unknown.EffectiveAt = unknown.EffectiveAt.Add(time.Second)
	w.version(unknown) // mended
	w.at(w.clock.Now().Add(59 * time.Minute))
	w.turn()
	if i := broken.invoice(w.month(1)); i != nil {
		t.Errorf("it was not left in peace: %+v", i)
	}
	w.at(w.clock.Now().Add(time.Minute))
	w.turn()
	if i := broken.invoice(w.month(1)); i == nil || i.State != invoice.Open || i.Total != 12_00 {
		t.Errorf("an hour later: %+v", i)
	}
	if n := w.number("SELECT count(*) FROM invoice_months WHERE month = $1", w.month(1)); n != 1 {
		t.Error("the month does not count as drafted")
	}
}

// Who drafts waits for the usage log, whatever the clocks say, and for the later of two clocks.
func TestAMonthIsDraftedOnceAllOfItIsBooked(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	c := w.customer(1000 * money.NanoPerUSD)
	c.paid(c.used(v, w.month(1).Add(time.Hour), 7))
	month := w.month(1)
	w.at(invoice.FreezeOf(month).Add(time.Hour))
	behind := invoice.FreezeOf(month).Add(9 * time.Minute)
	invoice.DatabaseAt(w.invoices, func() time.Time { return behind })
	if _, err := w.invoices.Draft(t.Context(), operator, month); fault.Of(err).Code != "month_not_frozen" {
		t.Errorf("by a database whose clock is behind: %v", err)
	}
	behind = behind.Add(time.Minute)
	waits := c.used(v, month.Add(2*time.Hour), 20)
	c.allot(waits.Charge)
	w.log.Append(waits)
	if err := w.log.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := w.invoices.Draft(t.Context(), operator, month); fault.Of(err).Code != "usage_on_its_way" {
		t.Errorf("with a request that waits in the log: %v", err)
	}
	w.turn()
	if i := c.invoice(month); i != nil {
		t.Fatalf("an invoice without what waits: %+v", i)
	}
	w.at(invoice.FreezeOf(month).Add(-time.Minute)) // a rater whose clock is behind books it before the freeze
	w.book()
	w.at(invoice.FreezeOf(month).Add(time.Hour))
	w.turn()
	if i := c.invoice(month); i == nil || i.Total != 27_00 {
		t.Fatalf("%+v", i)
	}
	// A rater that is past the freeze and has more to do is not waited for.
	month = w.month(2)
	w.at(month.Add(time.Hour))
	c.paid(c.used(v, month, 3))
	w.log.Append(c.used(v, month.Add(time.Hour), 4))
	if err := w.log.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.at(invoice.FreezeOf(month).Add(time.Hour))
	behind = w.clock.Now()
	w.turn()
	if i := c.invoice(month); i != nil {
		t.Fatalf("an invoice without what waits: %+v", i)
	}
	w.exec("UPDATE rater_offsets SET last_at = $1", invoice.FreezeOf(month).Add(time.Millisecond))
	w.turn()
	if i := c.invoice(month); i == nil || i.Total != 3_00 {
		t.Fatalf("%+v", i)
	}
}

// Who owes something only by what committed behind the drafting gets an invoice all the same, for a day by the worker and later
// when an operator has the month drafted again.
func TestWhatCommitsLateGetsItsInvoice(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	month := w.month(1)
	w.at(w.month(0).Add(time.Hour))
	var customers []*customer
	for range 3 {
		c := w.customer(1000 * money.NanoPerUSD)
		c.paid(c.used(v, w.month(0).Add(time.Minute), 1))
		customers = append(customers, c)
	}
	w.at(invoice.FreezeOf(month).Add(time.Hour))
	w.turn()
	late := func(c *customer) {
		txn := ids.At(invoice.FreezeOf(month).Add(-time.Second))
		c.post(ledger.Txn{ID: txn, Kind: ledger.Usage, Month: month, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 5*money.NanoPerUSD), ledger.Credit(ledger.Revenue, 5*money.NanoPerUSD)}})
		c.copied(month.Add(2*time.Hour), txn, 5)
	}
	late(customers[0])
	w.turn()
	late(customers[1])
	w.at(w.clock.Now().Add(23 * time.Hour))
	w.turn()
	w.at(w.clock.Now().Add(time.Hour))
	late(customers[2])
	w.turn()
	for n, c := range customers {
		if i := c.invoice(month); (i != nil) != (n < 2) || i != nil && (i.Total != 5_00 || i.State != invoice.Open) {
			t.Errorf("customer %d: %+v", n, i)
		}
	}
	if n, err := w.invoices.Draft(t.Context(), operator, month); n != 1 || err != nil {
		t.Errorf("drafted again: %d, %v", n, err)
	}
	w.turn()
	if i := customers[2].invoice(month); i == nil || i.Total != 5_00 || i.State != invoice.Open {
		t.Errorf("drafted again: %+v", i)
	}
	w.sound()
}
