package invoice_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// debtor is a customer to whom anything happens, and what follows from it by a simple model.
type debtor struct {
	*shop
	people    *tenants.Service
	end       time.Time
	invoices  []ids.ID
	payments  map[ids.ID]string // at the payment provider
	limit     money.Nano        // that an operator set last, less what was given up since
	suspended bool              // by an operator, last
}

// Whatever happens in whatever order: while something is overdue for 14 days the limit is not above what is owed, and once
// nothing is, it is what an operator set last, and nobody is suspended but by an operator.
func TestDunningAfterAnyHistory(t *testing.T) {
	s := newShop(t)
	start, month := s.clock.Now(), s.month
	rapid.Check(t, func(rt *rapid.T) {
		s.t, s.clock, s.month, s.heard = rt, clock.NewManual(start), month, 0 // the ledger has no days after the next 400
		s.provider(t)
		s.newOrg()
		d := &debtor{shop: s, people: s.people(t), end: start.Add(mostDays * aDay), payments: map[ids.ID]string{}, limit: usd(1000_00)}
		for range rapid.IntRange(4, 16).Draw(rt, "steps") {
			d.step(rt)
		}
		d.settleAll()
		if d.shop.limit() != d.limit || d.shop.suspended() != d.suspended {
			rt.Fatalf("nothing is due: limit %s, suspended %t; want %s, %t", d.shop.limit(), d.shop.suspended(), d.limit, d.suspended)
		}
		s.exec("delete from invoice_pushes") // the next provider does not know them
	})
	s.t = t
	s.bill(1)
	s.sound()
}

const mostDays = 320

func (d *debtor) wait(days int) {
	d.clock.Advance(min(time.Duration(days)*aDay, max(d.end.Sub(d.clock.Now()), 0)))
}

func (d *debtor) step(rt *rapid.T) {
	by, ctx := tenants.System(), context.Background()
	switch action := rapid.SampledFrom([]string{"bill", "bill", "days", "days", "days", "hand", "page", "back", "back", "won", "limit", "give up", "suspend", "restore", "away"}).Draw(rt, "action"); action {
	case "bill":
		d.invoices = append(d.invoices, d.bill(rapid.SampledFrom([]int64{1, invoice.LeastPush, 70_00, 100_00}).Draw(rt, "cents")))
		d.month = d.month.AddDate(0, 1, 0)
		d.turn()
	case "days":
		d.wait(rapid.IntRange(1, 35).Draw(rt, "days"))
		d.turn()
		d.check(rt)
	case "away":
		d.wait(rapid.IntRange(1, 40).Draw(rt, "days"))
	case "limit":
		d.limit = usd(rapid.SampledFrom([]int64{0, 50, 70_00, 100_00, 600_00, 1000_00}).Draw(rt, "limit"))
		d.must(d.desk.SetCreditLimit(ctx, by, d.org, d.limit))
	case "suspend", "restore":
		do := d.people.SuspendOrg
		if action == "restore" {
			do = d.people.RestoreOrg
		}
		_, err := do(ctx, by, d.org)
		d.must(err)
		d.suspended = action == "suspend"
	default:
		if len(d.invoices) > 0 {
			d.happen(rt, action, rapid.SampledFrom(d.invoices).Draw(rt, "invoice"))
		}
	}
}

// happen does something to one invoice, where it is possible.
func (d *debtor) happen(rt *rapid.T, action string, id ids.ID) {
	i, payment := d.get(id), d.payments[id]
	switch {
	case action == "hand" && i.Due() > 0:
		d.paidByHand(id, rapid.Int64Range(1, i.Due()).Draw(rt, "paid"))
	case action == "page" && i.State == invoice.Open && payment == "":
		d.turn()
		for _, x := range d.fake.Invoices() {
			if x.Metadata["invoice_id"] == ids.Format(ids.Invoice, id) && x.Status == "open" && d.fake.PayInvoice(x.ID, stripefake.Way{Number: stripefake.CardGood}) == "" {
				d.hear()
			}
		}
		for _, x := range d.fake.Invoices() {
			if x.Metadata["invoice_id"] == ids.Format(ids.Invoice, id) {
				d.payments[id] = x.Payment
			}
		}
	case action == "back" && payment != "":
		if rapid.Bool().Draw(rt, "dispute") {
			_ = d.fake.Dispute(payment) // twice is refused
		} else {
			_ = d.fake.Refund(payment, rapid.Int64Range(1, 100_00).Draw(rt, "refunded"))
		}
		d.hear()
	case action == "won" && payment != "":
		_ = d.fake.CloseDispute(payment, rapid.Bool().Draw(rt, "won"))
		d.hear()
	case action == "give up" && i.Due() > 0:
		d.giveUp(id)
		d.limit = max(d.limit-usd(i.Due()), 0)
	}
}

// check says what must hold when the worker has looked.
func (d *debtor) check(rt *rapid.T) {
	for _, id := range d.invoices {
		steps, err := d.collect.Dunning(context.Background(), tenants.System(), d.org, id)
		d.must(err)
		i := d.get(id)
		for _, s := range steps {
			if s.Undone.IsZero() && (i.State == invoice.Paid || i.State == invoice.Void) {
				rt.Fatalf("%s is %s and day %d holds", i.Number, i.State, s.Day)
			}
		}
		back := d.how(id).TakenBack
		if i.State != invoice.Open || i.Due()-back < invoice.LeastPush || back > 0 || d.clock.Now().Before(i.DueAt.Add(14*aDay)) || d.everPaid(i) {
			continue
		}
		if owed := d.accounts()["receivable"]; d.shop.limit() > owed {
			rt.Fatalf("%s is overdue since %s: limit %s, %s are owed", i.Number, i.DueAt, d.shop.limit(), owed)
		}
	}
}

// everPaid reports whether an invoice may have been settled once: its days count from the reopening.
func (d *debtor) everPaid(i invoice.Invoice) bool { return d.payments[i.ID] != "" }

// settleAll pays what is due, and what was given up, after all.
func (d *debtor) settleAll() {
	for _, id := range d.invoices {
		if i := d.get(id); i.Due()+i.GivenUp > 0 {
			d.paidByHand(id, i.Due()+i.GivenUp)
		}
	}
	d.turn()
	d.turn()
}
