package credit

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// reversal is a transaction that can be reversed.
type reversal struct {
	txn     ids.ID
	kind    ledger.Kind
	entries []ledger.Entry
	lot     ids.ID // that it opened; ids.Nil = none
}

// gives is what the customer gets by the reversal; negative: loses.
func (r *reversal) gives() (n money.Nano) {
	for _, e := range r.entries {
		if e.Account == ledger.PrepaidPaid || e.Account == ledger.PrepaidPromo {
			n += e.Amount // a debit of credit is given again
		}
	}
	return n
}

// reversible finds a transaction that a reversal may undo; what it says of a lot holds while the organization's balances are
// locked. Usage is corrected by an adjustment, because one transaction is
// many requests; payments go back by the payment provider, which tells of it; a reversal stays.
func (d *Desk) reversible(ctx context.Context, tx pgx.Tx, org, id ids.ID) (*reversal, error) {
	queries := q.New(tx)
	missing := fault.New(fault.NotFound, "There is no such transaction.").WithCode("not_found").WithParam("txn")
	if id.Version() != 7 {
		return nil, missing
	}
	rows, err := queries.LedgerTxn(ctx, q.LedgerTxnParams{OrgID: org, Day: ids.Day(id), ID: id})
	if err != nil {
		return nil, fmt.Errorf("credit: find a transaction: %w", err)
	}
	if len(rows) == 0 {
		return nil, missing
	}
	r := &reversal{txn: id, kind: ledger.Kind(rows[0].Kind)}
	atProvider := slices.ContainsFunc(rows, func(e q.LedgerTxnRow) bool { return e.Account == string(ledger.StripeClearing) })
	if booked := []ledger.Kind{ledger.Grant, ledger.Adjustment, ledger.Expiry}; atProvider || !slices.Contains(booked, r.kind) {
		return nil, fault.New(fault.Conflict, "A transaction of the kind %s cannot be reversed. Correct it by an adjustment.", r.kind).WithCode("not_reversible").WithParam("txn")
	}
	for _, e := range rows {
		r.entries = append(r.entries, ledger.Entry{Account: ledger.Account(e.Account), Amount: money.Nano(e.AmountNano)})
	}
	lots, err := queries.LotOpenedBy(ctx, q.LotOpenedByParams{OrgID: org, Day: ids.Day(id), TxnID: id})
	if err != nil {
		return nil, fmt.Errorf("credit: the lot of a transaction: %w", err)
	}
	if len(lots) == 0 {
		return r, nil
	}
	r.lot = lots[0].LotID
	ended, err := queries.LotEnded(ctx, q.LotEndedParams{OrgID: org, LotID: r.lot})
	if err != nil {
		return nil, fmt.Errorf("credit: whether a lot ended: %w", err)
	}
	if ended { // it would be taken twice
		return nil, fault.New(fault.Conflict, "Part of this credit ended unused. Correct what is left of it by an adjustment.").WithCode("not_reversible").WithParam("txn")
	}
	return r, nil
}

// reverse books the opposite of a transaction, once in its life: the key is the reversed transaction's. It locks first: a
// lot's end that is under way is waited for, and then seen.
func (d *Desk) reverse(ctx context.Context, tx pgx.Tx, by tenants.Actor, request Request) error {
	if _, err := q.New(tx).LockLedgerBalances(ctx, []ids.ID{request.Org}); err != nil {
		return fmt.Errorf("credit: lock the ledger: %w", err)
	}
	r, err := d.reversible(ctx, tx, request.Org, request.Details.Txn)
	if err != nil {
		return err
	}
	opposite := make([]ledger.Entry, len(r.entries))
	for i, e := range r.entries {
		opposite[i] = ledger.Entry{Account: e.Account, Amount: -e.Amount}
	}
	name := ids.Format(ids.Txn, r.txn)
	id, fresh, err := ledger.Post(ctx, tx, ledger.Txn{Org: request.Org, Kind: ledger.Reversal, Memo: request.Reason, Key: "reversal of " + name, Entries: opposite, Burn: r.lot})
	if err != nil {
		return err
	}
	if !fresh {
		return fault.New(fault.Conflict, "This transaction was reversed already, by %s.", ids.Format(ids.Txn, id)).WithCode("already_reversed").WithParam("txn")
	}
	if err := RaiseBalance(ctx, q.New(tx), request.Org, r.gives()); err != nil {
		return err
	}
	return d.audit(ctx, tx, by, request.Org, "credit.reverse", name, nil, request)
}
