package credit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Limits of ending credit.
const (
	lateUsage    = time.Minute // usage of before the end may be this late in a log that is rated up to it
	maxExpiring  = 200         // lots looked at together
	askEvery     = time.Minute // how often gateways are asked for idle money that keeps a lot from ending
	expiryReason = "Credit that was not used in time"
)

// asking remembers when the gateways were last asked for an organization's idle money.
type asking struct {
	mu   sync.Mutex
	last map[ids.ID]time.Time
}

// may reports whether they may be asked now, and notes that they are.
func (a *asking) may(org ids.ID, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, asked := a.last[org]; asked && now.Sub(at) < askEvery {
		return false
	}
	for old, at := range a.last {
		if now.Sub(at) >= askEvery {
			delete(a.last, old)
		}
	}
	if a.last == nil {
		a.last = make(map[ids.ID]time.Time)
	}
	a.last[org] = now
	return true
}

// Expire ends credit whose end lies before everything is rated: paid credit becomes breakage, promotional credit goes back
// to what it cost. What gateways hold for requests that began before the end stays until they are settled: a later call
// ends the rest. It gives how many lots it touched, and may be called again after any failure; one organization's failure
// keeps no other waiting.
func (d *Desk) Expire(ctx context.Context, rated time.Time) (touched int, err error) {
	through := rated.Add(-lateUsage)
	page := q.ExpiredLotsParams{Through: through, MaxRows: maxExpiring}
	var failures []error
	for {
		var due []q.ExpiredLotsRow
		err := d.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) (err error) {
			due, err = q.New(tx).ExpiredLots(ctx, page)
			return err
		})
		if err != nil {
			return touched, errors.Join(append(failures, fmt.Errorf("credit: which credit ends: %w", err))...)
		}
		n, err := d.expirePage(ctx, due, through)
		touched += n
		if failures = append(failures, err); len(due) < maxExpiring || ctx.Err() != nil {
			return touched, errors.Join(failures...)
		}
		last := due[len(due)-1]
		page.After, page.AfterLot = last.ExpiresAt, last.LotID
	}
}

// expirePage ends lots, those of an organization in one transaction.
func (d *Desk) expirePage(ctx context.Context, due []q.ExpiredLotsRow, through time.Time) (touched int, err error) {
	var orgs []ids.ID
	lots := make(map[ids.ID][]ids.ID)
	for _, lot := range due {
		if lots[lot.OrgID] == nil {
			orgs = append(orgs, lot.OrgID)
		}
		lots[lot.OrgID] = append(lots[lot.OrgID], lot.LotID)
	}
	var failures []error
	for _, org := range orgs {
		var ended int
		err := d.db.InTx(ctx, db.System(), func(tx pgx.Tx) (err error) {
			ended, err = d.expireLots(ctx, tx, org, lots[org], through)
			return err
		})
		if err != nil {
			failures = append(failures, fmt.Errorf("credit: end credit of %s: %w", ids.Format(ids.Org, org), err))
			continue
		}
		touched += ended
		if ended > 0 || d.asking.may(org, d.now()) {
			Tell(ctx, d.notify, org) // idle money of gateways comes back
		}
	}
	return touched, errors.Join(failures...)
}

// expireLots ends what is free of an organization's lots: ledger and balance, both or neither. Everything is read under the
// ledger's lock, so it can be repeated.
func (d *Desk) expireLots(ctx context.Context, tx pgx.Tx, org ids.ID, due []ids.ID, through time.Time) (ended int, err error) {
	locked, err := ledger.Lock(ctx, tx, []ids.ID{org})
	if err != nil {
		return 0, err
	}
	b, err := q.New(tx).LockBalanceBudget(ctx, org)
	if err != nil {
		return 0, err
	}
	lots := locked.Lots(org)
	free := freeOf(lots, money.Nano(b.OutstandingNano))
	room := money.Nano(b.CapNano - b.SettledNano - b.OutstandingNano)
	var txns []ledger.Txn
	var amounts []money.Nano
	var total money.Nano
	for i, l := range lots {
		if l.ExpiresAt.IsZero() || l.ExpiresAt.After(through) || !slices.Contains(due, l.ID) {
			continue
		}
		if amount := min(free[i], room-total); amount > 0 {
			txns, amounts = append(txns, ending(org, l, amount)), append(amounts, amount)
			total += amount
		}
	}
	if len(txns) == 0 {
		return 0, nil
	}
	posted, err := locked.Post(ctx, txns)
	if err != nil {
		return 0, err
	}
	if _, err := q.New(tx).RaiseBalanceCap(ctx, q.RaiseBalanceCapParams{OrgID: org, Delta: -int64(total)}); err != nil {
		return 0, err
	}
	for i, id := range posted {
		if err := d.audit(ctx, tx, tenants.System(), org, "credit.expire", ids.Format(ids.Txn, id), nil, amounts[i]); err != nil {
			return 0, err
		}
	}
	return len(posted), nil
}

// freeOf is what of each lot no running request can take: lots come in the order of use, and whatever gateways hold may be
// charged, out of the first ones. What is left after all of it ended is at least what is held, and the same lots pay as if
// nothing had ended.
func freeOf(lots []*ledger.OpenLot, held money.Nano) []money.Nano {
	free := make([]money.Nano, len(lots))
	for i, l := range lots {
		taken := min(held, l.Remaining)
		held -= taken
		free[i] = l.Remaining - taken
	}
	return free
}

// ending is the transaction that ends some of a lot.
func ending(org ids.ID, l *ledger.OpenLot, amount money.Nano) ledger.Txn {
	to := ledger.Breakage
	if l.Account == ledger.PrepaidPromo {
		to = ledger.PromoCost
	}
	return ledger.Txn{Org: org, Kind: ledger.Expiry, Memo: expiryReason, Burn: l.ID,
		Entries: []ledger.Entry{ledger.Debit(l.Account, amount), ledger.Credit(to, amount)}}
}
