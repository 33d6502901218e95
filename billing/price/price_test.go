package price_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/price"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// house is a database, a bus, a clock that starts at the real time (the database has its own), and the service.
type house struct {
	db      *db.DB
	bus     *bus.Bus
	clock   *clock.Manual
	service *price.Service
}

func open(t *testing.T) house {
	t.Helper()
	b := dbtest.Bus(t)
	h := house{db: dbtest.New(t), bus: b, clock: clock.NewManual(time.Now())}
	h.service = price.New(h.db, h.clock, b)
	return h
}

func (h house) exec(t *testing.T, sql string, args ...any) error {
	t.Helper()
	return h.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), sql, args...); return err })
}

func (h house) model(t *testing.T, name string, free bool) ids.ID {
	t.Helper()
	id := ids.New()
	if err := h.exec(t, "insert into models (id, name, context_tokens, max_output_tokens, free) values ($1, $2, 1000, 1000, $3)", id, name, free); err != nil {
		t.Fatal(err)
	}
	return id
}

// list is a complete price list around an input price of so many USD per million.
func list(usd money.Pico) map[usage.Class]money.Pico {
	const million = 1_000_000
	return map[usage.Class]money.Pico{usage.Input: usd * million, usage.Cached: usd * million / 10, usage.CacheWrite: usd * million,
		usage.Output: 4 * usd * million, usage.Reasoning: 4 * usd * million, usage.Image: usd * million, usage.Audio: usd * million, usage.Requests: 0}
}

