package rate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/rate"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

const patience = 60 * time.Second // a bound for what should take milliseconds

// world is a database and a log with a model for sale.
type world struct {
	t       testing.TB
	db      *db.DB
	bus     *bus.Bus
	log     *usagelog.Log
	model   ids.ID
	version ids.ID
	prices  usage.Prices
}

// prices in pico-USD; output tokens cost a nano each.
var prices = usage.Prices{usage.Input: 500, usage.Cached: 50, usage.CacheWrite: 600, usage.Output: 1000, usage.Reasoning: 2000,
	usage.Image: 700, usage.Audio: 800, usage.Requests: 5000}

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldOn(t, dbtest.New(t), dbtest.Bus(t))
}

func worldOn(t testing.TB, d *db.DB, b *bus.Bus) *world {
	t.Helper()
	w := &world{t: t, db: d, bus: b, model: ids.New(), prices: prices}
	w.openLog()
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, $2, 100000, 100000)", w.model, "m/"+w.model.String())
	w.version = w.price("standard", time.Now().Add(-24*time.Hour), prices)
	return w
}

func (w *world) openLog() {
	w.t.Helper()
	log, err := usagelog.Open(w.ctx(), usagelog.Config{Bus: w.bus, Clock: clock.System})
	if err != nil {
		w.t.Fatal(err)
	}
	w.log = log
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = log.Close(ctx)
	})
}

// ctx bounds a call that should take milliseconds: one of JetStream's without a deadline ends after five seconds, which a
// busy machine can take.
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

// number reads one number.
func (w *world) number(sql string, args ...any) (n int64) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(w.t.Context(), sql, args...).Scan(&n)
	})
	if err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (w *world) price(book string, from time.Time, p usage.Prices) ids.ID {
	id := ids.New()
	w.exec(`INSERT INTO price_versions (id, model_id, book, effective_at, input_pico, cached_pico, cache_write_pico, output_pico, reasoning_pico, image_pico, audio_pico, request_pico, created_by)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'test')`, id, w.model, book, from,
		int64(p[usage.Input]), int64(p[usage.Cached]), int64(p[usage.CacheWrite]), int64(p[usage.Output]), int64(p[usage.Reasoning]), int64(p[usage.Image]), int64(p[usage.Audio]), int64(p[usage.Requests]))
	return id
}

// customer is an organization with a balance, a capped key, and what its gateway may spend.
type customer struct {
	w                 *world
	org, project, key ids.ID
	balance, keyCap   ids.ID
	epoch             ids.ID
	budgets           []ids.ID
}

// customer makes one with credit. allotted is what the epoch may spend, in both scopes.
func (w *world) customer(epoch ids.ID, credit, allotted money.Nano) *customer {
	w.t.Helper()
	c := &customer{w: w, org: ids.New(), project: ids.New(), key: ids.New(), balance: ids.New(), keyCap: ids.New(), epoch: epoch}
	c.budgets = []ids.ID{c.balance, c.keyCap}
	slices.SortFunc(c.budgets, func(a, b ids.ID) int { return slices.Compare(a[:], b[:]) })
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, $2)", c.org, "org")
	for id, kind := range map[ids.ID]string{c.balance: "balance", c.keyCap: "cap"} {
		scope, scopeID := "org", c.org
		if kind == "cap" {
			scope, scopeID = "key", c.key
		}
		w.exec("INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano) VALUES ($1, $2, $3, $4, $5, 'total', 'epoch', $6)",
			c.org, id, kind, scope, scopeID, int64(credit))
	}
	if credit > 0 {
		err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
			_, _, err := ledger.Post(w.t.Context(), tx, ledger.Txn{Org: c.org, Kind: ledger.Topup, Key: "first",
				Entries: []ledger.Entry{ledger.Debit(ledger.Cash, credit), ledger.Credit(ledger.PrepaidPaid, credit)}})
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	c.allot(epoch, allotted)
	return c
}

// allot raises both scopes' allotments, as billing/credit does.
func (c *customer) allot(epoch ids.ID, n money.Nano) {
	for _, b := range c.budgets {
		c.w.exec(`INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano) VALUES ($1, $2, $3, $4)
			ON CONFLICT (org_id, budget_id, epoch_id) DO UPDATE SET allotted_nano = allotments.allotted_nano + excluded.allotted_nano`, c.org, b, epoch, int64(n))
		c.w.exec("UPDATE budgets SET outstanding_nano = outstanding_nano + $3 WHERE org_id = $1 AND id = $2", c.org, b, int64(n))
	}
}

// epochRow makes a gateway epoch.
func (w *world) epoch() ids.ID {
	id := ids.New()
	w.exec("INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms) VALUES ($1, 'test', 300000, 3600000)", id)
	return id
}

// event is a finished request with so many output tokens, charged in full.
func (c *customer) event(output int64) *usage.Event {
	now := time.Now()
	v := usage.Vector{usage.Input: 10, usage.Cached: 4, usage.Output: output, usage.Requests: 1}
	cost, ok := c.w.prices.Cost(v)
	if !ok {
		c.w.t.Fatal("impossible cost")
	}
	return &usage.Event{ID: ids.New(), Org: c.org, Project: c.project, Key: c.key, Model: c.w.model, PriceVersion: c.w.version, Epoch: c.epoch,
		Budgets: c.budgets, OrgBudget: c.balance, Attempts: []usage.Attempt{{ID: ids.New(), Unit: ids.New()}}, Usage: v,
		Raw: json.RawMessage(`{"completion_tokens":1}`), Charge: cost.Nano(), Ending: usage.Complete, Streamed: true, Dialect: "chat", Status: 200,
		StartedMS: now.UnixMilli() - 200, FirstTokenMS: now.UnixMilli() - 100, EndedMS: now.UnixMilli()}
}

