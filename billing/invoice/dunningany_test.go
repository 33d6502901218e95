package invoice_test

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/clock"
	"millrace/internal/fault"
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
	owes      map[ids.ID]owes
	payments  map[ids.ID]string    // at the payment provider
	let       map[ids.ID]time.Time // invoices that had suspended by then when an operator restored
	limit     money.Nano           // that an operator set last, less what was given up since
	suspended bool                 // by an operator, last
}

// owes is what of an invoice is due.
type owes struct {
	state    invoice.State
	due      int64
	refunded int64     // of it, what the operator gave back past credit notes
	since    time.Time // the customer owes something of it, and the money should have come
}

func (o owes) own() int64 { return o.due - o.refunded }

// Whatever happens in whatever order: while something is overdue for 14 days the limit is not above what is owed, after 30 days
// requests are refused unless an operator restored the organization since, and once nothing is, the limit is what an operator set
// last, and nobody is suspended but by an operator. Days count from when the customer himself owes something, and again.
func TestDunningAfterAnyHistory(t *testing.T) {
	s := newShop(t)
	start, month := s.clock.Now(), s.month
	rapid.Check(t, func(rt *rapid.T) {
		s.t, s.clock, s.month, s.heard = rt, clock.NewManual(start), month, 0 // the ledger has no days after the next 400
		s.provider(t)
		s.newOrg()
		d := &debtor{shop: s, people: s.people(t), end: start.Add(mostDays * aDay), payments: map[ids.ID]string{}, owes: map[ids.ID]owes{}, let: map[ids.ID]time.Time{}, limit: usd(1000_00)}
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
	switch action := rapid.SampledFrom([]string{"bill", "bill", "days", "days", "days", "hand", "page", "dispute", "refund", "refund", "won", "won", "never", "limit", "give up", "suspend", "restore", "away"}).Draw(rt, "action"); action {
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
		if d.suspended = action == "suspend"; !d.suspended {
			for id, at := range d.holding(30) {
				d.let[id] = at
			}
		}
	default:
		if len(d.invoices) > 0 {
			d.happen(rt, action, rapid.SampledFrom(d.invoices).Draw(rt, "invoice"))
		}
	}
	for _, id := range d.invoices {
		d.look(id, false)
	}
}

// look moves the model to what an invoice leaves unpaid now; refund says that what is due since the last look was given back by the
// operator. Else a payment covers what the customer owes first.
func (d *debtor) look(id ids.ID, refund bool) {
	i, was := d.get(id), d.owes[id]
	now := owes{state: i.State, due: i.Due(), refunded: was.refunded, since: was.since}
	if refund {
		now.refunded += max(now.due-was.due, 0)
	}
	now.refunded = min(now.refunded, now.due)
	givenUp := was.state != invoice.Open && i.GivenUp > 0 // a part of it: never settled
	switch {
	case was.state == "":
		now.since = i.DueAt
	case was.own() == 0 && now.own() > 0 && !givenUp, was.due == 0 && now.due > 0 && !givenUp:
		now.since = i.DueAt
		if now.since.Before(d.clock.Now()) {
			now.since = d.clock.Now()
		}
	}
	d.owes[id] = now
}

// holding are the invoices of which a day's step holds, and since when.
func (d *debtor) holding(day int) map[ids.ID]time.Time {
	out := map[ids.ID]time.Time{}
	for _, id := range d.invoices {
		steps, err := d.collect.Dunning(context.Background(), tenants.System(), d.org, id)
		d.must(err)
		for _, s := range steps {
			if s.Day == day && s.Undone.IsZero() {
				out[id] = s.At
			}
		}
	}
	return out
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
	case action == "dispute" && payment != "":
		_ = d.fake.Dispute(payment) // twice is refused
		d.hear()
	case action == "refund" && payment != "":
		d.look(id, false)
		_ = d.fake.Refund(payment, rapid.Int64Range(1, 100_00).Draw(rt, "refunded")) // more than there is is refused
		d.hear()
		d.look(id, true)
	case action == "never":
		d.never(rt, i)
	case action == "won" && payment != "":
		_ = d.fake.CloseDispute(payment, rapid.Bool().Draw(rt, "won"))
		d.hear()
	case action == "give up" && i.Due() > 0:
		d.giveUp(id)
		d.limit = max(d.limit-usd(i.Due()), 0)
	}
}

// never takes back a payment by hand that did not come.
func (d *debtor) never(rt *rapid.T, i invoice.Invoice) {
	var standing []ids.ID
	for _, p := range i.Payments {
		if p.Method == "hand" && p.ReversedAt.IsZero() {
			standing = append(standing, p.ID)
		}
	}
	if len(standing) == 0 {
		return
	}
	_, err := d.bills.ReversePayment(context.Background(), tenants.System(), d.org, i.ID, rapid.SampledFrom(standing).Draw(rt, "payment"), "It never came.")
	if err == nil || fault.Of(err).Code != "credited" { // more of it went back since than is left
		d.must(err)
	}
}

// check says what must hold when the worker has looked.
func (d *debtor) check(rt *rapid.T) {
	limits, suspends := d.holding(14), d.holding(30)
	for _, id := range d.invoices {
		i, o := d.get(id), d.owes[id]
		steps, err := d.collect.Dunning(context.Background(), tenants.System(), d.org, id)
		d.must(err)
		for _, s := range steps {
			if s.Undone.IsZero() && (i.State == invoice.Paid || i.State == invoice.Void) {
				rt.Fatalf("%s is %s and day %d holds", i.Number, i.State, s.Day)
			}
		}
		if i.State != invoice.Open {
			continue
		}
		for day, holds := range map[int]map[ids.ID]time.Time{14: limits, 30: suspends} {
			want := o.own() >= invoice.LeastPush && !d.clock.Now().Before(o.since.Add(time.Duration(day)*aDay))
			if _, got := holds[id]; got != want {
				rt.Fatalf("%s: day %d holds: %t; %+v, now %s", i.Number, day, got, o, d.clock.Now())
			}
		}
		if owed := d.accounts()["receivable"]; limits[id] != (time.Time{}) && d.shop.limit() > owed {
			rt.Fatalf("%s is overdue since %s: limit %s, %s are owed", i.Number, o.since, d.shop.limit(), owed)
		}
	}
	for id, at := range suspends {
		if !d.let[id].Equal(at) && !d.shop.suspended() {
			rt.Fatalf("nobody restored the organization since day 30 of %s, and it is not suspended", id)
		}
	}
}

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
