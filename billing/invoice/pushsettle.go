package invoice

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/tenants"
)

// Settle looks at the payment provider and books what its money did: it arrived, went back, or came again. Whoever hears
// that something may have happened calls it - an event, a page, the comparison, the worker; for nothing it changes nothing.
func (c *Collector) Settle(ctx context.Context, org, id ids.ID) error {
	if !c.On() {
		return errNoTill
	}
	for try := 1; ; try++ {
		v, err := c.look(ctx, org, id)
		if err != nil || v.seen == nil {
			return err
		}
		err = c.s.system(ctx, func(tx pgx.Tx, _ *q.Queries) error { _, err := c.book(ctx, tx, v.push, *v.seen); return err })
		if errors.Is(err, errMoved) && try < looks {
			continue
		}
		if err == nil {
			c.tell(ctx, org)
		}
		return err
	}
}

// looks is how often is looked again when somebody else is faster.
const looks = 8

// targets are what the books must hold by what is seen: not events, so that order and repetition do not matter.
func targets(push q.InvoicePush, notes []q.CreditNote, seen TillState) q.InvoicePush {
	next := push
	next.ReceivedCents = max(push.ReceivedCents, seen.Paid)
	next.RefundedCents = min(next.ReceivedCents, refunds(push, notes, seen))
	next.ClawedCents = min(next.ReceivedCents, next.RefundedCents+max(seen.Disputed, 0))
	if next.FeeCents == 0 {
		next.FeeCents = max(seen.Fee, 0)
	}
	if seen.Payment != "" {
		next.PaymentID = &seen.Payment
	}
	next.Url, next.PdfUrl = seen.URL, seen.PDF
	next.LooseCents = unexplained(next, notes, seen)
	return next
}

// book moves the books to what is seen, in tx: all or nothing, and nothing when somebody acted since push was read.
func (c *Collector) book(ctx context.Context, tx pgx.Tx, push q.InvoicePush, seen TillState) (after q.Invoice, err error) {
	r := q.New(tx)
	inv, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: push.OrgID, ID: push.InvoiceID})
	if err != nil {
		return inv, tenants.Found(err, "invoice")
	}
	notes, err := r.CreditNotes(ctx, q.CreditNotesParams{OrgID: push.OrgID, InvoiceID: push.InvoiceID})
	if err != nil {
		return inv, fmt.Errorf("invoice: credit notes: %w", err)
	}
	next := targets(push, notes, seen)
	if next.ClawedCents != push.ClawedCents {
		next.Clawbacks++
	}
	if delta := next.ReceivedCents - push.ReceivedCents; delta > 0 {
		a := arrival{cents: delta, method: byStripe, reference: paymentOf(seen), key: fmt.Sprintf("%s:%d", seen.Ref, next.ReceivedCents), at: c.s.now()}
		if inv, _, err = c.s.settle(ctx, tx, tenants.System(), inv, a); err != nil {
			return inv, err
		}
	}
	back, refunded := fmt.Sprintf("%s:back:%d", seen.Ref, next.Clawbacks), next.RefundedCents-push.RefundedCents
	switch delta := next.ClawedCents - push.ClawedCents; {
	case delta > 0:
		_, excess, err := atProvider(ctx, r, next, push.ClawedCents)
		if err != nil {
			return inv, err
		}
		taken := min(delta-min(delta, excess), inv.PaidCents)
		if inv, err = c.takeBack(ctx, tx, inv, back, delta, taken, min(refunded, taken)); err != nil {
			return inv, err
		}
		next.TakenCents += taken
	case delta < 0:
		if inv, _, err = c.s.settle(ctx, tx, tenants.System(), inv, arrival{cents: -delta, again: true, refunded: refunded, method: byStripe, reference: "back: " + paymentOf(seen), key: back, at: c.s.now()}); err != nil {
			return inv, err
		}
	case refunded != 0: // as much as disputes moved the other way
		if inv, err = c.s.move(ctx, tx, inv, inv, refunded); err != nil {
			return inv, err
		}
	}
	if err := c.bookFee(ctx, tx, inv, push, next); err != nil {
		return inv, err
	}
	if State(inv.State) == Paid || State(inv.State) == Void {
		next.FailedAt = nil
	}
	if same(push, next) {
		return inv, nil
	}
	return inv, c.keep(ctx, tx, push, next)
}

