package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"millrace/billing/period"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// maxStatement bounds a statement's span.
const maxStatement = 400 * 24 * time.Hour

// Line is one line of a statement: a transaction, or all usage of a day.
type Line struct {
	ID      ids.ID    // ids.Nil for a day of usage
	At      time.Time // of the transaction; where the day of usage begins
	Kind    Kind
	Memo    string
	Entries []Entry // sorted by account
}

// AccountStatement is an organization's accounts over [From, To). It ties out, account by account: the opening balance
// plus the lines' entries is the closing balance. Accounts at zero are left out.
type AccountStatement struct {
	From, To         time.Time
	Opening, Closing map[Account]money.Nano
	Lines            []Line // in order of time
}

// Statement tells what happened to an organization's accounts in [from, to), at most 400 days, by the times inside the
// transactions' ids. Usage is one line per calendar day of from's location, which must be an IANA zone; everything else is
// listed by transaction. Call it in a db snapshot, so that balances and lines are of one moment.
func Statement(ctx context.Context, tx q.DBTX, org ids.ID, from, to time.Time) (*AccountStatement, error) {
	if from.Location() == time.Local || !from.Before(to) || to.Sub(from) > maxStatement {
		return nil, errors.New("ledger: a statement needs a span in a named zone, not empty and at most 400 days")
	}
	balances, err := Balances(ctx, tx, org)
	if err != nil {
		return nil, err
	}
	s := &AccountStatement{From: from, To: to}
	if s.Opening, err = balancesAt(ctx, tx, org, from, balances); err != nil {
		return nil, err
	}
	if s.Closing, err = balancesAt(ctx, tx, org, to, balances); err != nil {
		return nil, err
	}
	days, err := usageDays(ctx, tx, org, from, to)
	if err != nil {
		return nil, err
	}
	txns, err := otherTxns(ctx, tx, org, from, to)
	if err != nil {
		return nil, err
	}
	s.Lines = merge(days, txns)
	return s, nil
}

// balancesAt goes back from today's balances to those of an earlier moment.
func balancesAt(ctx context.Context, tx q.DBTX, org ids.ID, at time.Time, today map[Account]money.Nano) (map[Account]money.Nano, error) {
	p := q.LedgerSumsSinceParams{OrgID: org, OwnDay: day(at), FromID: firstID(at), FromDay: day(at).AddDate(0, 0, 1)}
	if wholeDays(at) {
		p.OwnDay, p.FromDay = time.Time{}, p.OwnDay
	}
	rows, err := q.New(tx).LedgerSumsSince(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("ledger: sums since: %w", err)
	}
	then := maps.Clone(today)
	for _, r := range rows {
		then[Account(r.Account)] -= money.Nano(r.AmountNano)
	}
	maps.DeleteFunc(then, func(_ Account, n money.Nano) bool { return n == 0 })
	return then, nil
}

// wholeDays reports whether UTC days begin at these moments: their sums are kept.
func wholeDays(moments ...time.Time) bool {
	for _, at := range moments {
		if !at.Equal(day(at)) {
			return false
		}
	}
	return true
}

// usageDays makes a line of each day's usage.
func usageDays(ctx context.Context, tx q.DBTX, org ids.ID, from, to time.Time) ([]Line, error) {
	if from.Location() != time.UTC || !wholeDays(from, to) {
		return usageSpans(ctx, tx, org, from, to)
	}
	rows, err := q.New(tx).StatementUsageDays(ctx, q.StatementUsageDaysParams{OrgID: org, FromDay: from, ToDay: to})
	if err != nil {
		return nil, fmt.Errorf("ledger: statement of usage: %w", err)
	}
	var lines []Line
	for _, r := range rows {
		lines = addUsage(lines, r.Day, Entry{Account(r.Account), money.Nano(r.AmountNano)})
	}
	return lines, nil
}

// addUsage adds an entry to the line of the usage that begins at a moment.
func addUsage(lines []Line, at time.Time, e Entry) []Line {
	if n := len(lines); n == 0 || !lines[n-1].At.Equal(at) {
		lines = append(lines, Line{At: at, Kind: Usage})
	}
	line := &lines[len(lines)-1]
	line.Entries = append(line.Entries, e)
	return lines
}

func usageSpans(ctx context.Context, tx q.DBTX, org ids.ID, from, to time.Time) ([]Line, error) {
	p := q.StatementUsageParams{OrgID: org, FromDay: day(from), ToDay: day(to)}
	var starts []time.Time
	for at := from; at.Before(to); {
		end := period.At(period.Day, from.Location(), at).End
		if end.After(to) {
			end = to
		}
		p.Numbers = append(p.Numbers, int32(len(starts)))
		p.FromIds = append(p.FromIds, firstID(at))
		p.ToIds = append(p.ToIds, firstID(end))
		starts = append(starts, at)
		at = end
	}
	rows, err := q.New(tx).StatementUsage(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("ledger: statement of usage: %w", err)
	}
	var lines []Line
	for _, r := range rows {
		lines = addUsage(lines, starts[r.Number].In(from.Location()), Entry{Account(r.Account), money.Nano(r.AmountNano)})
	}
	return lines, nil
}

func otherTxns(ctx context.Context, tx q.DBTX, org ids.ID, from, to time.Time) ([]Line, error) {
	rows, err := q.New(tx).StatementTxns(ctx, q.StatementTxnsParams{OrgID: org, FromDay: day(from), ToDay: day(to), FromID: firstID(from), ToID: firstID(to)})
	if err != nil {
		return nil, fmt.Errorf("ledger: statement of transactions: %w", err)
	}
	var lines []Line
	for _, r := range rows {
		if n := len(lines); n == 0 || lines[n-1].ID != r.ID {
			lines = append(lines, Line{ID: r.ID, At: ids.Time(r.ID).In(from.Location()), Kind: Kind(r.Kind), Memo: r.Memo})
		}
		line := &lines[len(lines)-1]
		line.Entries = append(line.Entries, Entry{Account(r.Account), money.Nano(r.AmountNano)})
	}
	return lines, nil
}

// merge keeps both orders; a day of usage comes before what happened on that day.
func merge(days, txns []Line) []Line {
	all := make([]Line, 0, len(days)+len(txns))
	for len(days) > 0 && len(txns) > 0 {
		if txns[0].At.Before(days[0].At) {
			all, txns = append(all, txns[0]), txns[1:]
		} else {
			all, days = append(all, days[0]), days[1:]
		}
	}
	return append(append(all, days...), txns...)
}

// firstID is not above any UUIDv7 made at or after at (milliseconds), and above all that were made before.
func firstID(at time.Time) ids.ID {
	ms := at.UnixMilli()
	return ids.ID{byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms)}
}

// day is the partition of transactions made at this moment.
func day(at time.Time) time.Time { return at.UTC().Truncate(24 * time.Hour) }
