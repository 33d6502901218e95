package credit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Limits of one turn of ending credit.
const (
	lateUsage    = time.Minute // usage of before the end may be this late in a log that is rated up to it
	maxExpiring  = 200
	expiryReason = "Credit that was not used in time"
)

// Expire ends credit whose end lies before everything is rated: paid credit becomes breakage, promotional credit goes back
// to what it cost. What gateways hold for requests that began before the end stays until they are settled: a later call
// ends the rest. It gives how many lots it touched, and may be called again after any failure.
func (d *Desk) Expire(ctx context.Context, rated time.Time) (touched int, err error) {
	var due []q.ExpiredLotsRow
	through := rated.Add(-lateUsage)
	err = d.db.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
		due, err = q.New(tx).ExpiredLots(ctx, q.ExpiredLotsParams{Through: through, MaxRows: maxExpiring})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("credit: which credit ends: %w", err)
	}
	for _, lot := range due {
		var amount money.Nano
		err := d.db.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
			amount, err = d.expireLot(ctx, tx, lot.OrgID, lot.LotID, through)
			return err
		})
		if err != nil {
			return touched, fmt.Errorf("credit: end a lot: %w", err)
		}
		if amount > 0 {
			touched++
		}
		Tell(ctx, d.notify, lot.OrgID) // idle money of gateways comes back
	}
	return touched, nil
}

// expireLot ends what is free of a lot: ledger and balance, both or neither. Everything is read under the ledger's lock, so
// it can be repeated.
func (d *Desk) expireLot(ctx context.Context, tx pgx.Tx, org, lot ids.ID, through time.Time) (money.Nano, error) {
	queries := q.New(tx)
	if _, err := queries.LockLedgerBalances(ctx, []ids.ID{org}); err != nil {
		return 0, err
	}
	l, err := queries.LotRemaining(ctx, q.LotRemainingParams{OrgID: org, LotID: lot})
	if err != nil {
		return 0, err
	}
	if l.ExpiresAt == nil || l.ExpiresAt.After(through) || l.RemainingNano == 0 {
		return 0, nil
	}
	b, err := queries.LockBalanceBudget(ctx, org)
	if err != nil {
		return 0, err
	}
	amount := min(money.Nano(l.RemainingNano), money.Nano(b.CapNano-b.SettledNano-b.OutstandingNano))
	if amount <= 0 {
		return 0, nil
	}
	account, to := ledger.Account(l.Account), ledger.Breakage
	if account == ledger.PrepaidPromo {
		to = ledger.PromoCost
	}
	id, _, err := ledger.Post(ctx, tx, ledger.Txn{Org: org, Kind: ledger.Expiry, Memo: expiryReason, Burn: lot,
		Entries: []ledger.Entry{ledger.Debit(account, amount), ledger.Credit(to, amount)}})
	if err != nil {
		return 0, err
	}
	if _, err := queries.RaiseBalanceCap(ctx, q.RaiseBalanceCapParams{OrgID: org, Delta: -int64(amount)}); err != nil {
		return 0, err
	}
	return amount, d.audit(ctx, tx, tenants.System(), org, "credit.expire", ids.Format(ids.Txn, id), nil, amount)
}
