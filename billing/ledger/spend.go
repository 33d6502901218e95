package ledger

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Charge is what an organization owes for delivered tokens.
type Charge struct {
	Org    ids.ID
	Amount money.Nano // not negative
}

// Locked is the balances and lots of some organizations, read under their locks: nobody else moves them until the
// transaction ends, and whoever has it posts by it alone.
type Locked struct {
	tx   q.DBTX
	orgs []ids.ID // ascending
	book *lotBook
}

// Lock locks the balances of organizations in tx, a transaction of the system, and reads their lots.
func Lock(ctx context.Context, tx q.DBTX, orgs []ids.ID) (*Locked, error) {
	orgs = slices.Clone(orgs)
	slices.SortFunc(orgs, compareIDs)
	orgs = slices.Compact(orgs)
	balances, err := q.New(tx).LockLedgerBalances(ctx, orgs)
	if err != nil {
		return nil, fmt.Errorf("ledger: lock balances: %w", err)
	}
	lots, err := lotsLeft(ctx, q.New(tx), orgs)
	if err != nil {
		return nil, err
	}
	return &Locked{tx: tx, orgs: orgs, book: newLotBook(balances, lots)}, nil
}

// Lots gives what is left of a locked organization's lots, in the order of use. The caller may change them.
func (l *Locked) Lots(org ids.ID) []*OpenLot {
	var all []*OpenLot
	for _, account := range []Account{PrepaidPromo, PrepaidPaid} {
		for _, lot := range l.book.left[orgAccount{org, account}] {
			if lot.Remaining > 0 {
				own := *lot
				all = append(all, &own)
			}
		}
	}
	slices.SortFunc(all, compareLots)
	return all
}

// Spend says how each charge is paid: the lots in their order of use (by the standard promotional credit first, then paid
// credit), and what they do not cover is receivable. Several charges of one organization use its credit up in order. It
// gives the entries of each charge, revenue included (none for a charge of nothing); nothing is posted.
func (l *Locked) Spend(charges []Charge) ([][]Entry, error) {
	left, lots := make(map[orgAccount]money.Nano), make(map[ids.ID][]*OpenLot)
	for _, c := range charges {
		if c.Amount < 0 {
			return nil, fmt.Errorf("ledger: a charge of %s USD", c.Amount)
		}
		if _, known := lots[c.Org]; known {
			continue
		}
		if err := l.covers(c.Org); err != nil {
			return nil, err
		}
		lots[c.Org] = l.Lots(c.Org)
		for _, account := range []Account{PrepaidPromo, PrepaidPaid} {
			key := orgAccount{c.Org, account}
			left[key] = max(0, l.book.balance[key])
		}
	}
	split := make([][]Entry, len(charges))
	for i, c := range charges {
		if c.Amount > 0 {
			split[i] = c.split(left, lots[c.Org])
		}
	}
	return split, nil
}

// split takes a charge from what is left.
func (c Charge) split(left map[orgAccount]money.Nano, lots []*OpenLot) []Entry {
	entries, rest := []Entry{Credit(Revenue, c.Amount)}, c.Amount
	take := func(account Account, most money.Nano) money.Nano {
		key := orgAccount{c.Org, account}
		part := min(rest, left[key], most)
		if part <= 0 {
			return 0
		}
		entries = append(entries, Debit(account, part))
		left[key] -= part
		rest -= part
		return part
	}
	for _, lot := range lots {
		lot.Remaining -= take(lot.Account, lot.Remaining)
	}
	for _, account := range []Account{PrepaidPromo, PrepaidPaid} { // the balances are the truth, whatever the lots say
		take(account, rest)
	}
	if rest > 0 {
		entries = append(entries, Debit(Receivable, rest))
	}
	return entries
}

// covers refuses an organization that is not locked.
func (l *Locked) covers(org ids.ID) error {
	if _, ok := slices.BinarySearchFunc(l.orgs, org, compareIDs); !ok {
		return fmt.Errorf("ledger: the balances of %s are not locked", org)
	}
	return nil
}

func compareIDs(a, b ids.ID) int { return bytes.Compare(a[:], b[:]) }
