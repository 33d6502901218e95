package invoice

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

const day24 = 24 * time.Hour

// take does a step, and gives what is known then. A credit note's is kept already.
func (c *Collector) take(ctx context.Context, v view, st step) (q.InvoicePush, error) {
	after, attempt := v.push, int(v.push.Attempt)
	after.State = string(st.state)
	after.Problem = ""
	var err error
	switch st.do {
	case create:
		return c.create(ctx, v, after)
	case fill:
		return c.fill(ctx, v, after)
	case drop:
		if err = c.c.Till.DeleteDraft(ctx, v.seen.Ref); err == nil {
			after.Ref = nil
			after.Attempt++ // its answer may be repeated
		}
	case send:
		if err = c.c.Till.SendInvoice(ctx, v.seen.Ref, attempt); err == nil {
			after.Asks, after.State = after.Asks+1, string(PushAsked)
		}
	case charge:
		return c.charge(ctx, v, after)
	case lower:
		n := TillNote{Invoice: v.seen.Ref, Key: fmt.Sprintf("%s:lower:%d", ids.Format(ids.Invoice, v.inv.ID), v.seen.Due-st.cents), Cents: st.cents, Memo: "Credited, or paid another way"}
		_, err = c.c.Till.CreditNote(ctx, n, int(v.push.LowerAttempt))
	case end:
		_, err = c.c.Till.CloseInvoice(ctx, v.seen.Ref, st.how, attempt)
	case note:
		after.Failures = 0
		return after, c.note(ctx, v, after, *st.note)
	}
	after.Failures = 0
	return after, err
}

// create finds the draft that a lost answer made, or makes one. What was voided there keeps its number.
func (c *Collector) create(ctx context.Context, v view, after q.InvoicePush) (q.InvoicePush, error) {
	found, err := c.c.Till.FindInvoices(ctx, v.customer, v.inv.ID, v.inv.FinalizedAt.Add(-clockSkew))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return after, err
	}
	voided := 0
	for _, x := range found {
		if x.Status == TillVoid {
			voided++
			continue
		}
		after.Ref, after.Charge, after.State = &x.Ref, x.Charge, string(PushDraft)
		return after, nil
	}
	if v.push.Ref != nil { // somebody deleted the draft: its key would give it again
		after.Attempt++
	}
	number := *v.inv.Number
	if voided > 0 {
		number += "-" + strconv.Itoa(voided+1)
	}
	days := max(int(v.inv.DueAt.Sub(*v.inv.FinalizedAt)/day24), 1) // not by the clock: a repetition has the same words
	x, err := c.c.Till.CreateInvoice(ctx, TillInvoice{Org: v.inv.OrgID, Invoice: v.inv.ID, Number: number, Attempt: int(after.Attempt), Customer: v.customer, Charge: v.method != "", Days: days,
		Memo: "Usage of " + v.inv.Month.Format("January 2006")})
	if fault.Is(err, fault.NotFound) { // the customer was deleted there
		after.Attempt++
		_, err = c.c.Customers.AnotherCustomer(ctx, v.inv.OrgID, v.customer)
		return after, err
	}
	if err != nil {
		return after, err
	}
	after.Ref, after.Charge, after.State, after.Failures = &x.Ref, x.Charge, string(PushDraft), 0
	return after, nil
}

// fill adds what a draft lacks, line by line, and finalises it only when it is what we have.
func (c *Collector) fill(ctx context.Context, v view, after q.InvoicePush) (q.InvoicePush, error) {
	var lines []q.InvoiceLine
	err := c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) (err error) {
		lines, err = r.InvoiceLines(ctx, q.InvoiceLinesParams{OrgID: v.inv.OrgID, InvoiceID: v.inv.ID})
		return err
	})
	if err != nil {
		return after, wrapped("lines", err)
	}
	have, err := c.c.Till.InvoiceLines(ctx, v.seen.Ref)
	if err != nil {
		return after, err
	}
	p := planLines(tillLines(v.inv, lines), have)
	switch {
	case p.strange != "":
		return c.stopped(after, p.strange+": delete the draft there, or start over"), nil
	case p.doubled:
		if err := c.c.Till.DeleteDraft(ctx, v.seen.Ref); err != nil {
			return after, err
		}
		after.Ref, after.State = nil, string(PushNew)
		after.Attempt++
		return after, nil
	}
	for _, l := range p.missing {
		if err := c.c.Till.AddLine(ctx, *v.seen, l, int(v.push.Attempt)); err != nil {
			return after, err
		}
	}
	if len(p.missing) > 0 {
		after.Failures = 0
		return after, nil // and look at all of it again
	}
	return c.finalize(ctx, v, after)
}

// finalize compares once more, and sees to it that nobody is asked twice.
func (c *Collector) finalize(ctx context.Context, v view, after q.InvoicePush) (q.InvoicePush, error) {
	if v.seen.Total != v.inv.TotalCents || v.seen.Currency != "usd" {
		return c.stopped(after, fmt.Sprintf("its lines come to %s %s there and to %s here", dollars(v.seen.Total), v.seen.Currency, dollars(v.inv.TotalCents))), nil
	}
	all, err := c.c.Till.FindInvoices(ctx, v.seen.Customer, v.inv.ID, v.inv.FinalizedAt.Add(-clockSkew))
	if err != nil {
		return after, err
	}
	for _, x := range all {
		switch {
		case x.Ref == v.seen.Ref || x.Status == TillVoid:
		case x.Status == TillDraft:
			if err := c.c.Till.DeleteDraft(ctx, x.Ref); err != nil {
				return after, err
			}
		default:
			return c.stopped(after, fmt.Sprintf("the payment provider has another one for it, %s: void one of them", x.Ref)), nil
		}
	}
	x, err := c.c.Till.FinalizeInvoice(ctx, v.seen.Ref, int(v.push.Attempt))
	if err != nil {
		return after, err
	}
	after.State, after.Url, after.PdfUrl, after.Failures = string(PushFinal), x.URL, x.PDF, 0
	return after, nil
}

// stopped lets it wait for a person; it is looked at again all the same.
func (c *Collector) stopped(after q.InvoicePush, problem string) q.InvoicePush {
	at := c.s.now().Add(watchEvery)
	after.State, after.Problem, after.NextAt = string(PushStopped), problem, &at
	return after
}

// charge takes the money from the kept card. A decline begins the reminders.
func (c *Collector) charge(ctx context.Context, v view, after q.InvoicePush) (q.InvoicePush, error) {
	x, err := c.c.Till.ChargeInvoice(ctx, v.seen.Ref, v.method, int(v.push.Attempt))
	if err != nil {
		return after, err
	}
	after.Asks, after.MethodID, after.State, after.Failures = after.Asks+1, v.method, string(PushAsked), 0
	after.Attempt++ // whatever comes next is another charge
	if x.Status != TillPaid {
		now := c.s.now()
		if after.FailedAt == nil {
			after.FailedAt = &now
		}
		after.Problem = "the card was declined: " + x.Problem
	}
	return after, nil
}
