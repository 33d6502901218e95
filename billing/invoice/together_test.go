package invoice_test

import (
	"context"
	"sync"
	"testing"

	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/ids"
)

// Several processes do everything at the same time: each invoice is there once, asked for once, and paid once.
func TestSeveralWorkersAtOnce(t *testing.T) {
	s := newShop(t)
	const orgs, workers = 6, 4
	type bill struct{ org, id ids.ID }
	var bills []bill
	for n := range orgs {
		s.newOrg()
		if n%2 == 0 {
			s.keepCard(stripefake.CardGood)
		}
		bills = append(bills, bill{s.org, s.bill(10_00, 20_00, int64(n+1))})
	}
	together := func(do func(ctx context.Context, c *invoice.Collector) error) {
		t.Helper()
		var wg sync.WaitGroup
		for range workers {
			c := s.collector(s.gateway.Till())
			wg.Go(func() { _ = do(t.Context(), c) }) // whoever loses looks again later
		}
		wg.Wait()
	}
	for range 3 {
		together(func(ctx context.Context, c *invoice.Collector) error { return c.Turn(ctx) })
		s.clock.Advance(later)
	}
	all := s.fake.Invoices()
	if len(all) != orgs {
		t.Fatalf("%d invoices", len(all))
	}
	for _, x := range all {
		if x.Status == "draft" || len(x.Lines) != 3 || x.Attempts > 1 {
			t.Errorf("%+v", x)
		}
		if x.Status == "open" {
			if problem := s.fake.PayInvoice(x.ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
				t.Fatal(problem)
			}
		}
	}
	for _, m := range s.fake.Messages() {
		e, err := s.gateway.Parse(m.Body, m.Signature)
		s.must(err)
		_, err = s.inbox.Store(t.Context(), inbox.Webhook, e)
		s.must(err)
	}
	together(func(ctx context.Context, c *invoice.Collector) error {
		box := inbox.New(s.db, s.clock, inbox.Dispatch(s.topups, c))
		for {
			if worked, err := box.One(ctx); err != nil || !worked {
				break
			}
		}
		for _, b := range bills {
			if err := c.Settle(ctx, b.org, b.id); err != nil {
				t.Error(err)
			}
		}
		_, err := c.Compare(ctx)
		return err
	})
	for _, x := range bills {
		s.org = x.org
		s.wantPaid(x.id, s.get(x.id).Total)
	}
}
