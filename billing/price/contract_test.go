package price_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/price"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/tenants"
)

func (h house) org(t *testing.T, book string) ids.ID {
	t.Helper()
	id := ids.New()
	if err := h.exec(t, "insert into orgs (org_id, name, price_book) values ($1, 'Acme', $2)", id, book); err != nil {
		t.Fatal(err)
	}
	return id
}

func (h house) contract(t *testing.T, n price.NewContract) price.Contract {
	t.Helper()
	c, err := h.service.AddContract(t.Context(), tenants.System(), n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A contract decides the book from its start until its end, for gateways and by the database alike; before and after, the
// organization's own counts, and where the book says nothing of a model, the standard one.
func TestAContractDecidesTheBook(t *testing.T) {
	h := open(t)
	model, other := h.model(t, "acme/llama", false), h.model(t, "acme/other", false)
	now := h.clock.Now()
	h.create(t, price.Draft{Model: model, Prices: list(10)})
	standardOther := h.create(t, price.Draft{Model: other, Prices: list(10)})
	own := h.create(t, price.Draft{Model: model, Book: "own", Prices: list(9)})
	deal := h.create(t, price.Draft{Model: model, Book: "deal", Prices: list(6)})
	org, stranger := h.org(t, "own"), h.org(t, "own")
	start, end := now.Add(time.Hour).Truncate(time.Millisecond), now.Add(2*time.Hour).Truncate(time.Millisecond)
	c := h.contract(t, price.NewContract{Org: org, Book: "deal", StartsAt: start, EndsAt: &end, Note: "Q1"})
	b, err := price.OpenBook(t.Context(), h.db, h.bus)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, x := range []struct {
		org, model ids.ID
		at         time.Time
		book       string
		want       ids.ID
	}{
		{org, model, start.Add(-time.Millisecond), "own", own.ID},
		{org, model, start, "deal", deal.ID},
		{org, model, end.Add(-time.Millisecond), "deal", deal.ID},
		{org, model, end, "own", own.ID},
		{org, other, start, "deal", standardOther.ID},
		{stranger, model, start, "own", own.ID},
	} {
		q, err := b.Quote(x.org, x.model, "own", x.at, usage.Ordinary)
		if err != nil || q.Version != x.want {
			t.Errorf("at %v: %v, %v; want %v", x.at, q.Version, err, x.want)
		}
		err = h.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
			book, err := price.BookOf(t.Context(), tx, x.org, x.at)
			if book != x.book {
				t.Errorf("at %v the database says %q, want %q", x.at, book, x.book)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = b.Quote(org, model, "own", start, usage.Ordinary) }); n != 0 {
		t.Errorf("a quote by contract allocates %v times", n)
	}
	// Taken back, it is gone from every book.
	if c, err = h.service.EndContract(t.Context(), tenants.System(), org, c.ID, time.Time{}); err != nil || !c.EndsAt.Equal(c.StartsAt) {
		t.Fatalf("%+v, %v", c, err)
	}
	eventually(t, "the contract is forgotten", func() bool { return b.BookOf(org, "own", start) == "own" })
	h.contract(t, price.NewContract{Org: org, Book: "deal", StartsAt: start}) // its time is free again
	eventually(t, "the new one is known", func() bool { return b.BookOf(org, "own", end.AddDate(1, 0, 0)) == "deal" })
}

func TestContractsThatAreRefused(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	h.create(t, price.Draft{Model: model, Book: "deal", Prices: list(6), Confirm: "acme/llama"})
	org, now := h.org(t, price.Standard), h.clock.Now()
	at := func(d time.Duration) *time.Time { x := now.Add(d); return &x }
	h.contract(t, price.NewContract{Org: org, Book: "deal", StartsAt: *at(time.Hour), EndsAt: at(3 * time.Hour)})
	far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*3600))
	for name, x := range map[string]struct {
		n    price.NewContract
		kind fault.Kind
	}{
		"inside of another":   {price.NewContract{Org: org, Book: "deal", StartsAt: *at(2 * time.Hour), EndsAt: at(150 * time.Minute)}, fault.Conflict},
		"open, before it":     {price.NewContract{Org: org, Book: price.Standard}, fault.Conflict},
		"in the past":         {price.NewContract{Org: org, Book: "deal", StartsAt: *at(-time.Hour)}, fault.Invalid},
		"the year 2100":       {price.NewContract{Org: org, Book: "deal", StartsAt: now.AddDate(70, 0, 0)}, fault.Invalid},
		"to the year 10000":   {price.NewContract{Org: org, Book: "deal", StartsAt: *at(5 * time.Hour), EndsAt: &far}, fault.Invalid},
		"backwards":           {price.NewContract{Org: org, Book: "deal", StartsAt: *at(5 * time.Hour), EndsAt: at(4 * time.Hour)}, fault.Invalid},
		"no such customer":    {price.NewContract{Org: ids.New(), Book: "deal"}, fault.NotFound},
		"a book without data": {price.NewContract{Org: org, Book: "empty", StartsAt: *at(9 * time.Hour)}, fault.Conflict},
		"a bad name":          {price.NewContract{Org: org, Book: "No Spaces"}, fault.Invalid},
	} {
		if _, err := h.service.AddContract(t.Context(), tenants.System(), x.n); !fault.Is(err, x.kind) {
			t.Errorf("%s: %v, want %s", name, err, x.kind)
		}
	}
	if _, err := h.service.AddContract(t.Context(), tenants.Actor{Org: org, Role: tenants.Owner}, price.NewContract{Org: org, Book: "deal"}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer gave itself a contract: %v", err)
	}
	h.contract(t, price.NewContract{Org: org, Book: price.Standard, EndsAt: at(time.Hour)}) // end to start is no overlap
}

// A running contract ends with notice, so that every gateway hears of it; nothing else of it ever changes.
func TestEndingAContract(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	h.create(t, price.Draft{Model: model, Book: "deal", Prices: list(6), Confirm: "acme/llama"})
	org := h.org(t, price.Standard)
	c := h.contract(t, price.NewContract{Org: org, Book: "deal"})
	if _, err := h.service.EndContract(t.Context(), tenants.System(), org, c.ID, time.Now().Add(10*time.Second)); !fault.Is(err, fault.Invalid) {
		t.Errorf("ended without notice: %v", err)
	}
	if _, err := h.service.EndContract(t.Context(), tenants.System(), org, c.ID, clock.Latest.Add(time.Second)); !fault.Is(err, fault.Invalid) {
		t.Errorf("ends in the year 2200: %v", err)
	}
	if _, err := h.service.EndContract(t.Context(), tenants.System(), h.org(t, "x"), c.ID, time.Time{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("another customer's contract was ended: %v", err)
	}
	before := time.Now()
	c, err := h.service.EndContract(t.Context(), tenants.System(), org, c.ID, time.Time{})
	if err != nil || c.EndsAt == nil || c.EndsAt.Sub(before) < price.CancelNotice || c.EndsAt.Sub(before) > 2*price.CancelNotice {
		t.Fatalf("%+v, %v", c, err)
	}
	if list, err := h.service.Contracts(t.Context(), tenants.System(), org); err != nil || len(list) != 1 || !list[0].EndsAt.Equal(*c.EndsAt) {
		t.Errorf("%+v, %v", list, err)
	}
	for _, change := range []string{"update price_contracts set book = 'x'", "update price_contracts set ends_at = now() - interval '1 hour'",
		"update price_contracts set starts_at = starts_at + interval '1 second'", "delete from price_contracts"} {
		if h.exec(t, change) == nil {
			t.Errorf("%s was allowed", change)
		}
	}
}
