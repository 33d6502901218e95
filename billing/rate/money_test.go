package rate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/rate"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

// What a customer pays is the least of cost, what the gateway charged, and what is left in every scope.
func TestTheOperatorBearsWhatIsAbove(t *testing.T) {
	const allotted = 1_000_000
	cost := int64(1000 + 5 + 5) // of event(1000): output, request, input; the cached part rounds away
	for name, c := range map[string]struct {
		change  func(w *world, c *customer, e *usage.Event)
		charged int64
	}{
		"enough":                      {func(*world, *customer, *usage.Event) {}, cost},
		"the gateway charged less":    {func(_ *world, _ *customer, e *usage.Event) { e.Charge = 700 }, 700},
		"the gateway charged more":    {func(_ *world, _ *customer, e *usage.Event) { e.Charge = 10_000 }, cost},
		"the gateway charged nothing": {func(_ *world, _ *customer, e *usage.Event) { e.Charge = 0 }, 0},
		"one scope has less": {func(w *world, c *customer, _ *usage.Event) {
			w.exec("UPDATE allotments SET returned_nano = allotted_nano - 400 WHERE budget_id = $1", c.keyCap)
			w.exec("UPDATE budgets SET outstanding_nano = 400 WHERE id = $1", c.keyCap)
		}, 400},
		"no allotment in a scope":  {func(_ *world, _ *customer, e *usage.Event) { e.Budgets = append(e.Budgets[:2:2], ids.New()) }, 0},
		"no scope at all":          {func(_ *world, _ *customer, e *usage.Event) { e.Budgets, e.OrgBudget = nil, ids.Nil }, 0},
		"a scope named twice":      {func(_ *world, _ *customer, e *usage.Event) { e.Budgets = append(e.Budgets[:2:2], e.Budgets[0]) }, cost},
		"scopes in any order":      {func(_ *world, _ *customer, e *usage.Event) { e.Budgets = []ids.ID{e.Budgets[1], e.Budgets[0]} }, cost},
		"another customer's scope": {func(w *world, c *customer, e *usage.Event) { e.Budgets = w.customer(c.epoch, usd, usd).budgets }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			customer := w.customer(w.epoch(), 10*usd, allotted)
			e := customer.event(1000)
			c.change(w, customer, e)
			w.write(e)
			w.rateAll()
			w.want("SELECT charged_nano FROM usage_events", c.charged, "SELECT overrun_nano FROM usage_events", cost-c.charged,
				"SELECT coalesce(sum(amount_nano), 0) FROM ledger_balances WHERE account = 'overrun'", cost-c.charged)
			w.sound()
		})
	}
}

func TestWhatEndsInNothingCostsNothing(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, usd)
	e := c.event(1000)
	e.Ending, e.Status = usage.FailedUnbilled, 502
	w.write(e)
	w.rateAll()
	w.want("SELECT charged_nano + overrun_nano FROM usage_events", 0, "SELECT errors FROM usage_rollups", 1,
		"SELECT count(*) FROM usage_events WHERE txn_id IS NULL", 1, "SELECT count(*) FROM ledger_txns WHERE kind = 'usage'", 0)
	w.sound()
}

// Prices that were not in effect at the request's start never cost the customer more than those that were.
func TestAWrongPriceIsCorrectedInTheCustomersFavour(t *testing.T) {
	times := func(n money.Pico) (p usage.Prices) {
		for c := range p {
			p[c] = prices[c] * n
		}
		return p
	}
	start := time.Now().Add(-200 * time.Millisecond)
	cost := int64(1000 + 5 + 5)
	for name, c := range map[string]struct {
		pin      func(w *world, c *customer) ids.ID
		cost     int64
		repriced int64
	}{
		"right":                        {func(w *world, _ *customer) ids.ID { return w.version }, cost, 0},
		"unknown":                      {func(*world, *customer) ids.ID { return ids.New() }, cost, 1},
		"none":                         {func(*world, *customer) ids.ID { return ids.Nil }, cost, 1},
		"not yet in effect and dearer": {func(w *world, _ *customer) ids.ID { return w.price("standard", start.Add(time.Hour), times(2)) }, cost, 1},
		"not yet in effect, no cost":   {func(w *world, _ *customer) ids.ID { return w.price("standard", start.Add(time.Hour), times(0)) }, 0, 1},
		"cancelled and dearer": {func(w *world, _ *customer) ids.ID {
			id := w.price("standard", start.Add(time.Hour), times(3))
			w.exec("UPDATE price_versions SET cancelled_at = now() WHERE id = $1", id)
			return id
		}, cost, 1},
		"replaced by a cheaper one": {func(w *world, _ *customer) ids.ID {
			w.price("standard", start.Add(-time.Hour), times(0))
			return w.version
		}, 0, 1},
		"replaced by a dearer one": {func(w *world, _ *customer) ids.ID {
			w.price("standard", start.Add(-time.Hour), times(4))
			return w.version
		}, cost, 1},
		"of a book the customer has": {func(w *world, c *customer) ids.ID {
			w.exec("UPDATE orgs SET price_book = 'friends' WHERE org_id = $1", c.org)
			return w.price("friends", start.Add(-time.Hour), times(0))
		}, 0, 0},
		"by the contract that holds": {func(w *world, c *customer) ids.ID {
			id := w.price("deal", start.Add(-time.Hour), times(2))
			c.contract("deal", start.Add(-time.Minute), start.Add(time.Minute))
			return id
		}, 2 * cost, 0},
		"not by the contract that holds": {func(w *world, c *customer) ids.ID {
			w.price("deal", start.Add(-time.Hour), times(0))
			c.contract("deal", start.Add(-time.Minute), start.Add(time.Minute))
			return w.version
		}, 0, 1},
		"by a contract that is over": {func(w *world, c *customer) ids.ID {
			id := w.price("deal", start.Add(-time.Hour), times(3))
			c.contract("deal", start.Add(-time.Hour), start.Add(-time.Minute))
			return id
		}, cost, 1},
		"of another model": {func(w *world, _ *customer) ids.ID {
			own := w.model
			w.model = ids.New()
			w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, 'other', 1000, 1000)", w.model)
			id := w.price("standard", start.Add(-time.Hour), times(0))
			w.model = own
			return id
		}, cost, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			customer := w.customer(w.epoch(), 10*usd, usd)
			e := customer.event(1000)
			e.PriceVersion, e.Charge = c.pin(w, customer), 1_000_000
			w.write(e)
			w.rateAll()
			w.want("SELECT charged_nano FROM usage_events", c.cost, "SELECT overrun_nano FROM usage_events", 0,
				"SELECT repriced::int FROM usage_events", c.repriced)
			w.sound()
		})
	}
}

