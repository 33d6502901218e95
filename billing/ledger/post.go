package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Post writes one transaction in tx, a transaction of the system. fresh=false says that t.Key was used before: nothing is
// written, and id is the transaction that the key stands for.
func Post(ctx context.Context, tx q.DBTX, t Txn) (id ids.ID, fresh bool, err error) {
	if t.ID == ids.Nil {
		t.ID = ids.New()
	}
	if t.Key != "" {
		if _, err := t.check(); err != nil {
			return ids.Nil, false, err
		}
		n, err := q.New(tx).ClaimLedgerKey(ctx, q.ClaimLedgerKeyParams{OrgID: t.Org, Key: t.Key, TxnID: t.ID})
		if err != nil {
			return ids.Nil, false, fmt.Errorf("ledger: claim a key: %w", err)
		}
		if n == 0 {
			first, err := q.New(tx).LedgerKeyTxn(ctx, q.LedgerKeyTxnParams{OrgID: t.Org, Key: t.Key})
			if err != nil {
				return ids.Nil, false, fmt.Errorf("ledger: read a key: %w", err)
			}
			return first, false, nil
		}
		t.Key = ""
	}
	posted, err := PostMany(ctx, tx, []Txn{t})
	if err != nil {
		return ids.Nil, false, err
	}
	return posted[0], true, nil
}

// PostMany writes transactions without keys, a few statements in all, and gives their ids in order. It locks the balances
// of every organization it touches, so a database transaction calls it once, or for organizations in ascending order.
func PostMany(ctx context.Context, tx q.DBTX, txns []Txn) ([]ids.ID, error) {
	orgs := make([]ids.ID, len(txns))
	for i, t := range txns {
		orgs[i] = t.Org
	}
	l, err := Lock(ctx, tx, orgs)
	if err != nil {
		return nil, err
	}
	return l.Post(ctx, txns)
}

// Post writes transactions as PostMany does, of organizations that are locked; their balances and lots are not read again.
// After an error the transaction is rolled back, and what is locked is used no more.
func (l *Locked) Post(ctx context.Context, txns []Txn) ([]ids.ID, error) {
	if len(txns) == 0 {
		return nil, nil
	}
	b, err := newBatch(txns)
	if err != nil {
		return nil, err
	}
	for _, org := range b.orgs {
		if err := l.covers(org); err != nil {
			return nil, err
		}
	}
	queries := q.New(l.tx)
	for _, day := range b.newDays {
		if err := queries.EnsureLedgerDay(ctx, day); err != nil {
			return nil, fmt.Errorf("ledger: partition of %s: %w", day.Format(time.DateOnly), err)
		}
	}
	if err := queries.InsertLedgerTxns(ctx, b.txns); err != nil {
		return nil, fmt.Errorf("ledger: insert transactions: %w", err)
	}
	if err := queries.InsertLedgerEntries(ctx, b.entries); err != nil {
		return nil, fmt.Errorf("ledger: insert entries: %w", err)
	}
	if err := queries.AddToLedgerBalances(ctx, b.balances); err != nil {
		return nil, fmt.Errorf("ledger: move balances: %w", err)
	}
	for _, m := range b.prepaid {
		l.book.move(m)
	}
	if err := l.book.write(ctx, queries); err != nil {
		return nil, err
	}
	return b.txns.Ids, nil
}

// batch is what the set-based statements take: one array per column.
type batch struct {
	orgs     []ids.ID    // distinct, ascending
	newDays  []time.Time // distinct
	txns     q.InsertLedgerTxnsParams
	entries  q.InsertLedgerEntriesParams
	balances q.AddToLedgerBalancesParams // sorted by (org, account)
	prepaid  []prepaidMove               // in order of the transactions
}

type orgAccount struct {
	org     ids.ID
	account Account
}