// write appends events and waits until they are safe.
func (w *world) write(events ...*usage.Event) {
	w.t.Helper()
	for _, e := range events {
		w.log.Append(e)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.log.Flush(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// raw publishes a message as it is.
func (w *world) raw(data string) {
	w.t.Helper()
	if _, err := w.bus.JetStream().Publish(w.ctx(), usagelog.Subject, []byte(data)); err != nil {
		w.t.Fatal(err)
	}
}

// rater makes one with test sizes.
func (w *world) rater(c rate.Config) *rate.Rater {
	w.t.Helper()
	c.DB, c.Bus, c.Clock = w.db, w.bus, clock.System
	if c.Pace == 0 {
		c.Pace = time.Microsecond
	}
	r, err := rate.New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// start runs a rater until stop is called, or the test ends.
func (w *world) start(r *rate.Rater) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	w.t.Cleanup(stop)
	return stop
}

// position is how far the current log is rated, and where it ends.
func (w *world) position() (rated, end int64) {
	w.t.Helper()
	info, err := usagelog.Inspect(w.ctx(), w.bus.JetStream())
	if err != nil {
		w.t.Fatal(err)
	}
	return w.number("SELECT coalesce(max(seq), 0) FROM rater_offsets WHERE incarnation = $1", info.Incarnation), int64(info.Last)
}

// settled waits until the log is rated to its end.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("the log is rated to its end", func() bool { rated, end := w.position(); return rated >= end })
}

// rateAll runs a fresh rater to the end of the log.
func (w *world) rateAll() {
	w.t.Helper()
	stop := w.start(w.rater(rate.Config{}))
	w.settled()
	stop()
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("never: " + what)
		}
	}
}

func (w *world) await(happened <-chan struct{}) {
	w.t.Helper()
	select {
	case <-happened:
	case <-time.After(patience):
		w.t.Fatal("it never happened")
	}
}

// ann may decide about what was set aside.
var ann = tenants.Actor{Operator: true, Token: "ann"}

func (w *world) desk() *rate.Desk { return rate.NewDesk(w.db, clock.System) }

// waiting gives the events in quarantine that nobody decided about, oldest first.
func (w *world) waiting() (list []q.Quarantine) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		rows, err := tx.Query(w.t.Context(), "SELECT * FROM quarantine WHERE resolved_at IS NULL ORDER BY id")
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowToStructByName[q.Quarantine])
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// sound checks what must hold at any time, whatever happened.
func (w *world) sound() {
	w.t.Helper()
	for what, sql := range map[string]string{
		"ledger sums to zero":              "SELECT coalesce(sum(amount_nano), 0) FROM ledger_entries",
		"events and ledger agree":          "SELECT coalesce((SELECT sum(charged_nano + overrun_nano) FROM usage_events), 0) + coalesce((SELECT sum(amount_nano) FROM ledger_entries e JOIN ledger_txns t USING (org_id, day) WHERE t.id = e.txn_id AND t.kind = 'usage' AND account = 'revenue'), 0)",
		"events and rollups agree":         "SELECT coalesce((SELECT sum(charged_nano + overrun_nano + 1) FROM usage_events), 0) - coalesce((SELECT sum(charged_nano + overrun_nano + requests) FROM usage_rollups), 0)",
		"used is what was charged":         "SELECT count(*) FROM (SELECT b.id FROM budgets b LEFT JOIN allotments a ON a.org_id = b.org_id AND a.budget_id = b.id GROUP BY b.org_id, b.id, b.settled_nano, b.outstanding_nano HAVING b.settled_nano <> coalesce(sum(a.used_nano), 0) OR b.outstanding_nano <> coalesce(sum(a.allotted_nano - a.used_nano - a.returned_nano), 0)) x",
		"balances settle what was charged": "SELECT coalesce((SELECT sum(settled_nano) FROM budgets WHERE kind = 'balance'), 0) - coalesce((SELECT sum(charged_nano) FROM usage_events), 0)",
		"balances are their entries":       "SELECT count(*) FROM (SELECT org_id, account, sum(amount_nano) s FROM ledger_entries GROUP BY 1, 2) e FULL JOIN ledger_balances b USING (org_id, account) WHERE coalesce(s, 0) <> coalesce(b.amount_nano, 0)",
		"no rest behind a fence":           "SELECT count(*) FROM allotments a JOIN gateway_epochs e ON e.id = a.epoch_id WHERE e.fenced_at IS NOT NULL AND a.allotted_nano <> a.used_nano + a.returned_nano",
	} {
		if n := w.number(sql); n != 0 {
			w.t.Errorf("%s: off by %d", what, n)
		}
	}
}

// want compares numbers by name.
func (w *world) want(pairs ...any) {
	w.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := w.number(pairs[i].(string)); fmt.Sprint(got) != fmt.Sprint(pairs[i+1]) {
			w.t.Errorf("%s = %d, want %v", pairs[i], got, pairs[i+1])
		}
	}
}

func sumOf(events []*usage.Event) (n money.Nano) {
	for _, e := range events {
		n += e.Charge
	}
	return n
}
