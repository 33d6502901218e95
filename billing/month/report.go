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
	"millrace/internal/fault"
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
		return out, fault.New(fault.NotFound, "There is no such month yet.").WithCode("not_found")
	}
	err = s.read(ctx, by, func(r *q.Queries) error {
		out, err = kept(ctx, r, start, now)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		out, err = compute(ctx, r, start, now)
		return err
	})
	return out, err
}

// compute adds the ledger up.
func compute(ctx context.Context, r *q.Queries, start, now time.Time) (Report, error) {
	out := Report{Month: at(start, now)}
	for after := ids.Nil; ; {
		rows, last, err := Page(ctx, r, start, after, orgsAtOnce)
		if err != nil {
			return out, err
		}
		for i := range rows {
			out.Total.Add(&rows[i].Figures)
		}
		out.Rows = append(out.Rows, rows...)
		if last == ids.Nil {
			break
		}
		after = last
	}
	slices.SortFunc(out.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), bytes.Compare(a.Org[:], b.Org[:]))
	})
	return out, nil
}

// Page gives a month of the next customers in the order of their ids, by the ledger, and where the page after it begins;
// ids.Nil = nowhere. Call it in a snapshot of the system.
func Page(ctx context.Context, r *q.Queries, start time.Time, after ids.ID, limit int) (out []Row, last ids.ID, err error) {
	orgs, err := r.MonthOrgs(ctx, q.MonthOrgsParams{AfterOrg: after, MaxRows: int32(limit)})
	if err != nil {
		return nil, ids.Nil, fmt.Errorf("month: customers: %w", err)
	}
	if len(orgs) == 0 {
		return nil, ids.Nil, nil
	}
	list := make([]ids.ID, len(orgs))
	for i, o := range orgs {
		list[i] = o.OrgID
	}
	books, err := readBooks(ctx, r, start, list)
	if err != nil {
		return nil, ids.Nil, err
	}
	for _, o := range orgs {
		if f := books[o.OrgID].figures(); f != (Figures{}) {
			out = append(out, Row{Org: o.OrgID, Name: o.Name, Figures: f})
		}
	}
	if len(orgs) == limit {
		last = list[len(list)-1]
	}
	return out, last, nil
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
