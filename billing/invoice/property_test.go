package invoice_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// Whatever happens in whatever order (requests, late requests, credit, months that close, payments, notes, write-offs), every
// usage transaction is in exactly one invoice or was paid from credit, and the books and the budgets agree.
func TestAnyHistoryTiesOut(t *testing.T) {
	w := newWorld(t)
	v := w.model("acme/odd", usage.Prices{usage.Input: 1_234_567_891, usage.Output: 98_765_432_100_003, usage.Requests: 7_000_000_500_001}, price.Terms{})
	sequence := 0
	rapid.Check(t, func(rt *rapid.T) {
		sequence++
		c := w.customer(money.Nano(rapid.Int64Range(0, 50_000).Draw(rt, "limit")) * money.NanoPerUSD)
		w.at(w.month(1).Add(time.Duration(sequence) * time.Minute))
		steps := rapid.IntRange(3, 15).Draw(rt, "steps")
		for n := range steps {
			w.step(rt, c, v, fmt.Sprintf("%d-%d", sequence, n))
		}
		w.at(w.month(6))
		w.closeMonths()
		w.tiesOut(rt, c)
	})
	w.sound()
	w.exec("UPDATE rater_offsets SET last_at = $1", w.month(6))
	if names := w.unexplained(); len(names) > 0 {
		t.Errorf("reconcile cannot explain %q", names)
	}
}

// closeMonths does the worker's work, of months too that were closed for customers of before.
func (w *world) closeMonths() {
	for m := w.first; !w.clock.Now().Before(invoice.FreezeOf(m).Add(time.Hour)); m = m.AddDate(0, 1, 0) {
		if _, err := w.invoices.Draft(w.ctx(), operator, m); err != nil {
			w.t.Fatal(err)
		}
	}
	w.turn()
}

func (w *world) step(rt *rapid.T, c *customer, v price.Version, key string) {
	ctx := w.ctx()
	list, err := w.invoices.List(ctx, operator, c.org, 0, ids.Nil)
	c.must(err)
	open := list[:0]
	for _, i := range list {
		if i.State.Final() {
			open = append(open, i)
		}
	}
	action := rapid.SampledFrom([]string{"use", "use", "use", "late", "credit", "wait", "turn", "pay", "note", "write off"}).Draw(rt, "action")
	now := w.clock.Now()
	switch action {
	case "use", "late":
		at := now
		if action == "late" {
			at = now.Add(-time.Duration(rapid.IntRange(0, 60*24).Draw(rt, "hours late")) * time.Hour)
			if at.Before(w.month(1)) {
				at = w.month(1)
			}
		}
		e := c.event(at, v, usage.Ordinary, usage.Vector{usage.Input: rapid.Int64Range(0, 9999).Draw(rt, "input"), usage.Output: rapid.Int64Range(0, 99).Draw(rt, "output"), usage.Requests: 1})
		c.allot(e.Charge - min(e.Charge, money.Nano(rapid.Int64Range(0, 3).Draw(rt, "short"))))
		w.book(e)
	case "credit":
		c.grant(rapid.SampledFrom([]credit.GrantKind{credit.Paid, credit.Promotional}).Draw(rt, "kind"), money.Nano(rapid.Int64Range(1, 5_000_000_000).Draw(rt, "amount")))
	case "wait":
		w.clock.Advance(time.Duration(rapid.IntRange(1, 20*24).Draw(rt, "hours")) * time.Hour)
	case "turn":
		w.closeMonths()
	}
	if len(open) == 0 {
		return
	}
	i := open[rapid.IntRange(0, len(open)-1).Draw(rt, "invoice")]
	sum := rapid.Int64Range(1, max(1, i.Total)).Draw(rt, "cents")
	switch action {
	case "pay":
		_, err = w.invoices.RecordPayment(ctx, operator, c.org, i.ID, payment(sum, key))
	case "note":
		_, err = w.invoices.CreditNote(ctx, operator, c.org, i.ID, invoice.NoteInput{Cents: sum, Reason: "r", IdempotencyKey: key,
			Back: rapid.SampledFrom([]invoice.Back{invoice.BackAsCredit, invoice.BackByHand}).Draw(rt, "back")})
	case "write off":
		_, err = w.invoices.WriteOff(ctx, operator, c.org, i.ID, "r", key)
	default:
		return
	}
	if err != nil && !fault.Is(err, fault.Conflict) {
		rt.Fatalf("%s: %v", action, err)
	}
}

// tiesOut adds everything up again, from the customer's rows.
func (w *world) tiesOut(rt *rapid.T, c *customer) {
	list, err := w.invoices.List(w.ctx(), operator, c.org, 0, ids.Nil)
	c.must(err)
	var receivable, promo, prepaid, overrun, due money.Nano
	for _, short := range list {
		i := c.invoice(short.Month)
		if !i.State.Final() {
			rt.Fatalf("the invoice of %s is a draft: %s", i.Month.Format("2006-01"), i.Problem)
		}
		var lines money.Nano
		var cents int64
		for _, l := range i.Lines {
			lines, cents = lines+l.Amount, cents+l.Cents
		}
		if lines != i.Receivable || cents != i.Total {
			rt.Fatalf("lines of %s USD and %d cents; receivable %s, total %d", lines, cents, i.Receivable, i.Total)
		}
		if once := nearest(big.NewRat(int64(i.Receivable), int64(invoice.NanoPerCent))).Int64(); i.Total != once {
			rt.Fatalf("a total of %d cents for %s USD, rounded once they are %d", i.Total, i.Receivable, once)
		}
		receivable, promo, prepaid, overrun, due = receivable+i.Receivable, promo+i.Promo, prepaid+i.Prepaid, overrun+i.Overrun, due+money.Nano(i.Due())*invoice.NanoPerCent
	}
	usageOf := func(a ledger.Account) money.Nano {
		return money.Nano(w.number(`SELECT coalesce(sum(e.amount_nano), 0) FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
			WHERE t.org_id = $1 AND t.kind = 'usage' AND e.account = $2`, c.org, string(a)))
	}
	if got := usageOf(ledger.Receivable); got != receivable {
		rt.Fatalf("usage left %s USD receivable, invoices are about %s", got, receivable)
	}
	if got := c.account(ledger.Receivable); got != due {
		rt.Fatalf("%s USD are receivable, %s are due", got, due)
	}
	for account, invoiced := range map[ledger.Account]money.Nano{ledger.PrepaidPromo: promo, ledger.PrepaidPaid: prepaid, ledger.Overrun: overrun} {
		if got := usageOf(account); got < invoiced {
			rt.Fatalf("invoices tell of %s USD of %s, the ledger of %s", invoiced, account, got)
		}
	}
}
