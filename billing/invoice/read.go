package invoice

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// maxPage bounds a list.
const maxPage = 200

// Filter says which invoices an operator wants listed, the newest month first.
type Filter struct {
	State   State     // "" = all
	Month   time.Time // zero = all
	Overdue bool      // only those
	Limit   int       // at most 200
	Before  ids.ID    // continue after this one; ids.Nil = from the newest
}

// List gives an organization's invoices, the newest first; drafts are for operators only.
func (s *Service) List(ctx context.Context, by tenants.Actor, org ids.ID, limit int, before ids.ID) (list []Invoice, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, err
	}
	err = s.c.DB.InTx(ctx, db.Org(org).ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).Invoices(ctx, q.InvoicesParams{OrgID: org, Drafts: by.Operator, Before: before, MaxRows: page(limit)})
		list = make([]Invoice, len(rows))
		for i, r := range rows {
			if list[i], err = invoiceOf(r); err != nil {
				return err
			}
		}
		return err
	})
	return list, wrapped("list", err)
}

// All gives every organization's invoices. Operators only.
func (s *Service) All(ctx context.Context, by tenants.Actor, f Filter) (list []Invoice, err error) {
	if err := by.RequireOperator(); err != nil {
		return nil, err
	}
	now := s.now()
	err = s.c.DB.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		rows, err := q.New(tx).AllInvoices(ctx, q.AllInvoicesParams{State: string(f.State), Month: f.Month, Overdue: f.Overdue, Now: now, Before: f.Before, MaxRows: page(f.Limit)})
		list = make([]Invoice, len(rows))
		for i, r := range rows {
			if list[i], err = invoiceOf(r.Invoice); err != nil {
				return err
			}
			list[i].OrgName = r.OrgName
		}
		return err
	})
	return list, wrapped("list all", err)
}

func page(limit int) int32 {
	if limit <= 0 || limit > maxPage {
		return maxPage
	}
	return int32(limit)
}

// Get gives an invoice with its lines, payments and credit notes.
func (s *Service) Get(ctx context.Context, by tenants.Actor, org, id ids.ID) (out Invoice, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return Invoice{}, err
	}
	err = s.c.DB.InTx(ctx, db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) error {
		r := q.New(tx)
		row, err := r.Invoice(ctx, q.InvoiceParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "invoice")
		}
		if out, err = invoiceOf(row); err != nil {
			return err
		}
		if !out.State.Final() && !by.Operator {
			return fault.New(fault.NotFound, "There is no such invoice.").WithCode("not_found")
		}
		if err := out.read(ctx, r); err != nil {
			return err
		}
		for n := range out.Notes {
			if note := &out.Notes[n]; !by.Operator {
				note.Refused, note.SentWhy = "", ""
			}
		}
		return nil
	})
	return out, wrapped("read", err)
}

// read adds lines, payments and notes.
func (i *Invoice) read(ctx context.Context, r *q.Queries) error {
	lines, err := r.InvoiceLines(ctx, q.InvoiceLinesParams{OrgID: i.Org, InvoiceID: i.ID})
	if err != nil {
		return err
	}
	i.Lines = make([]Line, len(lines))
	for n, l := range lines {
		i.Lines[n] = lineOf(l)
	}
	payments, err := r.InvoicePayments(ctx, q.InvoicePaymentsParams{OrgID: i.Org, InvoiceID: i.ID})
	if err != nil {
		return err
	}
	for _, p := range payments {
		i.Payments = append(i.Payments, Payment{ID: p.ID, Cents: p.Cents, Excess: p.ExcessCents, Fee: p.FeeCents, Method: p.Method, Reference: p.Reference,
			ReceivedAt: p.ReceivedAt, By: p.CreatedBy, Txn: p.TxnID})
	}
	reversed, err := r.ReversedPayments(ctx, q.ReversedPaymentsParams{OrgID: i.Org, InvoiceID: i.ID})
	if err != nil {
		return err
	}
	for _, v := range reversed {
		for n := range i.Payments {
			if p := &i.Payments[n]; p.ID == v.PaymentID {
				p.ReversedAt, p.ReversedWhy = v.CreatedAt, v.Reason
			}
		}
	}
	notes, err := r.CreditNotes(ctx, q.CreditNotesParams{OrgID: i.Org, InvoiceID: i.ID})
	for _, n := range notes {
		i.Notes = append(i.Notes, Note{ID: n.ID, Number: n.Number, Cents: n.Cents, Relieved: n.RelievedCents, Back: Back(n.Back), Reason: n.Reason, By: n.CreatedBy,
			At: n.CreatedAt, Txn: n.TxnID, Refused: n.TillProblem, SentAt: at(n.SentAt), SentWhy: text(n.SentReason)})
	}
	return err
}

func invoiceOf(r q.Invoice) (Invoice, error) {
	i := Invoice{ID: r.ID, Org: r.OrgID, Month: r.Month, State: State(r.State), Problem: r.Problem, Charged: money.Nano(r.ChargedNano), Promo: money.Nano(r.PromoNano),
		Prepaid: money.Nano(r.PrepaidNano), Receivable: money.Nano(r.ReceivableNano), Overrun: money.Nano(r.OverrunNano), Subtotal: r.SubtotalCents, Tax: r.TaxCents,
		Total: r.TotalCents, Paid: r.PaidCents, Credited: r.CreditedCents, Relieved: r.RelievedCents, GivenUp: r.GivenUpCents, DraftedAt: r.DraftedAt,
		FinalizedAt: at(r.FinalizedAt), DueAt: at(r.DueAt), SettledAt: at(r.SettledAt), Version: r.Version}
	if r.Number != nil {
		i.Number = *r.Number
	}
	if err := json.Unmarshal(r.BillTo, &i.BillTo); err != nil {
		return Invoice{}, fmt.Errorf("invoice: to whom %s is: %w", r.ID, err)
	}
	if err := json.Unmarshal(r.Seller, &i.Seller); err != nil {
		return Invoice{}, fmt.Errorf("invoice: who sends %s: %w", r.ID, err)
	}
	return i, nil
}

func lineOf(r q.InvoiceLine) Line {
	l := Line{Kind: LineKind(r.Kind), Month: r.UsageMonth, Name: r.Model, Service: r.ServiceTier, Class: r.Class, Quantity: r.Quantity, Amount: money.Nano(r.AmountNano),
		Cents: r.Cents}
	if r.ModelID != nil {
		l.Model = *r.ModelID
	}
	if r.PriceVersionID != nil {
		l.Version = *r.PriceVersionID
	}
	if r.UnitPico != nil {
		unit := money.Pico(*r.UnitPico)
		l.Unit = &unit
	}
	return l
}

func at(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
