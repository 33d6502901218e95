package invoice

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/tenants"
)

// writeOffDeed is how the desk gives up what is due.
type writeOffDeed struct{ s *Service }

// Check refuses where nothing is due.
func (d writeOffDeed) Check(ctx context.Context, tx pgx.Tx, r credit.Request) error {
	row, err := q.New(tx).Invoice(ctx, q.InvoiceParams{OrgID: r.Org, ID: r.Details.Invoice})
	if err != nil {
		return tenants.Found(err, "invoice")
	}
	return checkWriteOff(row, r)
}

func checkWriteOff(row q.Invoice, r credit.Request) error {
	due := nano(unpaid(row))
	switch {
	case row.Number == nil:
		return fault.New(fault.Conflict, "This invoice is not final yet.").WithCode("invoice_not_final")
	case due == 0:
		return fault.New(fault.Conflict, "Nothing is due on this invoice.").WithCode("nothing_due")
	case r.Amount != due:
		return fault.New(fault.Conflict, "Now %s USD are due. Ask again.", due).WithCode("invoice_changed")
	case len(r.Reason) > maxReason:
		return fault.New(fault.Invalid, "Give a reason of at most %d bytes.", maxReason).WithParam("reason")
	}
	return nil
}

// Do books it.
func (d writeOffDeed) Do(ctx context.Context, tx pgx.Tx, by tenants.Actor, request credit.Request) error {
	s, r := d.s, q.New(tx)
	row, err := r.LockInvoice(ctx, q.LockInvoiceParams{OrgID: request.Org, ID: request.Details.Invoice})
	if err != nil {
		return tenants.Found(err, "invoice")
	}
	if err := r.LockDunnedOrg(ctx, row.OrgID); err != nil { // its limit is lowered below
		return fmt.Errorf("invoice: lock an organization: %w", err)
	}
	if err := checkWriteOff(row, request); err != nil {
		return err
	}
	err = s.post(ctx, tx, ledger.Txn{Org: row.OrgID, Kind: ledger.Invoice, Memo: *row.Number + ", given up", Key: "write-off:" + request.ID.String(),
		Entries: []ledger.Entry{ledger.Debit(ledger.BadDebt, request.Amount), ledger.Credit(ledger.Receivable, request.Amount)}})
	if err != nil {
		return err
	}
	moved := row
	moved.GivenUpCents += int64(request.Amount / NanoPerCent)
	if _, err := s.move(ctx, tx, row, moved, 0); err != nil {
		return err
	}
	if err := s.lowerLimit(ctx, tx, row.OrgID, request.Amount); err != nil {
		return err
	}
	return s.audit(ctx, tx, by, row.OrgID, "invoice.write_off", row.ID, nil, map[string]any{"number": *row.Number, "cents": int64(request.Amount / NanoPerCent), "reason": strings.TrimSpace(request.Reason)})
}
