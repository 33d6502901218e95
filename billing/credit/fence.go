package credit

import (
	"context"
	"fmt"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// ReturnRest gives the budgets back what an epoch did not use, and tells how much that was. It is the money part of a
// fence, in whose transaction it runs: the caller has proven that the epoch's process is dead or said goodbye, has rated its
// log to the end, and sets fenced_at in the same transaction. The epoch's row is locked FOR UPDATE, which waits for raises
// that are under way and keeps later ones out. A second call finds nothing left.
func ReturnRest(ctx context.Context, tx q.DBTX, epoch ids.ID) (rest money.Nano, err error) {
	queries := q.New(tx)
	if _, err := queries.LockEpochForFence(ctx, epoch); err != nil {
		return 0, fmt.Errorf("credit: lock an epoch: %w", err)
	}
	rows, err := queries.LockAllotmentsOfEpoch(ctx, epoch)
	if err != nil {
		return 0, fmt.Errorf("credit: lock an epoch's allotments: %w", err)
	}
	if len(rows) == 0 {
		return 0, nil
	}
	var p q.LowerOutstandingOfAnyOrgParams
	for _, r := range rows {
		p.Orgs = append(p.Orgs, r.OrgID)
		p.Ids = append(p.Ids, r.BudgetID)
		p.Deltas = append(p.Deltas, r.Rest)
		rest += money.Nano(r.Rest)
	}
	if _, err := queries.ReturnRestOfEpoch(ctx, epoch); err != nil {
		return 0, fmt.Errorf("credit: return an epoch's rest: %w", err)
	}
	if _, err := queries.LockBudgetsOfAnyOrg(ctx, p.Ids); err != nil {
		return 0, fmt.Errorf("credit: lock budgets: %w", err)
	}
	if _, err := queries.LowerOutstandingOfAnyOrg(ctx, p); err != nil {
		return 0, fmt.Errorf("credit: lower outstanding: %w", err)
	}
	return rest, nil
}
