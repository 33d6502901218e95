package invoice

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/tenants"
)

// ReversePayment takes back a payment that was recorded by hand and never came: what it paid is due again, and what it had
// brought back of what was given up, too. Once; operators only; audited.
func (s *Service) ReversePayment(ctx context.Context, by tenants.Actor, org, id, payment ids.ID, reason string) (out Invoice, err error) {
	if err := by.RequireOperator(); err != nil {
		return Invoice{}, err
	}
	reason = strings.TrimSpace(reason)
	if reason == "" || len(reason) > maxReason {
		return Invoice{}, fault.New(fault.Invalid, "Give a reason of at most %d bytes.", maxReason).WithParam("reason")
	}
	if err := credit.CheckWords("reason", reason); err != nil {
		return Invoice{}, err
	}
	err = s.system(ctx, func(tx pgx.Tx, r *q.Queries) error {
		row, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "invoice")
		}
		p, err := reversible(ctx, r, row, payment)
		if err != nil {
			return err
		}
		if row, err = s.reverse(ctx, tx, by, row, p, reason); err != nil {
			return err
		}
		out, err = invoiceOf(row)
		return err
	})
	if err != nil {
		return Invoice{}, wrapped("reverse a payment", err)
	}
	credit.Tell(ctx, s.c.Notify, org)
	return out, nil
}

// reversible gives a payment that may be taken back.
func reversible(ctx context.Context, r *q.Queries, row q.Invoice, payment ids.ID) (p q.InvoicePayment, err error) {
	list, err := r.InvoicePayments(ctx, q.InvoicePaymentsParams{OrgID: row.OrgID, InvoiceID: row.ID})
	if err != nil {
		return p, fmt.Errorf("invoice: payments: %w", err)
	}
	for _, x := range list {
		if x.ID == payment {
			p = x
		}
	}
	before, err := r.ReversedPayments(ctx, q.ReversedPaymentsParams{OrgID: row.OrgID, InvoiceID: row.ID})
	if err != nil {
		return p, fmt.Errorf("invoice: reversed payments: %w", err)
	}
	switch {
	case slices.ContainsFunc(before, func(v q.InvoicePaymentReversal) bool { return v.PaymentID == payment }):
		return p, fault.New(fault.Conflict, "This payment was taken back already.").WithCode("reversed")
	case p.ID == ids.Nil:
		return p, fault.New(fault.NotFound, "There is no such payment.").WithCode("not_found")
	case p.Method != byHand:
		return p, fault.New(fault.Conflict, "It came by the payment provider. Refund it there.").WithCode("not_by_hand")
	case row.PaidCents-p.Cents < row.CreditedCents-row.RelievedCents:
		return p, fault.New(fault.Conflict, "A credit note gave a part of it back.").WithCode("credited")
	}
	return p, nil
}

func (s *Service) reverse(ctx context.Context, tx pgx.Tx, by tenants.Actor, row q.Invoice, p q.InvoicePayment, reason string) (q.Invoice, error) {
	now := s.now()
	id := ids.At(now)
	err := q.New(tx).InsertPaymentReversal(ctx, q.InsertPaymentReversalParams{OrgID: row.OrgID, PaymentID: p.ID, Reason: reason, TxnID: id, CreatedBy: by.Name(), CreatedAt: now})
	if err != nil {
		return row, wrapped("keep a reversal", err)
	}
	err = s.post(ctx, tx, ledger.Txn{ID: id, Org: row.OrgID, Kind: ledger.Reversal, Memo: "Payment of " + *row.Number + " that did not come", Key: "payment reversed:" + p.ID.String(),
		Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, nano(p.Cents)), ledger.Credit(ledger.Cash, nano(p.Cents))}})
	if err != nil {
		return row, err
	}
	moved := row
	moved.PaidCents -= p.Cents
	if row, err = s.move(ctx, tx, row, moved, 0); err != nil {
		return row, err
	}
	return row, s.audit(ctx, tx, by, row.OrgID, "invoice.reverse_payment", row.ID, nil,
		map[string]any{"number": *row.Number, "cents": p.Cents, "reference": p.Reference, "reason": reason})
}
