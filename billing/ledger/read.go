package ledger

import (
	"context"
	"fmt"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Balances gives an organization's accounts that ever moved, debit positive.
func Balances(ctx context.Context, tx q.DBTX, org ids.ID) (map[Account]money.Nano, error) {
	rows, err := q.New(tx).LedgerBalances(ctx, org)
	if err != nil {
		return nil, fmt.Errorf("ledger: balances: %w", err)
	}
	balances := make(map[Account]money.Nano, len(rows))
	for _, r := range rows {
		balances[Account(r.Account)] = money.Nano(r.AmountNano)
	}
	return balances, nil
}
