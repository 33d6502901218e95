// Package month says what an accounting month came to, and closes it.
//
// It owns the report of a month (revenue, cash, deferred credit, receivables, by customer) and the table accounting_months.
// It books nothing: every figure is a sum of ledger entries. Invoices are billing/invoice's; whether they are final is one of
// the reasons that a month cannot be closed for.
//
// Words. Accounting month: a UTC calendar month, named by its first day. A transaction belongs to the month that it was booked
// in; usage belongs to the month that its requests started in, if it was booked before that month froze, and else to the month
// that was being completed when it was booked (migration 0016: accounting_month). Open: transactions still join. Frozen: two
// days after the end, nothing joins any more. Closed: an operator looked, and the report is kept as it was.
//
// Invariants: every transaction belongs to exactly one month, so months add up to the ledger; every entry is in the columns, and
// they add up to zero; the report of all customers is the sum of theirs; a month is closed once, after the months before it;
// nothing in a closed month's report changes, and a checksum tells when somebody changed it all the same.
package month

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/tenants"
)

// Currency is what every amount is in.
const Currency = "USD"

// State is how far a month is.
type State string

// The states.
const (
	Open   State = "open"
	Frozen State = "frozen"
	Closed State = "closed"
)

// layout names a month: in addresses, exports and what is typed to close it.
const layout = "2006-01"

// Month is one accounting month, without its figures.
type Month struct {
	Start, End time.Time // UTC; End is not in it
	FreezesAt  time.Time
	State      State
	ClosedAt   time.Time // zero = not closed
	ClosedBy   string
}

// Name is the month as it is typed: 2026-11.
func (m Month) Name() string { return m.Start.Format(layout) }

// Parse reads a month's name.
func Parse(name string) (time.Time, error) {
	at, err := time.Parse(layout, name)
	if err != nil || at.Year() < 2020 {
		return time.Time{}, fault.New(fault.Invalid, "A month is given as year and month, for example 2026-11.").WithParam("month")
	}
	return at, nil
}

// Of gives the month that a moment lies in.
func Of(at time.Time) time.Time { return ledger.MonthOf(at) }

// Freeze is when nothing joins a month any more. Migration 0016 says the same to the database.
func Freeze(start time.Time) time.Time { return invoice.FreezeOf(start) }

// at computes a month's state from the clock; only closing is written down.
func at(start, now time.Time) Month {
	m := Month{Start: start, End: start.AddDate(0, 1, 0), FreezesAt: Freeze(start), State: Open}
	if !now.Before(m.FreezesAt) {
		m.State = Frozen
	}
	return m
}

func (m *Month) close(at time.Time, by string) {
	m.State, m.ClosedAt, m.ClosedBy = Closed, at.UTC(), by
}

// Service reports and closes. It is safe for concurrent use. Everything is for operators only.
type Service struct {
	db    *db.DB
	clock clock.Clock
}

// New makes a service.
func New(d *db.DB, c clock.Clock) *Service { return &Service{db: d, clock: c} }

func (s *Service) now() time.Time { return s.clock.Now().UTC() }

// readTimeout bounds the reading of months: a year of a large ledger takes its time.
const readTimeout = 2 * time.Minute

// read runs fn in a snapshot of the system.
func (s *Service) read(ctx context.Context, by tenants.Actor, fn func(r *q.Queries) error) error {
	if err := by.RequireOperator(); err != nil {
		return err
	}
	return s.db.InTx(ctx, db.System().ReadOnly().Snapshot().Timeout(readTimeout), func(tx pgx.Tx) error { return fn(q.New(tx)) })
}

// maxListed bounds the list of months.
const maxListed = 24

// Line is a month in the list, with what it came to over all customers so far. Opening and closing figures are zero.
type Line struct {
	Month
	Figures Figures
}

// List gives the months since the first customer came, the newest first, at most two years of them.
func (s *Service) List(ctx context.Context, by tenants.Actor) (out []Line, err error) {
	now := s.now()
	err = s.read(ctx, by, func(r *q.Queries) error {
		out = nil
		first, err := firstMonth(ctx, r, now)
		if err != nil {
			return err
		}
		closed, err := r.ClosedMonths(ctx)
		if err != nil {
			return fmt.Errorf("month: which are closed: %w", err)
		}
		places := map[time.Time]int{}
		for start := Of(now); !start.Before(first) && len(out) < maxListed; start = start.AddDate(0, -1, 0) {
			places[start] = len(out)
			out = append(out, Line{Month: at(start, now)})
		}
		for _, c := range closed {
			if i, ok := places[c.Month.UTC()]; ok {
				out[i].close(c.ClosedAt, c.ClosedBy)
			}
		}
		return fill(ctx, r, out, places)
	})
	return out, err
}

// fill adds up the ledger for the listed months.
func fill(ctx context.Context, r *q.Queries, out []Line, places map[time.Time]int) error {
	if len(out) == 0 {
		return nil
	}
	oldest := out[len(out)-1].Start
	rows, err := r.MonthTotals(ctx, q.MonthTotalsParams{Month: oldest, FromDay: firstDay(oldest)})
	if err != nil {
		return fmt.Errorf("month: totals: %w", err)
	}
	sums := make([]cells, len(out))
	for _, x := range rows {
		i, ok := places[x.Month.UTC()]
		if !ok {
			continue // a clock ahead of ours
		}
		if sums[i] == nil {
			sums[i] = cells{}
		}
		sums[i].add(x.Kind, x.Account, x.AmountNano)
	}
	for i := range out {
		out[i].Figures = sums[i].figures(nil)
	}
	return nil
}

// The months that there are begin with the first customer's and end with the one that runs.
var (
	errNotYet  = fault.New(fault.NotFound, "There is no such month yet.").WithCode("not_found")
	errNoMonth = fault.New(fault.NotFound, "There is no such month: the first customer came later.").WithCode("not_found")
)

// firstMonth is the one that the first customer came in.
func firstMonth(ctx context.Context, r *q.Queries, now time.Time) (time.Time, error) {
	first, err := r.FirstOrgAt(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("month: the first customer: %w", err)
	}
	if first.After(now) {
		first = now
	}
	return Of(first), nil
}

// firstDay is the first partition that can hold a month's transactions: a gateway's clock may be ahead of the rater's.
func firstDay(start time.Time) time.Time { return start.AddDate(0, 0, -1) }
