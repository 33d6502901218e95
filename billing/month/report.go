package month

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/db/q"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// Row is what a month came to with one customer.
type Row struct {
	Org     ids.ID
	Name    string
	Figures Figures
}

// Report is a month's: of all customers, and by customer. Customers with nothing but zeros are left out.
type Report struct {
	Month
	Total    Figures
	Rows     []Row  // by name
	Checksum string // of a closed month
}

// orgsAtOnce is how many customers' entries are added up together.
const orgsAtOnce = 200

// Report tells what a month came to: as it was closed, or else by the ledger so far.
func (s *Service) Report(ctx context.Context, by tenants.Actor, start time.Time) (out Report, err error) {
	now := s.now()
	if start != Of(start) || start.After(now) {
		return out, errNotYet
	}
	err = s.read(ctx, by, func(r *q.Queries) error {
		out, err = kept(ctx, r, start, now)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		first, err := firstMonth(ctx, r, now)
		if err != nil {
			return err
		}
		if start.Before(first) {
			return errNoMonth
		}
		out, err = compute(ctx, r, start, now)
		return err
	})
	return out, err
}

// compute adds the ledger up.
func compute(ctx context.Context, r *q.Queries, start, now time.Time) (Report, error) {
	out := Report{Month: at(start, now)}
	err := pages(ctx, r, start, ids.Nil, func(rows []Row, _ ids.ID) error {
		for i := range rows {
			out.Total.Add(&rows[i].Figures)
		}
		out.Rows = append(out.Rows, rows...)
		return nil
	})
	slices.SortFunc(out.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Org[:], b.Org[:]))
	})
	return out, err
}

// Pages gives a month's rows to each, those of some customers at a time, in the order of their ids behind after; last is the
// last customer that was looked at. It is for exports, which call it in a snapshot of the system and check who asks.
func Pages(ctx context.Context, r *q.Queries, start, now time.Time, after ids.ID, each func(m Month, rows []Row, last ids.ID) error) error {
	whole, err := kept(ctx, r, start, now)
	if errors.Is(err, pgx.ErrNoRows) {
		m := at(start, now)
		return pages(ctx, r, start, after, func(rows []Row, last ids.ID) error { return each(m, rows, last) })
	}
	rows := slices.DeleteFunc(whole.Rows, func(x Row) bool { return bytes.Compare(x.Org[:], after[:]) <= 0 })
	if err != nil || len(rows) == 0 {
		return err
	}
	slices.SortFunc(rows, func(a, b Row) int { return bytes.Compare(a.Org[:], b.Org[:]) })
	return each(whole.Month, rows, rows[len(rows)-1].Org)
}

// pages adds the ledger up, some customers at a time.
func pages(ctx context.Context, r *q.Queries, start time.Time, after ids.ID, each func(rows []Row, last ids.ID) error) error {
	for {
		orgs, err := r.MonthOrgs(ctx, q.MonthOrgsParams{AfterOrg: after, MaxRows: orgsAtOnce})
		if err != nil {
			return fmt.Errorf("month: customers: %w", err)
		}
		if len(orgs) == 0 {
			return nil
		}
		list := make([]ids.ID, len(orgs))
		for i, o := range orgs {
			list[i] = o.OrgID
		}
		books, err := readBooks(ctx, r, start, list)
		if err != nil {
			return err
		}
		var rows []Row
		for _, o := range orgs {
			if f := books[o.OrgID].figures(); f != (Figures{}) {
				rows = append(rows, Row{Org: o.OrgID, Name: o.Name, Figures: f})
			}
		}
		after = list[len(list)-1]
		if err := each(rows, after); err != nil {
			return err
		}
		if len(orgs) < orgsAtOnce {
			return nil
		}
	}
}

// book is what the ledger says of a customer's month.
type book struct {
	opening map[ledger.Account]money.Nano
	cells   cells
}

func (b *book) figures() Figures { return b.cells.figures(b.opening) }

// readBooks goes back from today's balances: what was booked since is not in the opening.
func readBooks(ctx context.Context, r *q.Queries, start time.Time, orgs []ids.ID) (map[ids.ID]*book, error) {
	books := make(map[ids.ID]*book, len(orgs))
	for _, org := range orgs {
		books[org] = &book{opening: map[ledger.Account]money.Nano{}, cells: cells{}}
	}
	balances, err := r.MonthBalances(ctx, orgs)
	if err != nil {
		return nil, fmt.Errorf("month: balances: %w", err)
	}
	for _, b := range balances {
		books[b.OrgID].opening[ledger.Account(b.Account)] = money.Nano(b.AmountNano)
	}
	sums, err := r.MonthSums(ctx, q.MonthSumsParams{Orgs: orgs, Month: start, FromDay: firstDay(start)})
	if err != nil {
		return nil, fmt.Errorf("month: sums: %w", err)
	}
	for _, x := range sums {
		b := books[x.OrgID]
		b.opening[ledger.Account(x.Account)] -= money.Nano(x.AmountNano)
		if x.Inside {
			b.cells.add(x.Kind, x.Account, x.AmountNano)
		}
	}
	return books, nil
}
