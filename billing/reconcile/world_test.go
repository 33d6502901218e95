package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/rate"
	"millrace/billing/reconcile"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
)

const (
	patience = 20 * time.Second
	usd      = 1_000_000_000
)

// world is a customer who calls one model, served by a placed unit and an attached one.
type world struct {
	t                            *testing.T
	db                           *db.DB
	bus                          *bus.Bus
	log                          *usagelog.Log
	org, project, key            ids.ID
	model, price, epoch, balance ids.ID
	host, placed, attached       ids.ID
	stop                         func()
	now                          time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), bus: dbtest.Bus(t), now: time.Now().Add(-time.Minute)}
	for _, id := range []*ids.ID{&w.org, &w.project, &w.key, &w.model, &w.price, &w.epoch, &w.balance, &w.host, &w.placed, &w.attached} {
		*id = ids.New()
	}
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, 'customer')", w.org)
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, 'model', 100000, 1000)", w.model)
	w.exec(`INSERT INTO price_versions (id, model_id, effective_at, input_pico, cached_pico, cache_write_pico, output_pico, reasoning_pico, image_pico, audio_pico, request_pico, created_by)
		VALUES ($1, $2, now() - interval '1 day', 1000, 100, 0, 5000, 5000, 0, 0, 0, 'test')`, w.price, w.model)
	w.exec("INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms, started_at) VALUES ($1, 'test', 1000, 1000, now() - interval '1 hour')", w.epoch)
	w.exec("INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano, outstanding_nano) VALUES ($1, $2, 'balance', 'org', $1, 'total', 'epoch', $3, $3)", w.org, w.balance, usd)
	w.exec("INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano) VALUES ($1, $2, $3, $4)", w.org, w.balance, w.epoch, usd)
	w.in(func(tx pgx.Tx) error {
		_, _, err := ledger.Post(t.Context(), tx, ledger.Txn{Org: w.org, Kind: ledger.Topup, Entries: []ledger.Entry{ledger.Debit(ledger.Cash, usd), ledger.Credit(ledger.PrepaidPaid, usd)}})
		return err
	})
	w.exec("INSERT INTO hosts (id, name, seen_at) VALUES ($1, 'host', now() + interval '1 hour')", w.host)
	w.exec("INSERT INTO units (id, name, model_id, engine, host_id, upstream_model) VALUES ($1, 'placed', $2, 'sim', $3, 'm')", w.placed, w.model, w.host)
	w.exec("INSERT INTO units (id, name, model_id, engine, base_url, upstream_model) VALUES ($1, 'attached', $2, 'vllm', 'http://127.0.0.1:1', 'm')", w.attached, w.model)
	log, err := usagelog.Open(t.Context(), usagelog.Config{Bus: w.bus, Clock: clock.System})
	if err != nil {
		t.Fatal(err)
	}
	w.log = log
	rater, err := rate.New(rate.Config{DB: w.db, Bus: w.bus, Clock: clock.System, Pace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); rater.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	t.Cleanup(func() { w.stop(); _ = log.Close(context.Background()) })
	return w
}

func (w *world) in(fn func(tx pgx.Tx) error) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), db.System(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.in(func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql, args...)
		return err
	})
}

// event is a request of 100 prompt tokens that was served by the unit with so many output tokens.
func (w *world) event(unit ids.ID, output int64, ending usage.Ending) *usage.Event {
	v := usage.Vector{usage.Input: 60, usage.Cached: 40, usage.Output: output, usage.Requests: 1}
	charge := money.Pico(60*1000 + 40*100 + output*5000).Nano()
	return &usage.Event{ID: ids.New(), Org: w.org, Project: w.project, Key: w.key, Model: w.model, PriceVersion: w.price, Epoch: w.epoch,
		Budgets: []ids.ID{w.balance}, OrgBudget: w.balance, Attempts: []usage.Attempt{{ID: ids.New(), Unit: unit}}, Usage: v, Charge: charge,
		Ending: ending, Dialect: "chat", Status: 200, StartedMS: w.now.UnixMilli() - 1000, EndedMS: w.now.UnixMilli()}
}

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

// journal is what the host's agent says of an attempt.
func (w *world) journal(attempt ids.ID, kind string, prompt, generated int64, ending string) {
	w.t.Helper()
	w.exec(`INSERT INTO attempt_journal (attempt_id, host_id, unit_id, kind, prompt, cached, generated, handed_over, ending, started_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, 0, $6, $6, $7, $8, $9)`, attempt, w.host, w.placed, kind, prompt, generated, ending, w.now.Add(-time.Second), w.now)
}

// run compares, without waiting for what will not come.
func (w *world) run() *reconcile.Report {
	w.t.Helper()
	r, err := reconcile.Run(w.t.Context(), reconcile.Config{DB: w.db, Bus: w.bus, Clock: clock.System, Settle: time.Nanosecond})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// find gives the line of a name and class; a missing one is empty.
func find(r *reconcile.Report, name, class string) (l reconcile.Line) {
	for _, l := range r.Lines {
		if l.Name == name && l.Class == class {
			return l
		}
	}
	return l
}
