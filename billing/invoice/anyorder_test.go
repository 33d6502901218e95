package invoice_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// happening is what happens to an invoice's money at the payment provider, and here.
type happening struct {
	name string
	do   func(s *shop, id ids.ID)
}

var happenings = []happening{
	{"paid on its page", func(s *shop, id ids.ID) {
		s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardGood}) // refused when it is paid
	}},
	{"declined on its page", func(s *shop, id ids.ID) {
		s.fake.PayInvoice(s.refOf(id), stripefake.Way{Number: stripefake.CardNoFunds})
	}},
	{"refunded in part", func(s *shop, id ids.ID) { _ = s.fake.Refund(s.paymentOf(id), 3_00) }}, // nothing is paid, or left
	{"disputed", func(s *shop, id ids.ID) { _ = s.fake.Dispute(s.paymentOf(id)) }},
	{"the dispute is won", func(s *shop, id ids.ID) { _ = s.fake.CloseDispute(s.paymentOf(id), true) }},
	{"the dispute is lost", func(s *shop, id ids.ID) { _ = s.fake.CloseDispute(s.paymentOf(id), false) }},
}

func (s *shop) view(id ids.ID) (v stripefake.InvoiceView) {
	for _, x := range s.fake.Invoices() {
		if x.Metadata["invoice_id"] == ids.Format(ids.Invoice, id) && x.Status != "draft" {
			v = x
		}
	}
	return v
}

func (s *shop) refOf(id ids.ID) string     { return s.view(id).ID }
func (s *shop) paymentOf(id ids.ID) string { return s.view(id).Payment }

// outcome is where an invoice ended, on both sides.
type outcome struct {
	state    invoice.State
	paid     int64
	there    string
	lines    int
	accounts string
}

func (s *shop) outcome(id ids.ID) outcome {
	s.t.Helper()
	i, v, a := s.get(id), s.view(id), s.accounts()
	o := outcome{state: i.State, paid: i.Paid, there: v.Status, lines: len(v.Lines)}
	for _, account := range slices.Sorted(maps.Keys(a)) {
		if a[account] != 0 {
			o.accounts += fmt.Sprintf("%s %s ", account, a[account])
		}
	}
	return o
}

// deliver stores events in the given order, some of them twice, and works them off; between two of them other things happen.
func (s *shop) deliver(order []stripefake.Message, between func()) {
	s.t.Helper()
	for _, m := range order {
		e, err := s.gateway.Parse(m.Body, m.Signature)
		s.must(err)
		e.Created = s.clock.Now() // the inbox works off by this clock: here the order of delivery decides
		_, err = s.inbox.Store(context.Background(), inbox.Webhook, e)
		s.must(err)
		s.work()
		between()
	}
}

// Whatever happens to an invoice's money, and in whatever order it is heard, twice or never, with processes that die at any
// call: it ends where it ends when everything is heard at once and in order.
func TestAnyOrderEndsTheSame(t *testing.T) {
	s := newShop(t)
	rapid.Check(t, func(rt *rapid.T) {
		s.t = rt
		s.begin(t)
		script := rapid.SliceOfN(rapid.IntRange(0, len(happenings)-1), 1, 5).Draw(rt, "script")
		s.newOrg()
		straight := s.bill(20_00, 10_00)
		s.turn()
		s.hear()
		for _, n := range script {
			happenings[n].do(s, straight)
			s.hear()
			s.turn()
		}
		s.settleDown(straight)
		want := s.outcome(straight)
		s.sound()

		s.newOrg()
		id := s.bill(20_00, 10_00)
		crash := func() {
			till := &crashing{Till: s.gateway.Till(), at: rapid.IntRange(-1, 6).Draw(rt, "dies at"), behind: rapid.Bool().Draw(rt, "behind")}
			if s.dies(till) {
				s.clock.Advance(later)
			}
		}
		for s.refOf(id) == "" || s.how(id).State != invoice.PushAsked { // until it is asked for, as often as that takes
			crash()
			s.clock.Advance(later)
		}
		for _, n := range script {
			happenings[n].do(s, id)
		}
		all := s.fake.Messages()
		order := slices.Clone(all[s.heard:])
		s.heard = len(all)
		order = rapid.Permutation(order).Draw(rt, "order")
		order = order[:rapid.IntRange(0, len(order)).Draw(rt, "arrive")]
		order = append(order, order[:rapid.IntRange(0, len(order)).Draw(rt, "again")]...)
		s.deliver(order, func() {
			switch rapid.IntRange(0, 4).Draw(rt, "between") {
			case 0:
				crash()
			case 1:
				s.must(s.collect.Settle(context.Background(), s.org, id))
			case 2:
				_, err := s.collect.Compare(context.Background())
				s.must(err)
			}
		})
		s.settleDown(id)
		if got := s.outcome(id); got != want {
			rt.Errorf("it ended as\n%+v, in order as\n%+v", got, want)
		}
		s.sound()
		if a := s.accounts(); a[ledger.Receivable] < 0 || a[ledger.Receivable] > money.Nano(30)*money.NanoPerUSD {
			rt.Errorf("receivable is %s", a[ledger.Receivable])
		}
	})
}

// begin forgets what was before: another payment provider, and nobody looks at old invoices any more.
func (s *shop) begin(t *testing.T) {
	s.t.Helper()
	s.provider(t)
	s.heard = 0
	s.exec("update invoice_pushes set next_at = null, failures = 1")
	s.exec("update invoices set state = 'uncollectible' where state = 'open'")
}

// settleDown lets everything that is due be done.
func (s *shop) settleDown(id ids.ID) {
	s.t.Helper()
	for range 2 {
		s.clock.Advance(later)
		_, err := s.collect.Compare(context.Background())
		s.must(err)
		s.must(s.collect.Settle(context.Background(), s.org, id))
		s.turn()
	}
}
