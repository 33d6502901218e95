package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// lateDays is how many days after a request its transaction may be: the usage log keeps no event longer.
const lateDays = 8

// StatementUsage is what a line of usage in a statement is made of.
type StatementUsage struct {
	Requests int64      // all of the line
	Charged  money.Nano // all of the line: what it says
	List     []Request  // a page of them, newest first
	More     bool
}

// UsageOf lists the requests that were booked in [from, to): each with its price version, tokens and charge. before is the
// last of the page before; ids.Nil = the newest.
func (s *Service) UsageOf(ctx context.Context, by tenants.Actor, org ids.ID, from, to time.Time, before ids.ID, limit int) (out StatementUsage, err error) {
	if err := by.Require(tenants.BillingRead, org); err != nil {
		return out, err
	}
	limit = min(max(limit, 1), MaxRows)
	day, last := lastDay, newest
	if before != ids.Nil {
		day, last = ids.Day(before), before
	}
	days, err := s.bookedDays(ctx, org, from, to)
	if err != nil {
		return out, err
	}
	err = s.db.InTx(ctx, db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) error {
		r := q.New(tx)
		out = StatementUsage{}
		sum, err := r.StatementEventSum(ctx, q.StatementEventSumParams{Org: org, Days: days, FromTxn: firstOf(from), ToTxn: firstOf(to)})
		if err != nil {
			return err
		}
		out.Requests, out.Charged = sum.Requests, money.Nano(sum.Charged)
		found, err := r.StatementEventIDs(ctx, q.StatementEventIDsParams{Org: org, Days: days, BeforeDay: day, BeforeID: last,
			FromTxn: firstOf(from), ToTxn: firstOf(to), MaxRows: int32(limit) + 1})
		if err != nil {
			return err
		}
		if out.More = len(found) > limit; out.More {
			found = found[:limit]
		}
		p := q.ReportRequestsParams{Org: org}
		for _, e := range found {
			p.Days, p.Ids = append(p.Days, e.Day), append(p.Ids, e.ID)
		}
		rows, err := r.ReportRequests(ctx, p)
		for _, row := range rows {
			out.List = append(out.List, requestOf(row))
		}
		return err
	})
	return out, err
}

// bookedDays are the days whose requests can have been booked in [from, to).
func (s *Service) bookedDays(ctx context.Context, org ids.ID, from, to time.Time) (days []time.Time, err error) {
	const day = 24 * time.Hour
	for d := from.UTC().Truncate(day).AddDate(0, 0, -lateDays); !d.After(to.UTC()); d = d.AddDate(0, 0, 1) {
		days = append(days, d)
	}
	err = s.db.InTx(ctx, db.System().ReadOnly(), func(tx pgx.Tx) error {
		list, err := q.New(tx).StatementRedriven(ctx, q.StatementRedrivenParams{Org: org, Since: from.Add(-day), Until: to.Add(day)})
		for _, id := range list {
			if d := ids.Day(id); d.Before(days[0]) {
				days = append(days, d)
			}
		}
		return err
	})
	return days, err
}

// firstOf is not above any transaction made at or after at, and above all that were made before.
func firstOf(at time.Time) ids.ID {
	ms := at.UnixMilli()
	return ids.ID{byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms)}
}