// The rater prices by the prompt's length, the start's time of the week and the service tier, as the gateway did.
func TestTermsAreRated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, usd)
	w.exec(`INSERT INTO price_versions SELECT gen_random_uuid(), model_id, book, effective_at + interval '1 hour', input_pico, cached_pico, cache_write_pico, output_pico,
		reasoning_pico, image_pico, audio_pico, request_pico, note, created_by, created_at, NULL,
		'{"tiers":[{"above":14,"pico":{"input":1000,"cached":100,"output":3000,"request":5000}}],"windows":[{"from":"00:00","to":"24:00","percent":50}],"priority_percent":300}'
		FROM price_versions`)
	var terms ids.ID
	err := w.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), "SELECT id FROM price_versions WHERE terms <> '{}'").Scan(&terms)
	})
	if err != nil {
		t.Fatal(err)
	}
	send := func(change func(*usage.Event)) string {
		e := c.event(1000)
		e.PriceVersion, e.Charge = terms, 1_000_000
		change(e)
		w.write(e)
		w.rateAll()
		return "SELECT charged_nano FROM usage_events WHERE id = '" + e.ID.String() + "'"
	}
	w.want(send(func(*usage.Event) {}), (10*250+4*25+1000*500+2500)/1000,
		send(func(e *usage.Event) { e.Usage[usage.Input]++ }), (11*500+4*50+1000*1500+2500)/1000,
		send(func(e *usage.Event) { e.Service = usage.Priority }), (10*750+4*75+1000*1500+7500)/1000,
		send(func(e *usage.Event) { e.Service = usage.Batch }), (10*250+4*25+1000*500+2500)/1000,
		"SELECT count(*) FROM usage_events WHERE service_tier = 'priority'", 1, "SELECT count(*) FROM usage_events WHERE service_tier = 'batch'", 1,
		"SELECT count(*) FROM usage_events WHERE repriced", 0)
	w.sound()
}

// contract gives the customer a book for a while.
func (c *customer) contract(book string, from, to time.Time) {
	c.w.exec("INSERT INTO price_contracts (org_id, id, book, starts_at, ends_at, created_by, created_at) VALUES ($1, $2, $3, $4, $5, 'test', $4)", c.org, ids.New(), book, from, to)
}

func TestAModelWithoutAnyPriceInEffectCostsNothing(t *testing.T) {
	w := newWorld(t)
	w.model = ids.New()
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, 'unpriced', 100000, 1000)", w.model)
	c := w.customer(w.epoch(), 10*usd, usd)
	w.write(c.event(1000))
	w.rateAll()
	w.want("SELECT charged_nano + overrun_nano FROM usage_events WHERE repriced", 0)
	w.sound()
}

// A gateway whose epoch the database does not know: it is an older copy. The customer pays as far as his budgets go.
func TestEventsOfALostEpochAreChargedUpToTheBudgets(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10_000, 2_000) // other gateways have 2,000 of 10,000
	c.epoch = ids.New()
	first, second, third := c.event(5000), c.event(2500), c.event(2500)
	first.Budgets = append(first.Budgets[:2:2], ids.New()) // and a budget that this database has never had
	w.write(first, second, third)
	w.rateAll()
	w.want("SELECT sum(charged_nano) FROM usage_events", 8000, "SELECT sum(overrun_nano) FROM usage_events", int64(sumOf([]*usage.Event{first, second, third}))-8000,
		"SELECT count(*) FROM gateway_epochs WHERE voided_at IS NOT NULL AND dead_at IS NOT NULL AND fenced_at IS NULL", 1,
		"SELECT sum(outstanding_nano) FROM budgets", 2*2000)
	w.sound()
	w.fenced(w.fencer(), c.epoch)
	w.want("SELECT sum(outstanding_nano) FROM budgets", 2*2000)
	late := c.event(10)
	w.write(late)
	w.rateAll()
	w.want("SELECT overrun_nano FROM usage_events WHERE id = '"+late.ID.String()+"'", int64(late.Charge))
	w.sound()
}