func (h house) create(t *testing.T, d price.Draft) price.Version {
	t.Helper()
	v, err := h.service.Create(t.Context(), tenants.System(), d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestACreatedVersionIsWhatIsRead(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	v := h.create(t, price.Draft{Model: model, Prices: list(2), Note: " first "})
	if v.Book != price.Standard || v.Note != "first" || v.CreatedBy != "system" || v.Prices[usage.Output] != 8_000_000 {
		t.Errorf("%+v", v)
	}
	err := h.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		got, err := price.ByID(t.Context(), tx, v.ID)
		if err != nil {
			return err
		}
		if got.Prices != v.Prices || !got.EffectiveAt.Equal(v.EffectiveAt) || got.Model != model {
			t.Errorf("read %+v, made %+v", got, v)
		}
		if none, err := price.ByID(t.Context(), tx, ids.New()); !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v, %v", none, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{"update price_versions set input_pico = 1", "delete from price_versions", "update price_versions set cancelled_at = now()"} {
		if h.exec(t, change) == nil {
			t.Errorf("%s was allowed", change)
		}
	}
	timeline, err := h.service.Timeline(t.Context(), tenants.System(), model)
	if err != nil || len(timeline) != 1 {
		t.Errorf("%v, %v", timeline, err)
	}
	if _, err := h.service.Create(t.Context(), tenants.Actor{Org: ids.New(), Role: tenants.Owner}, price.Draft{Model: model, Prices: list(3)}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer made a price: %v", err)
	}
}

func TestDraftsThatAreRefused(t *testing.T) {
	h := open(t)
	model, free := h.model(t, "acme/llama", false), h.model(t, "acme/free", true)
	now := h.clock.Now()
	first := h.create(t, price.Draft{Model: model, Prices: list(2)})
	for name, c := range map[string]struct {
		spoil func(*price.Draft)
		kind  fault.Kind
	}{
		"a class forgotten": {func(d *price.Draft) { delete(d.Prices, usage.Reasoning) }, fault.Invalid},
		"an unknown class":  {func(d *price.Draft) { d.Prices[usage.NumClasses] = 1 }, fault.Invalid},
		"negative":          {func(d *price.Draft) { d.Prices[usage.Input] = -1 }, fault.Invalid},
		"beyond measure":    {func(d *price.Draft) { d.Prices[usage.Input] = 1 << 60 }, fault.Invalid},
		"the past":          {func(d *price.Draft) { d.EffectiveAt = now.Add(-time.Hour) }, fault.Invalid},
		"a mistyped year":   {func(d *price.Draft) { d.EffectiveAt = now.AddDate(10, 0, 0) }, fault.Invalid},
		"a bad book":        {func(d *price.Draft) { d.Book = "No Spaces" }, fault.Invalid},
		"no such model":     {func(d *price.Draft) { d.Model = ids.New() }, fault.NotFound},
		"more than half":    {func(d *price.Draft) { d.Prices = list(4) }, fault.Conflict},
		"less than half":    {func(d *price.Draft) { d.Prices[usage.Output] = 3_000_000 }, fault.Conflict},
		"suddenly free":     {func(d *price.Draft) { d.Prices[usage.Output] = 0 }, fault.Conflict},
		"suddenly a fee":    {func(d *price.Draft) { d.Prices[usage.Requests] = 1000 }, fault.Conflict},
		"cached is dearer":  {func(d *price.Draft) { d.Prices[usage.Cached] = 2_000_001; d.Confirm = "acme/other" }, fault.Conflict},
		"that moment":       {func(d *price.Draft) { d.EffectiveAt = first.EffectiveAt }, fault.Conflict},
		"free with a price": {func(d *price.Draft) { d.Model = free }, fault.Invalid},
		"another book, too": {func(d *price.Draft) { d.Book = "big-customer"; d.Prices = list(9) }, fault.Conflict},
		"per token, pasted": {func(d *price.Draft) { d.Book = "b"; d.Prices[usage.Input] = 2 }, fault.Conflict},
		"dear, first of it": {func(d *price.Draft) { d.Prices[usage.Image] = 2_000_000_000 }, fault.Conflict},
		"dearest requests":  {func(d *price.Draft) { d.Prices[usage.Requests] = 2e12 }, fault.Conflict},
	} {
		d := price.Draft{Model: model, EffectiveAt: now.Add(time.Hour), Prices: list(2)}
		c.spoil(&d)
		if v, err := h.service.Create(t.Context(), tenants.System(), d); !fault.Is(err, c.kind) {
			t.Errorf("%s: want %s, got %v (%v)", name, c.kind, err, v.ID)
		}
	}
	d := price.Draft{Model: model, EffectiveAt: now.Add(time.Hour), Prices: list(5)}
	_, err := h.service.Create(t.Context(), tenants.System(), d)
	if f := fault.Of(err); f.Code != "confirm_prices" || !strings.Contains(f.Message, "input changes by more than half, from 2 USD per 1M tokens to 5 USD per 1M tokens.") {
		t.Errorf("the doubt reads %q", f.Message)
	}
	d.Confirm = "acme/llama"
	h.create(t, d)
	h.create(t, price.Draft{Model: free, Prices: price.Every(usage.Prices{})})
}

// A version that was cancelled may be replaced at the same moment; one that is about to begin stays.
// Steps that are small each ask for a confirmation once they are a large one together; a month later they are forgotten.
func TestSmallStepsAddUp(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	step := func(usd money.Pico, confirm string) error {
		h.clock.Advance(time.Hour)
		_, err := h.service.Create(t.Context(), tenants.System(), price.Draft{Model: model, Prices: list(usd), Confirm: confirm})
		return err
	}
	first := h.clock.Now().Add(time.Hour).UTC().Format("2 January 2006")
	for _, usd := range []money.Pico{10, 14} {
		if err := step(usd, ""); err != nil {
			t.Fatal(err)
		}
	}
	if f := fault.Of(step(19, "")); f.Code != "confirm_prices" || !strings.Contains(f.Message, "Against the price of "+first) ||
		!strings.Contains(f.Message, "from 10 USD per 1M tokens to 19 USD per 1M tokens") || strings.Contains(f.Message, "from 14") {
		t.Errorf("%+v", f)
	}
	if err := step(19, "acme/llama"); err != nil {
		t.Error(err)
	}
	h.clock.Advance(31 * 24 * time.Hour)
	if err := step(28, ""); err != nil {
		t.Error(err)
	}
	if f := fault.Of(step(30, "")); f.Code != "confirm_prices" { // 19 held until an hour ago
		t.Errorf("%+v", f)
	}
}

func TestCancel(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	now := time.Now()
	planned := h.create(t, price.Draft{Model: model, EffectiveAt: now.Add(2 * time.Minute), Prices: list(2)})
	near := h.create(t, price.Draft{Model: model, EffectiveAt: now.Add(30 * time.Second), Prices: list(2)})
	if v, err := h.service.Cancel(t.Context(), tenants.System(), planned.ID); err != nil || v.CancelledAt == nil {
		t.Fatalf("%+v, %v", v, err)
	}
	if v, err := h.service.Cancel(t.Context(), tenants.System(), planned.ID); err != nil || v.CancelledAt == nil || v.ID != planned.ID {
		t.Errorf("cancelled twice: %+v, %v", v, err)
	}
	if _, err := h.service.Cancel(t.Context(), tenants.System(), near.ID); !fault.Is(err, fault.Conflict) {
		t.Errorf("cancelled within its notice: %v", err)
	}
	if _, err := h.service.Cancel(t.Context(), tenants.System(), ids.New()); !fault.Is(err, fault.NotFound) {
		t.Errorf("cancelled nothing: %v", err)
	}
	h.create(t, price.Draft{Model: model, EffectiveAt: planned.EffectiveAt, Prices: list(2)})
	timeline, err := h.service.Timeline(t.Context(), tenants.System(), model)
	if err != nil || len(timeline) != 3 {
		t.Errorf("%v, %v", timeline, err)
	}
}

func TestABookQuotesWithoutTheDatabase(t *testing.T) {
	h := open(t)
	model, unpriced := h.model(t, "acme/llama", false), h.model(t, "acme/new", false)
	now := h.clock.Now()
	first := h.create(t, price.Draft{Model: model, Prices: list(10)})
	next := h.create(t, price.Draft{Model: model, EffectiveAt: now.Add(time.Hour), Prices: list(11)})
	own := h.create(t, price.Draft{Model: model, Book: "big-customer", EffectiveAt: now.Add(30 * time.Minute), Prices: list(8)})
	b, err := price.OpenBook(t.Context(), h.db, h.bus)
	if err != nil {
		t.Fatal(err)
	}
	b.Close() // it answers all the same, from memory
	for _, c := range []struct {
		book  string
		after time.Duration
		want  price.Version
	}{
		{price.Standard, 0, first},
		{price.Standard, time.Hour - time.Microsecond, first},
		{price.Standard, time.Hour, next},
		{"big-customer", 0, first},
		{"big-customer", 30 * time.Minute, own},
		{"big-customer", 48 * time.Hour, own},
		{"unknown-book", 2 * time.Hour, next},
	} {
		at := first.EffectiveAt.Add(c.after)
		if c.after >= time.Hour {
			at = next.EffectiveAt.Add(c.after - time.Hour)
		}
		got, err := b.Quote(ids.Nil, model, c.book, at, usage.Ordinary)
		if err != nil || got.Version != c.want.ID || got.Prices != c.want.Prices {
			t.Errorf("%s after %v: %v, %v; want %v", c.book, c.after, got, err, c.want.ID)
		}
	}
	if q, err := b.Quote(ids.Nil, unpriced, price.Standard, now, usage.Ordinary); !fault.Is(err, fault.NotFound) {
		t.Errorf("a model without a price is quoted: %v, %v", q, err)
	}
	if q, err := b.Quote(ids.Nil, model, price.Standard, first.EffectiveAt.Add(-time.Second), usage.Ordinary); !fault.Is(err, fault.NotFound) {
		t.Errorf("quoted before its first price: %v, %v", q, err)
	}
	if b.ByID(own.ID) == nil || b.ByID(ids.New()) != nil {
		t.Error("ByID")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = b.Quote(ids.Nil, model, "big-customer", now, usage.Ordinary) }); n != 0 {
		t.Errorf("a quote allocates %v times", n)
	}
}

