package invoice_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/billing/invoice"
	"millrace/billing/price"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// The running month is what its invoice will say: by rollups, and request by request where prices vary or rollups say something
// else than the ledger.
func TestTheRunningMonthIsTheInvoiceToCome(t *testing.T) {
	w := newWorld(t)
	plain := w.model("acme/plain", usage.Prices{usage.Input: 150_001, usage.Output: 600_003, usage.Reasoning: 600_003, usage.Requests: 123_457_001}, price.Terms{Batch: 50})
	terms := w.model("acme/terms", usage.Prices{usage.Input: 3_333_333, usage.Output: 9_999_999}, price.Terms{
		Tiers:   []price.Tier{{Above: 1000, Prices: usage.Prices{usage.Input: 6_666_667, usage.Output: 15_000_001}}},
		Windows: []price.Window{{From: 0, To: 6 * 60, Percent: 33}}})
	free := w.model("acme/free", usage.Prices{}, price.Terms{})
	c := w.customer(1000 * money.NanoPerUSD)
	var events []*usage.Event
	for n := range int64(60) {
		v := []price.Version{plain, terms, free}[n%3]
		service := usage.Ordinary
		if n%6 == 0 {
			service = usage.Batch
		}
		events = append(events, c.event(w.month(1).Add(time.Duration(n)*3*time.Hour+time.Duration(n)*time.Minute), v, service, usage.Vector{usage.Input: 700 + 13*n, usage.Output: 50 * n, usage.Reasoning: n, usage.Requests: 1}))
	}
	failed := c.event(w.month(1).Add(5*time.Hour), plain, usage.Ordinary, usage.Vector{usage.Input: 999})
	failed.Ending, failed.Charge, failed.Status = usage.FailedUnbilled, 0, 502
	// Its id is of this month and its start of the one before, and the other way round.
	early := c.event(w.month(1), plain, usage.Ordinary, usage.Vector{usage.Input: 77_777})
	early.StartedMS--
	turn := c.event(w.month(1).Add(-time.Millisecond), plain, usage.Ordinary, usage.Vector{usage.Input: 88_888})
	turn.StartedMS++
	c.paid(append(events, failed, early, turn)...)
	soFar := func() invoice.Invoice {
		t.Helper()
		i, err := w.service().SoFar(t.Context(), operator, c.org)
		if err != nil || i.Problem != "" || i.Charged == 0 {
			t.Fatalf("%+v, %v", i, err)
		}
		return i
	}
	quantity := func(i *invoice.Invoice, class usage.Class) (n int64) {
		for _, l := range i.Lines {
			if l.Class == class.String() {
				n += l.Quantity
			}
		}
		return n
	}
	shown := soFar()
	// Of the same price, so that only who reads rollups can tell.
	w.exec("UPDATE usage_rollups SET reasoning_tokens = reasoning_tokens + output_tokens, output_tokens = 0 WHERE price_version_id = $1", plain.ID)
	if i := soFar(); quantity(&i, usage.Reasoning) <= quantity(&shown, usage.Reasoning) {
		t.Error("it does not read rollups")
	}
	w.exec("UPDATE usage_rollups SET input_tokens = 2 * input_tokens WHERE price_version_id = $1", plain.ID)
	byRequests := soFar()
	w.at(invoice.FreezeOf(w.month(1)).Add(time.Hour))
	w.turn()
	final := c.invoice(w.month(1))
	same := func(a, b invoice.Line) bool {
		if (a.Unit == nil) != (b.Unit == nil) || a.Unit != nil && *a.Unit != *b.Unit {
			return false
		}
		a.Unit, b.Unit = nil, nil
		return a == b
	}
	for name, i := range map[string]invoice.Invoice{"by rollups": shown, "by requests": byRequests} {
		if !slices.EqualFunc(i.Lines, final.Lines, same) || i.Total != final.Total || i.Receivable != final.Receivable {
			t.Errorf("%s it was\n%+v\nand became\n%+v", name, i.Lines, final.Lines)
		}
	}
}

// What cannot be read in time is not tried again by the next one who has no more time, and one at a time reads it.
func TestARunningMonthThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	c := w.customer(1000 * money.NanoPerUSD)
	c.paid(c.used(w.dollar(), w.month(1).Add(time.Hour), 7))
	hurried := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.invoices.SoFar(ctx, operator, c.org)
		return err
	}
	release := w.lock("usage_rollups")
	if err := hurried(); err == nil {
		t.Error("it was read though nobody can")
	}
	release()
	if err := hurried(); err == nil {
		t.Error("it was tried again at once")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if i, err := w.invoices.SoFar(t.Context(), operator, c.org); err != nil || i.Total != 7_00 {
				t.Errorf("with more time: %+v, %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := hurried(); err != nil {
		t.Errorf("once it was read: %v", err)
	}
}