func TestAVoidedEpochIsFencedByTimeSinceItWasVoided(t *testing.T) {
	w := newWorld(t)
	epoch := w.epoch()
	c := w.customer(epoch, 10*usd, 500)
	if n, err := rate.VoidAll(t.Context(), w.db); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	f := w.fencer()
	w.silent(epoch, longest+time.Hour) // the last heartbeat this database saw; its gateway lived on
	if w.look(f); w.number("SELECT count(*) FROM gateway_epochs WHERE dead_at IS NOT NULL") != 0 {
		t.Fatal("a gateway that may live was declared dead")
	}
	w.write(c.event(1000)) // more than this database knows it was allotted
	w.rateAll()
	w.want("SELECT charged_nano FROM usage_events", 1010, "SELECT overrun_nano FROM usage_events", 0)
	w.exec("UPDATE gateway_epochs SET voided_at = clock_timestamp() - $1::bigint * interval '1 ms'", (longest + time.Second).Milliseconds())
	w.fenced(f, epoch)
	w.want("SELECT sum(outstanding_nano) FROM budgets", 0)
	w.sound()
}

// The database is replaced by a copy that was taken earlier: what it lacks is rated again, and nothing twice.
func TestAnOlderDatabaseCatchesUp(t *testing.T) {
	url, bus := dbtest.URL(t), dbtest.Bus(t)
	d, err := db.Open(t.Context(), url, db.Options{MaxConns: 5})
	if err != nil {
		t.Fatal(err)
	}
	w := worldOn(t, d, bus)
	c := w.customer(w.epoch(), 10*usd, 5_000)
	var all []*usage.Event
	add := func(n int) {
		var events []*usage.Event
		for i := range n {
			events = append(events, c.event(int64(100+i)))
		}
		w.write(events...)
		all = append(all, events...)
	}
	add(20)
	w.rateAll()
	d.Close()
	older := copyDatabase(t, url)
	if w.db, err = db.Open(t.Context(), url, db.Options{MaxConns: 5}); err != nil {
		t.Fatal(err)
	}
	c.allot(c.epoch, 5*usd) // the copy does not know of this
	add(30)
	second := w.epoch()
	c.allot(second, 2*usd) // nor of this epoch
	c.epoch = second
	add(40)
	w.rateAll()
	w.sound()
	before := w.number("SELECT sum(charged_nano) FROM usage_events")
	w.db.Close()

	if w.db, err = db.Open(t.Context(), older, db.Options{MaxConns: 5}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	w.rateAll()
	w.want("SELECT count(*) FROM usage_events", len(all), "SELECT sum(charged_nano) FROM usage_events", before, "SELECT sum(overrun_nano) FROM usage_events", 0,
		"SELECT count(*) FROM gateway_epochs WHERE voided_at IS NOT NULL", 2)
	w.sound()
}

// copyDatabase copies a database that nobody is connected to.
func copyDatabase(t *testing.T, url string) (copied string) {
	t.Helper()
	copied = dbtest.Empty(t)
	from, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	to, err := pgx.ParseConfig(copied)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), dbtest.Superuser(t, dbtest.Empty(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.WithoutCancel(t.Context()))
	for _, sql := range []string{"DROP DATABASE " + to.Database, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER %s", to.Database, from.Database, to.User)} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return copied
}

// A log that was rolled back puts the position behind what was rated, but the database is no older copy.
func TestALogThatWasRolledBackVoidsNothing(t *testing.T) {
	w := newWorld(t)
	c := w.customer(w.epoch(), 10*usd, 5*usd)
	w.write(c.event(1))
	w.write(c.event(2))
	w.rateAll()
	stream, err := w.bus.JetStream().Stream(t.Context(), bus.LogStream)
	if err != nil {
		t.Fatal(err)
	}
	same := stream.CachedInfo().Config
	if err := w.bus.JetStream().DeleteStream(t.Context(), bus.LogStream); err != nil {
		t.Fatal(err)
	}
	if _, err := w.bus.JetStream().CreateStream(t.Context(), same); err != nil {
		t.Fatal(err)
	}
	stop := w.start(w.rater(rate.Config{}))
	w.eventually("the position went back", func() bool { return w.number("SELECT max(seq) FROM rater_offsets") == 0 })
	stop() // before it rated anything of the new log
	w.write(c.event(3))
	w.rateAll()
	w.want("SELECT count(*) FROM gateway_epochs WHERE voided_at IS NOT NULL", 0, "SELECT count(*) FROM usage_events", 3)
	w.sound()
}
