package report

import (
	"context"
	"time"

	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Movement is one line of what an organization may spend: usage added up by day, everything else one by one.
type Movement struct {
	At     time.Time
	Day    time.Time
	Kind   string
	Memo   string
	Txns   int64  // ledger transactions in this line
	Txn    ids.ID // the last of them
	Amount money.Nano
	After  money.Nano // balance behind it: credit less what is owed
}

// Movements lists the days before a given one (zero = all), newest first, whole days only. More says that older ones exist.
func (s *Service) Movements(ctx context.Context, by tenants.Actor, org ids.ID, before time.Time, limit int) (out []Movement, more bool, err error) {
	if before.IsZero() {
		before = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, false, err
	}
	limit = min(max(limit, 1), MaxRows)
	err = s.read(ctx, by, org, func(r *q.Queries) error {
		rows, err := r.ReportLedgerDays(ctx, q.ReportLedgerDaysParams{Org: org, BeforeDay: before, MaxRows: int32(limit) + 1})
		if err != nil {
			return err
		}
		balance, err := r.ReportLedgerTotal(ctx, q.ReportLedgerTotalParams{Org: org, BeforeDay: before})
		if more = len(rows) > limit; more {
			rows = rows[:wholeDays(rows, limit)]
		}
		for _, x := range rows {
			out = append(out, Movement{At: x.At, Day: x.Day, Kind: x.Kind, Memo: x.Memo, Txns: x.Txns, Txn: x.LastTxn, Amount: money.Nano(x.AmountNano), After: money.Nano(balance)})
			balance -= x.AmountNano
		}
		return err
	})
	return out, more, err
}

// wholeDays cuts a page at the end of a day, so that the next one can start at a day; a day that fills the page is cut.
func wholeDays(rows []q.ReportLedgerDaysRow, limit int) int {
	for n := limit; n > 0; n-- {
		if !rows[n].Day.Equal(rows[n-1].Day) {
			return n
		}
	}
	return limit
}
