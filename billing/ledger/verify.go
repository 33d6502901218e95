package ledger

import (
	"context"
	"fmt"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
)

// maxFindings bounds each list of a Report: one is already too many.
const maxFindings = 100

// Report is what Verify found. Amounts are nano-USD as decimal text, so that no sum can overflow on its way.
type Report struct {
	Total      string // of every entry: "0" in a sound book
	Unbalanced []UnbalancedTxn
	Drifted    []DriftedBalance
	Lots       []DriftedLot
	Days       []DriftedDay
}

// DriftedDay is an account's sum of a day that is not the sum of its entries.
type DriftedDay struct {
	Org             ids.ID
	Day             time.Time
	Account         Account
	Expected, Found string
}

// DriftedLot is a lot that is not the sum of its moves (named by its id), or an account whose lots are not its credit
// (named by the account).
type DriftedLot struct {
	Org             ids.ID
	What            string
	Expected, Found string
}

// UnbalancedTxn is a transaction whose entries do not sum to zero, or that has fewer than two.
type UnbalancedTxn struct {
	Org, Txn ids.ID
	Total    string
	Entries  int64
}

// DriftedBalance is a projected balance that is not the sum of its entries.
type DriftedBalance struct {
	Org              ids.ID
	Account          Account
	Entries, Balance string
}

// Sound reports whether nothing was found.
func (r *Report) Sound() bool {
	return r.Total == "0" && len(r.Unbalanced) == 0 && len(r.Drifted) == 0 && len(r.Lots) == 0 && len(r.Days) == 0
}

// Verify reads the whole book. Call it in a db snapshot of the system.
func Verify(ctx context.Context, tx q.DBTX) (*Report, error) {
	queries := q.New(tx)
	total, err := queries.LedgerTotal(ctx)
	if err != nil {
		return nil, fmt.Errorf("ledger: total: %w", err)
	}
	unbalanced, err := queries.UnbalancedLedgerTxns(ctx, maxFindings)
	if err != nil {
		return nil, fmt.Errorf("ledger: unbalanced transactions: %w", err)
	}
	drifted, err := queries.DriftedLedgerBalances(ctx, maxFindings)
	if err != nil {
		return nil, fmt.Errorf("ledger: drifted balances: %w", err)
	}
	lots, err := queries.DriftedLots(ctx, maxFindings)
	if err != nil {
		return nil, fmt.Errorf("ledger: drifted lots: %w", err)
	}
	days, err := queries.DriftedDays(ctx, maxFindings)
	if err != nil {
		return nil, fmt.Errorf("ledger: drifted days: %w", err)
	}
	r := &Report{Total: total}
	for _, d := range days {
		r.Days = append(r.Days, DriftedDay{Org: d.OrgID, Day: d.Day, Account: Account(d.Account), Expected: d.Expected, Found: d.Found})
	}
	for _, l := range lots {
		r.Lots = append(r.Lots, DriftedLot{Org: l.OrgID, What: l.What, Expected: l.Expected, Found: l.Found})
	}
	for _, u := range unbalanced {
		r.Unbalanced = append(r.Unbalanced, UnbalancedTxn{Org: u.OrgID, Txn: u.ID, Total: u.Total, Entries: u.Entries})
	}
	for _, d := range drifted {
		r.Drifted = append(r.Drifted, DriftedBalance{Org: d.OrgID, Account: Account(d.Account), Entries: d.Entries, Balance: d.Balance})
	}
	return r, nil
}