func TestAChangeReachesEveryBook(t *testing.T) {
	h := open(t)
	model := h.model(t, "acme/llama", false)
	b, err := price.OpenBook(t.Context(), h.db, h.bus)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v := h.create(t, price.Draft{Model: model, Prices: list(10)})
	eventually(t, "the new version is quoted", func() bool {
		got, err := b.Quote(ids.Nil, model, price.Standard, time.Now(), usage.Ordinary)
		return err == nil && got.Version == v.ID
	})
	planned := h.create(t, price.Draft{Model: model, EffectiveAt: time.Now().Add(time.Hour), Prices: list(11)})
	eventually(t, "the planned version is known", func() bool { return b.ByID(planned.ID) != nil })
	if _, err := h.service.Cancel(t.Context(), tenants.System(), planned.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cancelled version is gone", func() bool { return b.ByID(planned.ID) == nil })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Whatever the schedule: book and database name the same version for any moment.
func TestBookAndDatabaseAgree(t *testing.T) {
	h := open(t)
	now := h.clock.Now().Truncate(time.Second)
	names := []string{price.Standard, "a", "b"}
	rapid.Check(t, func(rt *rapid.T) {
		model := h.model(t, "m"+ids.New().String(), false)
		for range rapid.IntRange(0, 8).Draw(rt, "versions") {
			d := price.Draft{Model: model, Book: rapid.SampledFrom(names).Draw(rt, "book"), Prices: list(10), Confirm: "x",
				EffectiveAt: now.Add(time.Duration(rapid.IntRange(1, 6).Draw(rt, "hour")) * time.Hour)}
			v, err := h.service.Create(context.Background(), tenants.System(), d)
			if err == nil && rapid.Bool().Draw(rt, "cancel") {
				_, err = h.service.Cancel(context.Background(), tenants.System(), v.ID)
			}
			if err != nil && !fault.Is(err, fault.Conflict) { // that moment is taken
				rt.Fatal(err)
			}
		}
		b, err := price.OpenBook(context.Background(), h.db, h.bus)
		if err != nil {
			rt.Fatal(err)
		}
		b.Close()
		for hour := range 8 {
			for _, name := range names {
				at := now.Add(time.Duration(hour)*time.Hour + time.Minute)
				quote, qerr := b.Quote(ids.Nil, model, name, at, usage.Ordinary)
				var v price.Version
				err := h.db.InTx(context.Background(), db.System(), func(tx pgx.Tx) (err error) {
					v, err = price.At(context.Background(), tx, model, name, at)
					return err
				})
				if quote.Version != v.ID || fault.Is(qerr, fault.NotFound) != fault.Is(err, fault.NotFound) {
					rt.Fatalf("%s at hour %d: book %v (%v), database %v (%v)", name, hour, quote.Version, qerr, v.ID, err)
				}
			}
		}
	})
}
