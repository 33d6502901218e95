package invoice

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// errMoved says that somebody else acted since the look at the payment provider began.
var errMoved = errors.New("invoice: changed meanwhile")

// view is an invoice here and at the payment provider; seen = nil: nothing is known there.
type view struct {
	inv              q.Invoice
	push             q.InvoicePush
	notes            []q.CreditNote
	customer, method string
	seen             *TillState
}

// look reads both sides. It changes nothing.
func (c *Collector) look(ctx context.Context, org, id ids.ID) (v view, err error) {
	err = c.s.system(ctx, func(_ pgx.Tx, r *q.Queries) error {
		if v.inv, err = r.Invoice(ctx, q.InvoiceParams{OrgID: org, ID: id}); err != nil {
			return tenants.Found(err, "invoice")
		}
		if v.push, err = r.InvoicePush(ctx, q.InvoicePushParams{OrgID: org, InvoiceID: id}); err != nil {
			return tenants.Found(err, "invoice at the payment provider")
		}
		v.notes, err = r.CreditNotes(ctx, q.CreditNotesParams{OrgID: org, InvoiceID: id})
		return err
	})
	if err != nil {
		return v, wrapped("look", err)
	}
	return c.see(ctx, v)
}

// see asks the payment provider.
func (c *Collector) see(ctx context.Context, v view) (view, error) {
	v.seen = nil
	if v.push.Ref == nil {
		return v, nil
	}
	seen, err := c.c.Till.Invoice(ctx, *v.push.Ref)
	if fault.Is(err, fault.NotFound) {
		return v, nil
	}
	if err != nil {
		return v, err
	}
	v.seen = &seen
	return v, nil
}

// keep stores what is known, unless somebody else did so since.
func (c *Collector) keep(ctx context.Context, tx pgx.Tx, before, next q.InvoicePush) error {
	now, err := q.New(tx).LockInvoicePush(ctx, q.LockInvoicePushParams{OrgID: before.OrgID, InvoiceID: before.InvoiceID})
	if err != nil {
		return fmt.Errorf("invoice: lock: %w", err)
	}
	if now.Version != before.Version {
		return errMoved
	}
	n := next
	err = q.New(tx).ChangeInvoicePush(ctx, q.ChangeInvoicePushParams{OrgID: n.OrgID, InvoiceID: n.InvoiceID, State: n.State, Ref: n.Ref, Attempt: n.Attempt, Url: n.Url, PdfUrl: n.PdfUrl,
		Problem: clip(n.Problem, maxProblem), NextAt: n.NextAt, Charge: n.Charge, PaymentID: n.PaymentID, MethodID: n.MethodID, Asks: n.Asks, FailedAt: n.FailedAt, Failures: n.Failures,
		ReceivedCents: n.ReceivedCents, ClawedCents: n.ClawedCents, RefundedCents: n.RefundedCents, Clawbacks: n.Clawbacks, TakenCents: n.TakenCents, FeeCents: n.FeeCents, SeenVersion: n.SeenVersion, LowerAttempt: n.LowerAttempt, LooseCents: n.LooseCents, UpdatedAt: c.s.now()})
	if err != nil {
		return fmt.Errorf("invoice: keep what is known: %w", err)
	}
	return nil
}

const maxProblem = 500 // bytes

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 { // not inside a character
		n--
	}
	return s[:n]
}

// tell makes gateways and open pages look again, after the commit.
func (c *Collector) tell(ctx context.Context, org ids.ID) { credit.Tell(ctx, c.s.c.Notify, org) }
