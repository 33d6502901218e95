package credit

import (
	"context"
	"fmt"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// Clawback takes paid credit back because its money went back to whoever paid it (a refund, a dispute), or gives it again
// when the money returned.
type Clawback struct {
	Org    ids.ID
	Amount money.Nano     // positive takes credit, negative gives it again
	From   ledger.Account // where the money went out of, and comes back to
	Burn   ids.ID         // the grant that it takes credit of first; ids.Nil = the usual order
	Memo   string         // the customer sees it
	Key    string         // of the ledger: the same movement happens once
}

// TakeBack moves credit in tx, a transaction of the system: ledger and balance, both or neither. The balance may become
// negative: what was spent already is owed. fresh=false says that the key was used before; nothing moved then. The caller
// calls Tell after the commit.
func TakeBack(ctx context.Context, tx q.DBTX, c Clawback) (fresh bool, err error) {
	if c.Amount == 0 || c.Amount > MaxGrant || c.Amount < -MaxGrant || c.Key == "" {
		return false, fmt.Errorf("credit: take back %s USD with key %q", c.Amount, c.Key)
	}
	t := ledger.Txn{Org: c.Org, Kind: ledger.Refund, Memo: c.Memo, Key: c.Key, Burn: c.Burn,
		Entries: []ledger.Entry{{Account: ledger.PrepaidPaid, Amount: c.Amount}, {Account: c.From, Amount: -c.Amount}}}
	if _, fresh, err = ledger.Post(ctx, tx, t); err != nil || !fresh {
		return false, err
	}
	// Not raiseBalance: credit that was given has a balance.
	n, err := q.New(tx).RaiseBalanceCap(ctx, q.RaiseBalanceCapParams{OrgID: c.Org, Delta: -int64(c.Amount)})
	if err == nil && n != 1 {
		err = fault.New(fault.NotFound, "There is no balance to take credit from.")
	}
	if err != nil {
		return false, fmt.Errorf("credit: lower the balance: %w", err)
	}
	return true, nil
}