func newBatch(txns []Txn) (*batch, error) {
	b := &batch{}
	moved, byDay := make(map[orgAccount]money.Nano), make(map[dayAccount]money.Nano)
	for _, t := range txns {
		if t.Key != "" {
			return nil, fmt.Errorf("ledger: a key is for Post, not for a batch")
		}
		sums, err := t.check()
		if err != nil {
			return nil, err
		}
		if t.ID == ids.Nil {
			t.ID = ids.New()
		}
		b.add(t, sums)
		for account, amount := range sums {
			key := orgAccount{t.Org, account}
			sum, ok := add(moved[key], amount)
			if !ok {
				return nil, fmt.Errorf("ledger: account %s of %s overflows", account, t.Org)
			}
			moved[key] = sum
			byDay[t.dayAccount(account)] += amount // of one account's movements here, so it does not overflow either
		}
	}
	b.addDays(byDay)
	for _, key := range slices.SortedFunc(maps.Keys(moved), compareOrgAccount) {
		b.balances.Orgs = append(b.balances.Orgs, key.org)
		b.balances.Accounts = append(b.balances.Accounts, string(key.account))
		b.balances.Amounts = append(b.balances.Amounts, int64(moved[key]))
		if n := len(b.orgs); n == 0 || b.orgs[n-1] != key.org {
			b.orgs = append(b.orgs, key.org)
		}
	}
	return b, nil
}

func (b *batch) add(t Txn, sums map[Account]money.Nano) {
	day := ids.Day(t.ID)
	if !slices.Contains(b.newDays, day) {
		b.newDays = append(b.newDays, day)
	}
	b.txns.Orgs = append(b.txns.Orgs, t.Org)
	b.txns.Days = append(b.txns.Days, day)
	b.txns.Ids = append(b.txns.Ids, t.ID)
	b.txns.Kinds = append(b.txns.Kinds, string(t.Kind))
	b.txns.Memos = append(b.txns.Memos, t.Memo)
	month := t.Month
	if month.Equal(MonthOf(day)) {
		month = time.Time{}
	}
	b.txns.Months = append(b.txns.Months, month)
	for _, account := range slices.Sorted(maps.Keys(sums)) {
		b.entries.Orgs = append(b.entries.Orgs, t.Org)
		b.entries.Days = append(b.entries.Days, day)
		b.entries.Txns = append(b.entries.Txns, t.ID)
		b.entries.Accounts = append(b.entries.Accounts, string(account))
		b.entries.Amounts = append(b.entries.Amounts, int64(sums[account]))
		if account == PrepaidPaid || account == PrepaidPromo {
			b.prepaid = append(b.prepaid, prepaidMove{txn: t, day: day, account: account, amount: -sums[account]})
		}
	}
}

// dayAccount is the key of a day's sum.
type dayAccount struct {
	orgAccount
	day, month int64 // unix seconds
	kind       Kind
}

func (t *Txn) dayAccount(account Account) dayAccount {
	day := ids.Day(t.ID)
	month := t.Month
	if month.IsZero() {
		month = MonthOf(day)
	}
	return dayAccount{orgAccount{t.Org, account}, day.Unix(), month.Unix(), t.Kind}
}

func (b *batch) addDays(sums map[dayAccount]money.Nano) {
	order := func(a, b dayAccount) int {
		return cmp.Or(compareIDs(a.org, b.org), cmp.Compare(a.day, b.day), cmp.Compare(a.kind, b.kind), cmp.Compare(a.month, b.month), cmp.Compare(a.account, b.account))
	}
	p := &b.balances
	for _, key := range slices.SortedFunc(maps.Keys(sums), order) {
		p.DayOrgs, p.Days, p.Kinds = append(p.DayOrgs, key.org), append(p.Days, time.Unix(key.day, 0).UTC()), append(p.Kinds, string(key.kind))
		p.Months, p.DayAccounts = append(p.Months, time.Unix(key.month, 0).UTC()), append(p.DayAccounts, string(key.account))
		p.DayAmounts = append(p.DayAmounts, int64(sums[key]))
	}
}

func compareOrgAccount(a, b orgAccount) int {
	return cmp.Or(compareIDs(a.org, b.org), cmp.Compare(a.account, b.account))
}
