package report

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Movement is one line of what an organization may spend: the usage of a UTC day, or one other transaction. Usage counts
// on the day its request began; what is rated later moves the older lines' After, never their Amount's sum.
type Movement struct {
	At       time.Time // of the transaction; where the day of usage begins
	Kind     ledger.Kind
	Memo     string
	Requests int64      // of a day of usage
	Txn      ids.ID     // ids.Nil for a day of usage
	Amount   money.Nano // positive gives credit
	After    money.Nano // balance behind it: credit less what is owed
}

// Mark is a line's place in the list. The zero Mark is before the newest.
type Mark struct {
	Day time.Time // UTC
	Txn ids.ID    // ids.Nil: the day's usage, which comes before its transactions
}

// Mark is the line's place, for the page behind it.
func (m Movement) Mark() Mark { return Mark{Day: m.At.UTC().Truncate(wholeDay), Txn: m.Txn} }

// Movements is a page of the list, newest first, behind a line. More says that older lines exist.
func (s *Service) Movements(ctx context.Context, by tenants.Actor, org ids.ID, after Mark, limit int) (out []Movement, more bool, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, false, err
	}
	limit = min(max(limit, 1), MaxRows)
	err = s.db.InTx(ctx, db.Org(org).ReadOnly().Snapshot(), func(tx pgx.Tx) error {
		r := q.New(tx)
		days, txns, err := lines(ctx, r, org, after, int32(limit)+1)
		if err != nil {
			return err
		}
		balance, err := balanceAt(ctx, r, org, after)
		if err != nil {
			return err
		}
		out = slices.Concat(days, txns)
		slices.SortFunc(out, newerFirst)
		if more = len(out) > limit; more {
			out = out[:limit]
		}
		for i := range out {
			out[i].After = balance
			balance -= out[i].Amount
		}
		return nil
	})
	return out, more, err
}

// lines reads at most limit of each kind.
func lines(ctx context.Context, r *q.Queries, org ids.ID, after Mark, limit int32) (days, txns []Movement, err error) {
	until, day, id := lastDay, lastDay, newest
	if !after.Day.IsZero() {
		until, day = after.Day, after.Day
		if after.Txn != ids.Nil {
			id = after.Txn
		}
	}
	if days, err = usageDays(ctx, r, org, until, limit); err != nil {
		return nil, nil, err
	}
	others, err := r.ReportOtherTxns(ctx, q.ReportOtherTxnsParams{Org: org, BeforeDay: day, BeforeID: id, MaxRows: limit})
	for _, row := range others {
		txns = append(txns, Movement{At: ids.Time(row.ID), Kind: ledger.Kind(row.Kind), Memo: row.Memo, Txn: row.ID, Amount: money.Nano(row.AmountNano)})
	}
	return days, txns, err
}

// usageDays are the newest days before a moment on which something was charged.
func usageDays(ctx context.Context, r *q.Queries, org ids.ID, before time.Time, limit int32) ([]Movement, error) {
	list, err := r.ReportUsageDays(ctx, q.ReportUsageDaysParams{Org: org, Before: before, MaxRows: limit})
	if err != nil {
		return nil, err
	}
	p := q.ReportDayChargesParams{Org: org, Starts: list}
	for _, day := range list {
		p.Stops = append(p.Stops, day.Add(wholeDay))
	}
	rows, err := r.ReportDayCharges(ctx, p) // not what is kept: lines and balance are of one moment
	days := make([]Movement, len(rows))
	for i, row := range rows {
		days[i] = Movement{At: row.Start.UTC(), Kind: ledger.Usage, Requests: row.Requests, Amount: -money.Nano(row.ChargedNano)}
	}
	return days, err
}

// balanceAt goes back from the books' balance over everything up to and with the line.
func balanceAt(ctx context.Context, r *q.Queries, org ids.ID, after Mark) (money.Nano, error) {
	now, err := r.ReportSpendable(ctx, org)
	if err != nil || after.Day.IsZero() {
		return money.Nano(now), err
	}
	charged, err := r.ReportChargedSince(ctx, q.ReportChargedSinceParams{Org: org, Since: after.Day})
	if err != nil {
		return 0, err
	}
	since := q.ReportOtherTxnsSinceParams{Org: org, SinceDay: after.Day, SinceID: after.Txn}
	if after.Txn == ids.Nil {
		since.SinceDay = after.Day.Add(wholeDay) // the day's transactions come behind its usage
	}
	moved, err := r.ReportOtherTxnsSince(ctx, since)
	return money.Nano(now + charged - moved), err
}

// newerFirst orders lines by day; a day's usage comes before its transactions.
func newerFirst(a, b Movement) int {
	x, y := a.Mark(), b.Mark()
	switch {
	case !x.Day.Equal(y.Day):
		return y.Day.Compare(x.Day)
	case x.Txn == ids.Nil || y.Txn == ids.Nil:
		return bytes.Compare(x.Txn[:], y.Txn[:])
	}
	return bytes.Compare(y.Txn[:], x.Txn[:])
}

// Statement is the organization's accounts over [from, to), in from's zone.
func (s *Service) Statement(ctx context.Context, by tenants.Actor, org ids.ID, from, to time.Time) (out *ledger.AccountStatement, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, db.Org(org).ReadOnly().Snapshot(), func(tx pgx.Tx) error {
		out, err = ledger.Statement(ctx, tx, org, from, to)
		return err
	})
	return out, err
}
