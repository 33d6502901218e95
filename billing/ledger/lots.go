package ledger

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Lot is the terms on which prepaid credit is used up: lower priority first, then what ends earlier, then the older.
type Lot struct {
	ID        ids.ID    // ids.Nil = the transaction's own
	Priority  int16     // 1 or more; 0 = the standard of the account
	ExpiresAt time.Time // zero = never
}

// Priorities of lots that name none: credit that was given away is used before credit that was paid for.
const (
	PromoPriority int16 = 10
	PaidPriority  int16 = 20
)

// OpenLot is a lot with something left.
type OpenLot struct {
	Lot
	Account   Account
	Remaining money.Nano
}

// prepaidMove is what a transaction does to one prepaid account: positive gives credit.
type prepaidMove struct {
	txn     Txn
	day     time.Time
	account Account
	amount  money.Nano
}

// lotBook moves lots in memory as transactions are posted, and writes what moved.
type lotBook struct {
	left    map[orgAccount][]*OpenLot // in the order of use
	balance map[orgAccount]money.Nano // credit positive
	moves   q.InsertLotMovesParams
	opened  q.OpenLotsParams
	burned  map[orgLot]money.Nano
}

type orgLot struct{ org, lot ids.ID }

func newLotBook(balances []q.LedgerBalance, lots map[ids.ID][]*OpenLot) *lotBook {
	book := &lotBook{left: map[orgAccount][]*OpenLot{}, balance: map[orgAccount]money.Nano{}, burned: map[orgLot]money.Nano{}}
	for _, r := range balances {
		book.balance[orgAccount{r.OrgID, Account(r.Account)}] = -money.Nano(r.AmountNano)
	}
	for org, list := range lots {
		for _, l := range list {
			key := orgAccount{org, l.Account}
			book.left[key] = append(book.left[key], l)
		}
	}
	return book
}

// move notes which lots a movement opens or burns. An account that is owed has no lots: credit pays the debt first.
func (b *lotBook) move(m prepaidMove) {
	key := orgAccount{m.txn.Org, m.account}
	before := max(0, b.balance[key])
	b.balance[key] += m.amount
	delta := max(0, b.balance[key]) - before
	if m.amount > 0 {
		b.open(m, key, delta)
		return
	}
	rest := -delta
	take := func(l *OpenLot) {
		if part := min(rest, l.Remaining); part > 0 {
			l.Remaining -= part
			rest -= part
			b.note(m, l.ID, -part, 0, time.Time{})
			b.burned[orgLot{m.txn.Org, l.ID}] += part
		}
	}
	for _, l := range b.left[key] {
		if l.ID == m.txn.Burn {
			take(l)
		}
	}
	for _, l := range b.left[key] {
		take(l)
	}
}

func (b *lotBook) open(m prepaidMove, key orgAccount, delta money.Nano) {
	l := &OpenLot{Lot: m.txn.Lot, Account: m.account, Remaining: delta}
	if l.ID == ids.Nil {
		l.ID = m.txn.ID
		if m.account == PrepaidPromo { // a transaction may give credit of both kinds
			l.ID[len(l.ID)-1] ^= 1
		}
	}
	if l.Priority == 0 {
		l.Priority = PaidPriority
		if m.account == PrepaidPromo {
			l.Priority = PromoPriority
		}
	}
	b.note(m, l.ID, delta, l.Priority, l.ExpiresAt)
	o := &b.opened
	o.Orgs, o.Lots, o.Accounts = append(o.Orgs, m.txn.Org), append(o.Lots, l.ID), append(o.Accounts, string(m.account))
	o.Priorities, o.Expires, o.Amounts = append(o.Priorities, int32(l.Priority)), append(o.Expires, l.ExpiresAt.UTC()), append(o.Amounts, int64(delta))
	b.left[key] = append(b.left[key], l)
	slices.SortFunc(b.left[key], compareLots)
}

