package webtest

import (
	"context"
	"time"

	"millrace/billing/price"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/web/session"
)

// contractWorld gives Acme three contracts: over, in force, to come.
func (w *world) contractWorld() {
	day := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	until := func(t time.Time) *time.Time { return &t }
	make1 := func(n int, book string, from time.Time, to *time.Time, note string) price.Contract {
		return price.Contract{ID: id(kindPact, n), Org: id(kindOrg, 1), Book: book, StartsAt: from, EndsAt: to, Note: note, CreatedBy: "ops@millrace.example", CreatedAt: from.AddDate(0, 0, -9)}
	}
	w.contracts = []price.Contract{
		make1(1, "partners-2027", day(2027, 2, 1), nil, "Order 2027-009"),
		make1(2, "partners", day(2026, 8, 1), until(day(2027, 2, 1)), "Order 2026-118"),
		make1(3, "trial", day(2026, 6, 1), until(day(2026, 7, 1)), ""),
	}
}

// Contracts are Acme's; the others have none.
func (b business) Contracts(_ context.Context, org ids.ID) (out []price.Contract, err error) {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	for _, x := range b.f.contracts {
		if x.Org == org {
			out = append(out, x)
		}
	}
	return out, nil
}

// AddContract refuses a book that has no prices.
func (b business) AddContract(_ context.Context, _ session.Viewer, n price.NewContract) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if n.Book != "partners" && n.Book != "trial" {
		return fault.New(fault.Conflict, "No model has a price in this book.").WithParam("book")
	}
	b.f.contracts = append(b.f.contracts, price.Contract{ID: ids.New(), Org: n.Org, Book: n.Book, StartsAt: n.StartsAt, EndsAt: n.EndsAt, Note: n.Note})
	return nil
}

// EndContract refuses a moment that is over.
func (b business) EndContract(_ context.Context, _ session.Viewer, org, id ids.ID, at time.Time) error {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	if at.IsZero() {
		at = Now.Add(time.Minute)
	}
	if at.Before(Now) {
		return fault.New(fault.Conflict, "A contract ends at least a minute from now.").WithParam("ends_at")
	}
	for n := range b.f.contracts {
		if x := &b.f.contracts[n]; x.ID == id && x.Org == org {
			x.EndsAt = &at
			return nil
		}
	}
	return fault.New(fault.NotFound, "There is no such contract.")
}

func morePages() []Page {
	top := path("/admin/customers/", ids.Org, id(kindOrg, 1)) + "/contracts"
	end := top + path("/", ids.Pact, id(kindPact, 2)) + "/end"
	return []Page{
		{Name: "limits-low", Path: "/limits/low-balance", Who: Member},
		{Name: "limits-low-bad", Path: "/limits/low-balance", Who: Member, Form: "below=soon", Status: 422},
		{Name: "admin-contracts", Path: top, Who: Operator},
		{Name: "admin-contracts-bad", Path: top, Who: Operator, Form: "book=none&starts_at=2027-03-01", Status: 422},
		{Name: "admin-contracts-none", Path: path("/admin/customers/", ids.Org, id(kindOrg, 2)) + "/contracts", Who: Operator},
		{Name: "admin-contract-end", Path: end, Who: Operator},
		{Name: "admin-contract-end-bad", Path: end, Who: Operator, Form: "ends_at=2026-01-01", Status: 422},
	}
}