func paymentOf(seen TillState) string {
	if seen.Payment != "" {
		return seen.Payment
	}
	return seen.Ref
}

// atProvider is what the payment provider still has of an invoice's money, in cents: of what paid it, and of what became
// credit because nothing was due any more. clawed is what of push.ReceivedCents is booked as gone.
func atProvider(ctx context.Context, r *q.Queries, push q.InvoicePush, clawed int64) (paid, excess int64, err error) {
	came, err := r.CameByProvider(ctx, q.CameByProviderParams{OrgID: push.OrgID, InvoiceID: push.InvoiceID})
	if err != nil {
		return 0, 0, fmt.Errorf("invoice: what came by the payment provider: %w", err)
	}
	again := came.Paid + came.Excess - push.ReceivedCents // what went back once and came again
	return max(came.Paid-push.TakenCents-came.Noted, 0), max(came.Excess-(clawed+again-push.TakenCents), 0), nil
}

// takeBack books money that went back past every credit note: credit that it had become is taken first, then what it paid is
// owed again: taken, of which refunded is the operator's doing.
func (c *Collector) takeBack(ctx context.Context, tx pgx.Tx, inv q.Invoice, key string, cents, taken, refunded int64) (q.Invoice, error) {
	err := c.s.post(ctx, tx, ledger.Txn{Org: inv.OrgID, Kind: ledger.Refund, Memo: "Payment taken back, " + *inv.Number, Key: "invoice:" + inv.ID.String() + ":taken:" + key,
		Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, nano(taken)), ledger.Debit(ledger.PrepaidPaid, nano(cents-taken)), ledger.Credit(ledger.StripeClearing, nano(cents))}})
	if err != nil {
		return inv, err
	}
	moved := inv
	moved.PaidCents -= taken
	inv, err = c.s.move(ctx, tx, inv, moved, refunded)
	if err != nil {
		return inv, err
	}
	return inv, c.s.audit(ctx, tx, tenants.System(), inv.OrgID, "invoice.payment_taken_back", inv.ID, nil, map[string]any{"number": *inv.Number, "cents": cents})
}

// bookFee books what the payment provider kept, once it is known.
func (c *Collector) bookFee(ctx context.Context, tx pgx.Tx, inv q.Invoice, before, next q.InvoicePush) error {
	fee := nano(next.FeeCents)
	if before.FeeCents != 0 || fee == 0 {
		return nil
	}
	return c.s.post(ctx, tx, ledger.Txn{Org: inv.OrgID, Kind: ledger.Payment, Memo: "Fee of the payment provider, " + *inv.Number, Key: "invoice:" + inv.ID.String() + ":fee",
		Entries: []ledger.Entry{ledger.Debit(ledger.Fees, fee), ledger.Credit(ledger.StripeClearing, fee)}})
}

// same reports that a look found nothing new about money.
func same(a, b q.InvoicePush) bool {
	return sameMoney(a, b) && a.RefundedCents == b.RefundedCents && a.LooseCents == b.LooseCents && text(a.PaymentID) == text(b.PaymentID) && a.Url == b.Url && a.PdfUrl == b.PdfUrl &&
		(a.FailedAt == nil) == (b.FailedAt == nil)
}

func sameMoney(a, b q.InvoicePush) bool {
	return a.ReceivedCents == b.ReceivedCents && a.ClawedCents == b.ClawedCents && a.FeeCents == b.FeeCents
}
