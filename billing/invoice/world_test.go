package invoice_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/price"
	"millrace/billing/rate"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

const patience = 60 * time.Second // a bound for what should take milliseconds

var operator = tenants.Actor{Operator: true, Token: "ann"}

// world is an installation at a moment that the test chooses: requests, the rater that books them, and the invoices.
type world struct {
	t        testing.TB
	url      string
	db       *db.DB
	bus      *bus.Bus
	log      *usagelog.Log
	clock    *clock.Manual
	desk     *credit.Desk
	invoices *invoice.Service
	first    time.Time // the first month that is invoiced
}

// newWorld begins in the middle of the second month that is invoiced.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, url: dbtest.URL(t), bus: dbtest.Bus(t), clock: clock.NewManual(time.Now())}
	var err error
	if w.db, err = db.Open(t.Context(), w.url, db.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	log, err := usagelog.Open(w.ctx(), usagelog.Config{Bus: w.bus, Clock: clock.System})
	if err != nil {
		t.Fatal(err)
	}
	w.log = log
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = log.Close(ctx)
	})
	w.read("SELECT first_month FROM invoicing", nil, &w.first)
	w.at(w.first.AddDate(0, 1, 14))
	w.desk = credit.NewDesk(w.db, w.clock, w.bus)
	w.invoices = w.service()
	return w
}

func (w *world) service() *invoice.Service {
	return invoice.New(invoice.Config{DB: w.db, Bus: w.bus, Clock: w.clock, Notify: w.bus, Desk: w.desk, Seller: invoice.Seller{Name: "Millwright GmbH"}, PublicURL: "https://millrace.example"})
}

// month is the first day of the nth month that is invoiced, from 0.
func (w *world) month(n int) time.Time { return w.first.AddDate(0, n, 0) }

// at moves the clock to a moment.
func (w *world) at(t time.Time) { w.clock.Advance(t.Sub(w.clock.Now())) }

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql, args...)
		return err
	})
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// superuser is a connection that may do what no role of the program may.
func (w *world) superuser() *pgx.Conn {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), dbtest.Superuser(w.t, w.url))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// force runs a statement that no role of the program may run.
func (w *world) force(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.superuser().Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// lock keeps everybody from a table until it is released.
func (w *world) lock(table string) (release func()) {
	w.t.Helper()
	conn := w.superuser()
	if _, err := conn.Exec(w.t.Context(), "BEGIN; LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if _, err := conn.Exec(w.t.Context(), "ROLLBACK"); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) read(sql string, args []any, into ...any) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { return tx.QueryRow(w.t.Context(), sql, args...).Scan(into...) })
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) number(sql string, args ...any) (n int64) {
	w.t.Helper()
	w.read(sql, args, &n)
	return n
}

// model makes a model with one price version in the standard book.
func (w *world) model(name string, prices usage.Prices, terms price.Terms) price.Version {
	w.t.Helper()
	v := price.Version{ID: ids.New(), Model: ids.New(), Book: price.Standard, EffectiveAt: w.first.AddDate(-1, 0, 0), Prices: prices, Terms: terms}
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, $2, 4000000, 4000000)", v.Model, name)
	w.version(v)
	return v
}

func (w *world) version(v price.Version) {
	w.t.Helper()
	text, err := v.Terms.MarshalJSON()
	if err != nil {
		w.t.Fatal(err)
	}
	p := v.Prices
	w.exec(`INSERT INTO price_versions (id, model_id, book, effective_at, input_pico, cached_pico, cache_write_pico, output_pico, reasoning_pico, image_pico, audio_pico, request_pico, created_by, terms)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'test', $13)`, v.ID, v.Model, v.Book, v.EffectiveAt,
		int64(p[usage.Input]), int64(p[usage.Cached]), int64(p[usage.CacheWrite]), int64(p[usage.Output]), int64(p[usage.Reasoning]), int64(p[usage.Image]), int64(p[usage.Audio]), int64(p[usage.Requests]), text)
}

// customer is an organization with a credit limit, and what its gateway may spend.
type customer struct {
	w                 *world
	org, project, key ids.ID
	balance, epoch    ids.ID
}

func (w *world) customer(limit money.Nano) *customer {
	w.t.Helper()
	c := &customer{w: w, org: ids.New(), project: ids.New(), key: ids.New(), epoch: ids.New()}
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, 'Acme Rockets')", c.org)
	w.exec("INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms) VALUES ($1, 'test', 300000, 3600000)", c.epoch)
	c.must(w.desk.SetCreditLimit(w.t.Context(), tenants.System(), c.org, limit))
	c.grant(credit.Promotional, 1) // makes the balance
	w.read("SELECT id FROM budgets WHERE org_id = $1 AND kind = 'balance'", []any{c.org}, &c.balance)
	return c
}

