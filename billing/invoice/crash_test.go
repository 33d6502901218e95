package invoice_test

import (
	"context"
	"time"

	"millrace/billing/invoice"
	"millrace/internal/ids"
)

// crashing is a till whose process dies at its nth call: before the call, or behind it, when nobody hears the answer.
type crashing struct {
	invoice.Till
	calls  int
	at     int // -1 = never
	behind bool
	before func(call string)
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

func (c *crashing) FindInvoices(ctx context.Context, customer string, id ids.ID) ([]invoice.TillState, error) {
	return call(c, "find", func() ([]invoice.TillState, error) { return c.Till.FindInvoices(ctx, customer, id) })
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
	return call(c, "read", func() (invoice.TillState, error) { return c.Till.Invoice(ctx, ref) })
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
