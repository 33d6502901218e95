package invoice

import (
	"context"
	"fmt"
	"time"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// clockSkew is how far the clock of the gateway that names a request and that of the rater that books it may be apart: a
// request of a month may be booked so long before it begins.
const clockSkew = 24 * time.Hour

// firstReach is how many months before the first one its bookings may reach back.
const firstReach = 2

// cover says which usage transactions a month's invoice is about: those of its month booked in [from, to), and those of
// earlier months booked in [late, to).
type cover struct {
	month, from, late, to time.Time
}

// coverOf gives what a month's invoice covers. The first month that is invoiced takes what was booked since it began, of
// whatever month: nothing was invoiced before.
func coverOf(ctx context.Context, r *q.Queries, month time.Time) (cover, error) {
	first, err := r.InvoicingStart(ctx)
	if err != nil {
		return cover{}, fmt.Errorf("invoice: the first month: %w", err)
	}
	c := cover{month: month, from: month.Add(-clockSkew), late: FreezeOf(month.AddDate(0, -1, 0)), to: FreezeOf(month)}
	switch {
	case !month.Equal(ledger.MonthOf(month)):
		return cover{}, fault.New(fault.Invalid, "A month is named by its first day, UTC.").WithParam("month")
	case month.Before(first):
		return cover{}, fault.New(fault.Invalid, "Invoices begin with %s.", first.Format("January 2006")).WithParam("month")
	case month.Equal(first):
		c.from, c.late = month, month
	}
	return c, nil
}

// account is what the covered transactions did, of one month of usage.
type account struct {
	promo, prepaid, receivable, overrun money.Nano
}

func (a account) charged() money.Nano { return a.promo + a.prepaid + a.receivable }

func (a *account) add(o account) {
	a.promo, a.prepaid, a.receivable, a.overrun = a.promo+o.promo, a.prepaid+o.prepaid, a.receivable+o.receivable, a.overrun+o.overrun
}

// accounts reads what the covered transactions of an organization did, by month of usage.
func (c cover) accounts(ctx context.Context, r *q.Queries, org ids.ID) (map[time.Time]account, error) {
	rows, err := r.CoveredAccounts(ctx, q.CoveredAccountsParams{OrgID: org, FromDay: day(c.from), ToDay: day(c.to), FromID: ids.Floor(c.from),
		FreezeID: ids.Floor(c.to), Month: c.month, LateID: ids.Floor(c.late)})
	if err != nil {
		return nil, fmt.Errorf("invoice: covered transactions: %w", err)
	}
	return c.add(rows), nil
}

// days reads the same by the sums of days: a customer of millions of requests may have as many transactions.
func (c cover) days(ctx context.Context, r *q.Queries, org ids.ID) (map[time.Time]account, error) {
	rows, err := r.CoveredDays(ctx, q.CoveredDaysParams{OrgID: org, FromDay: day(c.from), ToDay: day(c.to), Month: c.month, LateDay: day(c.late)})
	if err != nil {
		return nil, fmt.Errorf("invoice: covered days: %w", err)
	}
	list := make([]q.CoveredAccountsRow, len(rows))
	for i, row := range rows {
		list[i] = q.CoveredAccountsRow(row)
	}
	return c.add(list), nil
}

func (c cover) add(rows []q.CoveredAccountsRow) map[time.Time]account {
	of := make(map[time.Time]account)
	for _, row := range rows {
		month := c.shown(row.UsageMonth)
		a, n := of[month], money.Nano(row.AmountNano)
		switch ledger.Account(row.Account) {
		case ledger.PrepaidPromo:
			a.promo += n
		case ledger.PrepaidPaid:
			a.prepaid += n
		case ledger.Receivable:
			a.receivable += n
		case ledger.Overrun:
			a.overrun += n
		}
		of[month] = a
	}
	return of
}

// shown is the month that an invoice shows for usage. The first one shows its own for all: its bookings may hold requests of
// two months together.
func (c cover) shown(month time.Time) time.Time {
	if c.begins() {
		return c.month
	}
	return month
}

// begins reports whether it is the first month that is invoiced.
func (c cover) begins() bool { return c.late.Equal(c.month) }

// part is a range of events' days, and of the bookings that count of them.
type part struct {
	fromDay, toDay time.Time
	fromID, toID   ids.ID
}

// parts are where the covered events lie: the month's own days and, where anything was late, those before.
func (c cover) parts(months map[time.Time]account) []part {
	parts := []part{{c.month, c.month.AddDate(0, 1, 0), ids.Floor(c.from), ids.Floor(c.to)}}
	oldest := c.month
	for m := range months {
		if m.Before(oldest) {
			oldest = m
		}
	}
	if c.begins() {
		oldest = oldest.AddDate(0, -firstReach, 0)
	}
	if oldest.Before(c.month) {
		parts = append(parts, part{oldest, c.month, ids.Floor(c.late), ids.Floor(c.to)})
	}
	return parts
}

func day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