func (c *customer) must(err error) {
	c.w.t.Helper()
	if err != nil {
		c.w.t.Fatal(err)
	}
}

func (c *customer) grant(kind credit.GrantKind, n money.Nano) {
	c.w.t.Helper()
	_, _, err := c.w.desk.Grant(c.w.t.Context(), tenants.System(), credit.GrantInput{Org: c.org, Kind: kind, Amount: n, Reason: "test", IdempotencyKey: ids.New().String()})
	c.must(err)
}

// allot hands money to the gateway, as billing/credit does.
func (c *customer) allot(n money.Nano) {
	c.w.exec(`INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano) VALUES ($1, $2, $3, $4)
		ON CONFLICT (org_id, budget_id, epoch_id) DO UPDATE SET allotted_nano = allotments.allotted_nano + excluded.allotted_nano`, c.org, c.balance, c.epoch, int64(n))
	c.w.exec("UPDATE budgets SET outstanding_nano = outstanding_nano + $3 WHERE org_id = $1 AND id = $2", c.org, c.balance, int64(n))
}

// event is a finished request that started at a moment.
func (c *customer) event(at time.Time, v price.Version, s usage.Service, u usage.Vector) *usage.Event {
	c.w.t.Helper()
	quote, _ := v.Quote(at, s)
	cost, ok := quote.Cost(u)
	if !ok {
		c.w.t.Fatal("impossible cost")
	}
	return &usage.Event{ID: ids.At(at), Org: c.org, Project: c.project, Key: c.key, Model: v.Model, PriceVersion: v.ID, Epoch: c.epoch, Budgets: []ids.ID{c.balance},
		OrgBudget: c.balance, Usage: u, Charge: cost.Nano(), Ending: usage.Complete, Service: s, Dialect: "chat", Status: 200,
		StartedMS: at.UnixMilli(), EndedMS: at.UnixMilli() + 900}
}

// book logs events and rates them to the end at the clock's moment. What they cost is allotted first, unless it is said not to.
func (w *world) book(events ...*usage.Event) {
	w.t.Helper()
	days := []time.Time{w.clock.Now(), w.clock.Now().AddDate(0, 0, 1)}
	for _, e := range events {
		days = append(days, ids.Day(e.ID))
		w.log.Append(e)
	}
	w.exec("SELECT ensure_day(d) FROM unnest($1::date[]) d", days) // the rater makes them at its start, beside its first batch
	if err := w.log.Flush(w.ctx()); err != nil {
		w.t.Fatal(err)
	}
	r, err := rate.New(rate.Config{DB: w.db, Bus: w.bus, Clock: w.clock, Pace: time.Microsecond})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	info, err := usagelog.Inspect(w.ctx(), w.bus.JetStream())
	if err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); w.number("SELECT coalesce(max(seq), 0) FROM rater_offsets WHERE incarnation = $1", info.Incarnation) < int64(info.Last); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("the log was never rated to its end")
		}
	}
	if n := w.number("SELECT count(*) FROM quarantine"); n != 0 {
		var why string
		w.read("SELECT min(reason) FROM quarantine", nil, &why)
		w.t.Fatalf("%d events in quarantine: %s", n, why)
	}
}

// paid allots what the events cost and books them.
func (c *customer) paid(events ...*usage.Event) {
	c.w.t.Helper()
	sum := money.Nano(1)
	for _, e := range events {
		sum += e.Charge
	}
	c.allot(sum)
	c.w.book(events...)
}

