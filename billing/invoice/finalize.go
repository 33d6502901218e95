package invoice

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
	"millrace/tenants/audit"
)

// Finalize gives a ready invoice its number and books what rounding to cents left. Operators and the worker; again gives the
// same invoice.
func (s *Service) Finalize(ctx context.Context, by tenants.Actor, org, id ids.ID) (Invoice, error) {
	if err := by.RequireOperator(); err != nil {
		return Invoice{}, err
	}
	var out Invoice
	var outdated bool
	err := s.c.DB.InTx(ctx, db.System().Timeout(readTimeout), func(tx pgx.Tx) error {
		row, err := q.New(tx).LockInvoice(ctx, q.LockInvoiceParams{OrgID: org, ID: id})
		if err != nil {
			return tenants.Found(err, "invoice")
		}
		if State(row.State).Final() {
			out, err = invoiceOf(row)
			return err
		}
		if row.State == string(Draft) {
			return fault.New(fault.Conflict, "This invoice cannot become final: %s.", row.Problem).WithCode("invoice_has_a_problem")
		}
		if outdated, err = s.outdated(ctx, q.New(tx), row); err != nil || outdated {
			return err
		}
		row, err = s.finalize(ctx, tx, by, row)
		if err != nil {
			return err
		}
		out, err = invoiceOf(row)
		return err
	})
	if outdated {
		return Invoice{}, fault.New(fault.Conflict, "Usage was booked since this invoice was drafted. It will be drawn anew.").WithCode("invoice_outdated")
	}
	if err != nil {
		return Invoice{}, wrapped("make an invoice final", err)
	}
	credit.Tell(ctx, s.c.Notify, org)
	return out, nil
}

// outdated reports whether the ledger says something else than the draft, and then makes it a draft with a problem: the
// worker draws it anew.
func (s *Service) outdated(ctx context.Context, r *q.Queries, row q.Invoice) (bool, error) {
	c, err := coverOf(ctx, r, row.Month)
	if err != nil {
		return false, err
	}
	months, err := c.accounts(ctx, r, row.OrgID)
	if err != nil {
		return false, err
	}
	var now account
	for _, a := range months {
		now.add(a)
	}
	was := account{promo: money.Nano(row.PromoNano), prepaid: money.Nano(row.PrepaidNano), receivable: money.Nano(row.ReceivableNano), overrun: money.Nano(row.OverrunNano)}
	if now == was {
		return false, nil
	}
	return true, r.DoubtInvoice(ctx, q.DoubtInvoiceParams{OrgID: row.OrgID, ID: row.ID, Problem: "usage was booked after it was drafted"})
}

func (s *Service) finalize(ctx context.Context, tx pgx.Tx, by tenants.Actor, row q.Invoice) (q.Invoice, error) {
	r, now := q.New(tx), s.now()
	// What rounding to cents adds to what is owed, or takes off it.
	if residual := nano(row.SubtotalCents) - money.Nano(row.ReceivableNano); residual != 0 {
		err := s.post(ctx, tx, ledger.Txn{Org: row.OrgID, Kind: ledger.Invoice, Memo: "Rounding to cents, " + row.Month.Format("January 2006"), Key: "invoice:" + row.ID.String() + ":final",
			Entries: []ledger.Entry{{Account: ledger.Receivable, Amount: residual}, {Account: ledger.Rounding, Amount: -residual}}})
		if err != nil {
			return row, err
		}
	}
	if err := s.at("booked"); err != nil {
		return row, err
	}
	billTo, err := details(ctx, r, row.OrgID)
	if err != nil {
		return row, err
	}
	if billTo.LegalName == "" {
		names, err := r.OrgNames(ctx, []ids.ID{row.OrgID})
		if err != nil || len(names) == 0 {
			return row, fmt.Errorf("invoice: %d names of the organization: %w", len(names), err)
		}
		billTo.LegalName = names[0].Name
	}
	p := q.FinalizeInvoiceParams{OrgID: row.OrgID, ID: row.ID, State: string(Open), FinalizedAt: &now, FinalizedBy: by.Name()}
	if p.BillTo, err = json.Marshal(billTo); err != nil {
		return row, err
	}
	if p.Seller, err = json.Marshal(s.c.Seller); err != nil {
		return row, err
	}
	due := now.Add(s.c.Due)
	p.DueAt = &due
	if row.TotalCents == 0 {
		p.State, p.SettledAt = string(Paid), &now
	}
	number, err := nextNumber(ctx, r, s.c.InvoicePrefix, now)
	if err != nil {
		return row, err
	}
	p.Number = &number
	if err := s.at("numbered"); err != nil {
		return row, err
	}
	final, err := r.FinalizeInvoice(ctx, p)
	if err == nil {
		err = s.at("final")
	}
	if err != nil {
		return row, err
	}
	if err := s.mailFinal(ctx, tx, final); err != nil {
		return row, err
	}
	return final, s.audit(ctx, tx, by, row.OrgID, "invoice.finalize", row.ID, nil, map[string]any{"number": number, "month": row.Month.Format("2006-01"), "total_cents": row.TotalCents})
}

// post books a transaction and moves the balance the other way. The key must be fresh: whoever repeats something found that
// out before.
func (s *Service) post(ctx context.Context, tx pgx.Tx, t ledger.Txn) error {
	if t.ID == ids.Nil {
		t.ID = ids.At(s.now())
	}
	_, fresh, err := ledger.Post(ctx, tx, t)
	if err == nil && !fresh {
		err = fmt.Errorf("invoice: ledger key %q was used before", t.Key)
	}
	if err != nil {
		return err
	}
	var gives money.Nano
	for _, e := range t.Entries {
		if e.Account == ledger.Receivable || e.Account == ledger.PrepaidPaid {
			gives -= e.Amount
		}
	}
	if gives == 0 {
		return nil
	}
	return credit.RaiseBalance(ctx, q.New(tx), t.Org, gives)
}

func (s *Service) audit(ctx context.Context, tx pgx.Tx, by tenants.Actor, org ids.ID, action string, id ids.ID, before, after any) error {
	return audit.Append(ctx, tx, by, audit.Change{Org: org, Action: action, Target: ids.Format(ids.Invoice, id), Before: before, After: after, At: s.now()})
}