func (b *lotBook) note(m prepaidMove, lot ids.ID, amount money.Nano, priority int16, expires time.Time) {
	v := &b.moves
	v.Orgs, v.Days, v.Txns = append(v.Orgs, m.txn.Org), append(v.Days, m.day), append(v.Txns, m.txn.ID)
	v.Lots, v.Accounts, v.Amounts = append(v.Lots, lot), append(v.Accounts, string(m.account)), append(v.Amounts, int64(amount))
	v.Priorities, v.Expires = append(v.Priorities, int32(priority)), append(v.Expires, expires.UTC())
}

// write keeps what moved since the last write.
func (b *lotBook) write(ctx context.Context, queries *q.Queries) error {
	defer func() {
		b.moves, b.opened = q.InsertLotMovesParams{}, q.OpenLotsParams{}
		clear(b.burned)
	}()
	if len(b.moves.Orgs) > 0 {
		if err := queries.InsertLotMoves(ctx, b.moves); err != nil {
			return fmt.Errorf("ledger: note lots: %w", err)
		}
	}
	if len(b.opened.Orgs) > 0 {
		if err := queries.OpenLots(ctx, b.opened); err != nil {
			return fmt.Errorf("ledger: open lots: %w", err)
		}
	}
	p := q.BurnLotsParams{}
	for key, n := range b.burned {
		p.Orgs, p.Lots, p.Amounts = append(p.Orgs, key.org), append(p.Lots, key.lot), append(p.Amounts, int64(n))
	}
	if len(p.Orgs) == 0 {
		return nil
	}
	n, err := queries.BurnLots(ctx, p)
	if err == nil && n != int64(len(p.Orgs)) {
		err = fmt.Errorf("%d of %d moved", n, len(p.Orgs))
	}
	if err != nil {
		return fmt.Errorf("ledger: burn lots: %w", err)
	}
	return nil
}

// compareLots is the order of use.
func compareLots(a, b *OpenLot) int {
	switch {
	case a.Priority != b.Priority:
		return int(a.Priority) - int(b.Priority)
	case a.ExpiresAt.IsZero() != b.ExpiresAt.IsZero():
		if a.ExpiresAt.IsZero() {
			return 1
		}
		return -1
	case !a.ExpiresAt.Equal(b.ExpiresAt):
		return a.ExpiresAt.Compare(b.ExpiresAt)
	}
	return bytes.Compare(a.ID[:], b.ID[:])
}

// lotsLeft gives the lots of each organization in the order of use.
func lotsLeft(ctx context.Context, queries *q.Queries, orgs []ids.ID) (map[ids.ID][]*OpenLot, error) {
	rows, err := queries.LotsLeft(ctx, orgs)
	if err != nil {
		return nil, fmt.Errorf("ledger: lots: %w", err)
	}
	lots := make(map[ids.ID][]*OpenLot)
	for _, r := range rows {
		l := &OpenLot{Lot: Lot{ID: r.LotID, Priority: r.Priority}, Account: Account(r.Account), Remaining: money.Nano(r.RemainingNano)}
		if r.ExpiresAt != nil {
			l.ExpiresAt = *r.ExpiresAt
		}
		lots[r.OrgID] = append(lots[r.OrgID], l)
	}
	return lots, nil
}

// Lots gives an organization's lots that have something left, in the order of use.
func Lots(ctx context.Context, tx q.DBTX, org ids.ID) ([]*OpenLot, error) {
	lots, err := lotsLeft(ctx, q.New(tx), []ids.ID{org})
	return lots[org], err
}

// Rebuild drops the projections, balances, sums of days and lots, and makes them anew from the entries and the moves of lots. Postings
// wait meanwhile. tx is a transaction of the system.
func Rebuild(ctx context.Context, tx q.DBTX) error {
	queries := q.New(tx)
	for _, step := range []func(context.Context) error{queries.LockProjections, queries.DropBalances, queries.RebuildBalances,
		queries.DropDays, queries.RebuildDays, queries.DropLots, queries.RebuildLots} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("ledger: rebuild: %w", err)
		}
	}
	return nil
}
