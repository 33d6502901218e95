package invoice_test

import (
	"context"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/stripefake"
	"millrace/internal/ids"
)

// crashing is a till whose process dies at its nth call: before the call, or behind it, when nobody hears the answer.
type crashing struct {
	invoice.Till
	calls  int
	at     int // -1 = never
	behind bool
	before func(call string)
	see    func(s *invoice.TillState) // what reading an invoice says otherwise
}

func (c *crashing) run(call string, do func() error) error {
	if c.before != nil {
		c.before(call)
	}
	n := c.calls
	c.calls++
	switch {
	case n != c.at:
		return do()
	case c.behind:
		_ = do() // nobody hears
	}
	panic(errCrash)
}

func call[T any](c *crashing, name string, do func() (T, error)) (out T, err error) {
	err = c.run(name, func() (err error) { out, err = do(); return err })
	return out, err
}

func (c *crashing) CreateInvoice(ctx context.Context, i invoice.TillInvoice) (invoice.TillState, error) {
	return call(c, "create", func() (invoice.TillState, error) { return c.Till.CreateInvoice(ctx, i) })
}

func (c *crashing) FindInvoices(ctx context.Context, customer string, id ids.ID, since time.Time) ([]invoice.TillState, error) {
	return call(c, "find", func() ([]invoice.TillState, error) { return c.Till.FindInvoices(ctx, customer, id, since) })
}

func (c *crashing) InvoiceLines(ctx context.Context, ref string) ([]invoice.TillLine, error) {
	return call(c, "lines", func() ([]invoice.TillLine, error) { return c.Till.InvoiceLines(ctx, ref) })
}

func (c *crashing) AddLine(ctx context.Context, s invoice.TillState, l invoice.TillLine, attempt int) error {
	return c.run("line", func() error { return c.Till.AddLine(ctx, s, l, attempt) })
}

func (c *crashing) DeleteDraft(ctx context.Context, ref string) error {
	return c.run("delete", func() error { return c.Till.DeleteDraft(ctx, ref) })
}

func (c *crashing) FinalizeInvoice(ctx context.Context, ref string, attempt int) (invoice.TillState, error) {
	return call(c, "finalize", func() (invoice.TillState, error) { return c.Till.FinalizeInvoice(ctx, ref, attempt) })
}

func (c *crashing) SendInvoice(ctx context.Context, ref string, attempt int) error {
	return c.run("send", func() error { return c.Till.SendInvoice(ctx, ref, attempt) })
}

func (c *crashing) ChargeInvoice(ctx context.Context, ref, method string, attempt int) (invoice.TillState, error) {
	return call(c, "charge", func() (invoice.TillState, error) { return c.Till.ChargeInvoice(ctx, ref, method, attempt) })
}

func (c *crashing) CloseInvoice(ctx context.Context, ref string, how invoice.TillEnd, attempt int) (invoice.TillState, error) {
	return call(c, "close", func() (invoice.TillState, error) { return c.Till.CloseInvoice(ctx, ref, how, attempt) })
}

func (c *crashing) Invoice(ctx context.Context, ref string) (invoice.TillState, error) {
	return call(c, "read", func() (s invoice.TillState, err error) {
		if s, err = c.Till.Invoice(ctx, ref); c.see != nil {
			c.see(&s)
		}
		return s, err
	})
}

func (c *crashing) CreditNote(ctx context.Context, n invoice.TillNote, attempt int) (invoice.TillNote, error) {
	return call(c, "note", func() (invoice.TillNote, error) { return c.Till.CreditNote(ctx, n, attempt) })
}

func (c *crashing) CreditNotes(ctx context.Context, ref string) ([]invoice.TillNote, error) {
	return call(c, "notes", func() ([]invoice.TillNote, error) { return c.Till.CreditNotes(ctx, ref) })
}

// dies runs a turn of a process that may die in it, and reports whether it did.
func (s *shop) dies(till *crashing) (died bool) {
	s.t.Helper()
	defer func() {
		switch r := recover(); r {
		case nil:
		case errCrash:
			died = true
		default:
			panic(r)
		}
	}()
	s.must(s.collector(till).Turn(context.Background()))
	return false
}

