package invoice_test

import (
	"strings"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/reconcile"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// unexplained gives what reconcile says about invoices and cannot explain.
func (w *world) unexplained() (names []string) {
	w.t.Helper()
	// The clock stands: nothing is waited for.
	r, err := reconcile.Run(w.ctx(), reconcile.Config{DB: w.db, Clock: w.clock, Wait: -1, Settle: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	seen := 0
	for _, l := range r.Lines {
		if l.Side != reconcile.Invoices && !strings.HasPrefix(l.Name, "invoices of") {
			continue
		}
		seen++
		if !l.Explained {
			names = append(names, l.Name)
		}
	}
	if seen < 2 {
		w.t.Fatalf("%d lines about invoices", seen)
	}
	return names
}

// Frozen months are what their invoices, credit and overrun say; whatever is not is found.
func TestReconcileFindsWhatInvoicesMiss(t *testing.T) {
	w := newWorld(t)
	v := w.dollar()
	c, d := w.customer(10_000*money.NanoPerUSD), w.customer(10_000*money.NanoPerUSD)
	c.paid(c.used(v, w.clock.Now(), 7))
	d.paid(d.used(v, w.clock.Now(), 5))
	month := w.month(1)
	name := month.Format("January 2006")
	expect := func(what string, names ...string) {
		t.Helper()
		// The watermark is how far the log is rated, by the log's own time.
		w.exec("UPDATE rater_offsets SET last_at = $1", w.clock.Now())
		if got := strings.Join(w.unexplained(), "; "); got != strings.Join(names, "; ") {
			t.Errorf("%s: unexplained is %q, want %q", what, got, names)
		}
	}
	expect("before the freeze")
	w.at(invoice.FreezeOf(month).Add(time.Minute))
	expect("frozen, not drafted yet")
	w.at(invoice.FreezeOf(month).Add(25 * time.Hour))
	expect("not drafted a day later", "not final of "+name)
	w.turn()
	expect("closed")
	i := c.invoice(month)
	if _, err := w.invoices.RecordPayment(t.Context(), operator, c.org, i.ID, payment(3_00, "part")); err != nil {
		t.Fatal(err)
	}
	expect("partly paid")
	c.post(ledger.Txn{ID: ids.At(w.clock.Now()), Kind: ledger.Adjustment, Entries: []ledger.Entry{ledger.Debit(ledger.Cash, 1), ledger.Credit(ledger.Receivable, 1)}})
	expect("paid past the invoice", "ledger: receivable of what is invoiced")
	c.post(ledger.Txn{ID: ids.At(w.clock.Now()), Kind: ledger.Adjustment, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 1), ledger.Credit(ledger.Cash, 1)}})
	expect("put right")
	c.post(ledger.Txn{ID: ids.At(invoice.FreezeOf(month).Add(-time.Hour)), Kind: ledger.Usage, Month: month, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 9), ledger.Credit(ledger.Revenue, 9)}})
	expect("usage as if booked before the freeze", "invoices of "+name+", credit and overrun")
}
