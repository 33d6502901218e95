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

// Spend says how each charge is paid: the lots in their order of use (by the standard promotional credit first, then paid
// credit), and what they do not cover is receivable. Several charges of one organization use its credit up in order. It
// gives the entries of each charge, revenue included (none for a charge of nothing), and locks the balances it read; the
// caller posts the entries in the same transaction.
func Spend(ctx context.Context, tx q.DBTX, charges []Charge) ([][]Entry, error) {
	left, lots, err := prepaid(ctx, tx, charges)
	if err != nil {
		return nil, err
	}
	split := make([][]Entry, len(charges))
	for i, c := range charges {
		if c.Amount < 0 {
			return nil, fmt.Errorf("ledger: a charge of %s USD", c.Amount)
		}
		if c.Amount == 0 {
			continue
		}
		split[i] = append(split[i], Credit(Revenue, c.Amount))
		rest := c.Amount
		take := func(account Account, most money.Nano) money.Nano {
			key := orgAccount{c.Org, account}
			part := min(rest, left[key], most)
			if part <= 0 {
				return 0
			}
			split[i] = append(split[i], Debit(account, part))
			left[key] -= part
			rest -= part
			return part
		}
		for _, l := range lots[c.Org] {
			l.Remaining -= take(l.Account, l.Remaining)
		}
		for _, account := range []Account{PrepaidPromo, PrepaidPaid} { // the balances are the truth, whatever the lots say
			take(account, rest)
		}
		if rest > 0 {
			split[i] = append(split[i], Debit(Receivable, rest))
		}
	}
	return split, nil
}

// prepaid locks the organizations' balances and gives the credit left on each prepaid account, and its lots.
func prepaid(ctx context.Context, tx q.DBTX, charges []Charge) (map[orgAccount]money.Nano, map[ids.ID][]*OpenLot, error) {
	orgs := make([]ids.ID, len(charges))
	for i, c := range charges {
		orgs[i] = c.Org
	}
	slices.SortFunc(orgs, func(a, b ids.ID) int { return bytes.Compare(a[:], b[:]) })
	orgs = slices.Compact(orgs)
	rows, err := q.New(tx).LockLedgerBalances(ctx, orgs)
	if err != nil {
		return nil, nil, fmt.Errorf("ledger: lock balances: %w", err)
	}
	left := make(map[orgAccount]money.Nano)
	for _, r := range rows {
		if a := Account(r.Account); a == PrepaidPromo || a == PrepaidPaid {
			left[orgAccount{r.OrgID, a}] = max(0, -money.Nano(r.AmountNano))
		}
	}
	lots, err := lotsLeft(ctx, q.New(tx), orgs)
	return left, lots, err
}