// turn lets the worker do what is due.
func (w *world) turn() {
	w.t.Helper()
	if err := w.invoices.Turn(w.ctx(), true); err != nil {
		w.t.Fatal(err)
	}
}

// invoice gives a month's invoice with its lines; nil = there is none.
func (c *customer) invoice(month time.Time) *invoice.Invoice {
	c.w.t.Helper()
	list, err := c.w.invoices.List(c.w.t.Context(), operator, c.org, 0, ids.Nil)
	c.must(err)
	i := slices.IndexFunc(list, func(i invoice.Invoice) bool { return i.Month.Equal(month) })
	if i < 0 {
		return nil
	}
	out, err := c.w.invoices.Get(c.w.t.Context(), operator, c.org, list[i].ID)
	c.must(err)
	return &out
}

// balance reads an account of the ledger.
func (c *customer) account(a ledger.Account) money.Nano {
	c.w.t.Helper()
	return money.Nano(c.w.number("SELECT coalesce(sum(amount_nano), 0) FROM ledger_entries WHERE org_id = $1 AND account = $2", c.org, string(a)))
}

// sound checks what must hold at any time.
func (w *world) sound() {
	w.t.Helper()
	for what, sql := range map[string]string{
		"ledger sums to zero": "SELECT coalesce(sum(amount_nano), 0) FROM ledger_entries",
		"balances allow what the ledger says": `SELECT count(*) FROM (SELECT o.org_id FROM orgs o JOIN budgets b ON b.org_id = o.org_id AND b.kind = 'balance'
			LEFT JOIN ledger_entries e ON e.org_id = o.org_id AND e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable')
			GROUP BY o.org_id, b.cap_nano, b.settled_nano HAVING b.cap_nano - b.settled_nano - o.credit_limit_nano <> -coalesce(sum(e.amount_nano), 0)) x`,
		"balances are their entries": "SELECT count(*) FROM (SELECT org_id, account, sum(amount_nano) s FROM ledger_entries GROUP BY 1, 2) e FULL JOIN ledger_balances b USING (org_id, account) WHERE coalesce(s, 0) <> coalesce(b.amount_nano, 0)",
		"final invoices are what is receivable beside usage": `SELECT coalesce((SELECT sum(amount_nano) FROM ledger_entries e JOIN ledger_txns t ON t.org_id = e.org_id AND t.day = e.day AND t.id = e.txn_id WHERE t.kind <> 'usage' AND e.account = 'receivable'), 0)
			- coalesce((SELECT sum((total_cents - paid_cents - relieved_cents - given_up_cents) * 10000000 - receivable_nano) FROM invoices WHERE number IS NOT NULL), 0)`,
	} {
		if n := w.number(sql); n != 0 {
			w.t.Errorf("%s: off by %d", what, n)
		}
	}
}

// try runs a statement that should fail, and gives its error.
func (w *world) try(sql string) error {
	return w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql)
		return err
	})
}

// post writes to the customer's ledger past everybody.
func (c *customer) post(t ledger.Txn) {
	c.w.t.Helper()
	t.Org = c.org
	c.must(c.w.db.InTx(c.w.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := ledger.PostMany(c.w.t.Context(), tx, []ledger.Txn{t})
		return err
	}))
}

// copied adds an event like the customer's first, of another moment, transaction and number of output tokens, at a dollar each.
func (c *customer) copied(at time.Time, txn ids.ID, dollars int64) {
	c.w.exec("SELECT ensure_day($1)", ids.Day(ids.At(at)))
	c.w.exec(`INSERT INTO usage_events SELECT (jsonb_populate_record(e, jsonb_build_object('id', $2::uuid, 'day', $3::date, 'txn_id', $4::uuid, 'output_tokens', $5::bigint,
		'charged_nano', $5::bigint * 1000000000))).* FROM usage_events e WHERE e.org_id = $1 ORDER BY e.id LIMIT 1`, c.org, ids.At(at), ids.Day(ids.At(at)), txn, dollars)
	c.w.exec("UPDATE budgets SET settled_nano = settled_nano + $2 WHERE org_id = $1 AND kind = 'balance'", c.org, dollars*int64(money.NanoPerUSD))
}