// later is behind every claim and pause.
const later = 7 * time.Hour

// A process dies before or behind each of its calls, in turn: the next one goes on, and there is one invoice, with each line
// once, paid once.
func TestACrashAtAnyStepLeavesOneInvoice(t *testing.T) {
	s := newShop(t)
	for at, invoices := 0, 0; ; at++ {
		died := false
		for _, behind := range []bool{false, true} {
			s.newOrg()
			if at%2 == 0 {
				s.keepCard(stripefake.CardGood)
			}
			id := s.bill(10_00, 20_00, 3)
			till := &crashing{Till: s.gateway.Till(), at: at, behind: behind}
			died = s.dies(till)
			s.clock.Advance(later)
			for range 3 {
				s.turn()
				s.clock.Advance(later)
			}
			all := s.fake.Invoices()
			invoices++
			if len(all) != invoices {
				t.Fatalf("died at %d, behind=%t: %d invoices of %d", at, behind, len(all), invoices)
			}
			there := all[len(all)-1]
			if len(there.Lines) != 3 || there.Total != 30_03 || there.Attempts > 1 {
				t.Fatalf("died at %d, behind=%t: %+v", at, behind, there)
			}
			if at%2 == 1 {
				if problem := s.fake.PayInvoice(there.ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
					t.Fatal(problem)
				}
				s.hear()
			}
			s.wantPaid(id, 30_03)
		}
		if !died {
			if at < 6 {
				t.Fatalf("only %d calls", at)
			}
			return
		}
	}
}

// The payment provider fails at each path, in each way: what it replays under the same key is not waited for forever, and what
// it did all the same is not done twice.
func TestWhateverTheProviderFailsAt(t *testing.T) {
	paths := []string{"/v1/customers", "/v1/invoices", "/v1/invoiceitems", "/v1/invoices/in_", "/v1/credit_notes"}
	for _, path := range paths {
		for name, f := range map[string]stripefake.Fault{
			"a lock timeout":           {Status: 429, Times: 1},
			"two lock timeouts":        {Status: 429, Times: 2},
			"a failure":                {Status: 500, Times: 1},
			"a failure that was none":  {Status: 500, Times: 1, After: true},
			"two of them":              {Status: 500, Times: 2, After: true},
			"done when nobody waits":   {Status: 500, Times: 1, Delay: time.Minute},
			"done long behind the end": {Status: 500, Times: 1, Delay: 4 * time.Minute},
		} {
			t.Run(path+" "+name, func(t *testing.T) { survives(t, path, f) })
		}
	}
}

func survives(t *testing.T, path string, f stripefake.Fault) {
	t.Helper()
	t.Parallel()
	s := newShop(t)
	turns := func(n int) {
		for range n {
			_ = s.collect.Turn(t.Context()) // its failures are what this is about
			s.clock.Advance(20 * time.Minute)
		}
	}
	id := s.bill(10_00, 20_00, 3)
	f.Path = path
	s.fake.Fail(f)
	turns(6)
	_, err := s.bills.CreditNote(t.Context(), operator, s.org, id, invoice.NoteInput{Cents: 3, Reason: "A present", IdempotencyKey: "n"})
	s.must(err)
	turns(6) // a lock that is busy is told twice under each key
	var open []stripefake.InvoiceView
	for _, x := range s.fake.Invoices() {
		if x.Status != "draft" {
			open = append(open, x)
		}
	}
	if len(open) != 1 || len(open[0].Lines) != 3 || open[0].Total != 30_03 || open[0].Remaining != 30_00 {
		t.Fatalf("%+v, %+v", s.fake.Invoices(), s.how(id))
	}
	if problem := s.fake.PayInvoice(open[0].ID, stripefake.Way{Number: stripefake.CardGood}); problem != "" {
		t.Fatal(problem)
	}
	s.hear()
	if i := s.get(id); i.State != invoice.Paid || i.Paid != 30_00 {
		t.Errorf("%+v", i)
	}
	s.sound()
}
