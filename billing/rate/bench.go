package rate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"

	"github.com/jackc/pgx/v5"
)

// BenchConfig says what to rate: synthetic requests of some customers, in a database and a log made for it. Both keep
// what the benchmark writes.
type BenchConfig struct {
	DB        *db.DB
	Bus       *bus.Bus
	Events    int // 0 = 200,000
	Customers int // 0 = 200, each with a balance and a key's cap
	Lanes     int // 0 = the rater's default
	Batch     int // 0 = the rater's default
}

// Report is what a benchmark of the rater measured.
type Report struct {
	Events      int
	Customers   int
	Wall        time.Duration
	Process     time.Duration // CPU of this process
	Database    time.Duration // CPU of PostgreSQL's processes; 0 when they are not on this machine
	PerSecond   int64
	CPUPerEvent time.Duration // of both together
}

// String is one line for people.
func (r Report) String() string {
	return fmt.Sprintf("%d events of %d customers in %v: %d events/s, CPU %v an event (%v here, %v in PostgreSQL)",
		r.Events, r.Customers, r.Wall.Round(time.Millisecond), r.PerSecond, r.CPUPerEvent.Round(100*time.Nanosecond),
		r.Process.Round(time.Millisecond), r.Database.Round(time.Millisecond))
}

const (
	defaultBenchEvents    = 200_000
	defaultBenchCustomers = 200
	benchCredit           = 1_000_000_000 * money.NanoPerUSD
	benchPoll             = time.Millisecond
)

// Bench writes events into the log, then measures how long the rater takes to book them.
func Bench(ctx context.Context, c BenchConfig) (Report, error) {
	if c.DB == nil || c.Bus == nil {
		return Report{}, errors.New("rate: BenchConfig needs DB and Bus")
	}
	setDefault(&c.Events, defaultBenchEvents)
	setDefault(&c.Customers, defaultBenchCustomers)
	b := &bench{cfg: c, model: ids.New(), price: ids.New(), epoch: ids.New()}
	if err := c.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error { return b.seed(ctx, tx) }); err != nil {
		return Report{}, fmt.Errorf("rate: seed the benchmark: %w", err)
	}
	end, err := b.fill(ctx)
	if err != nil {
		return Report{}, err
	}
	return b.measure(ctx, end)
}

type bench struct {
	cfg                 BenchConfig
	model, price, epoch ids.ID
	customers           []benchCustomer
}

type benchCustomer struct {
	org, project, key, balance, cap ids.ID
}

// benchPrices in pico-USD.
var benchPrices = usage.Prices{usage.Input: 150_000, usage.Cached: 15_000, usage.Output: 600_000, usage.Reasoning: 600_000}

func (b *bench) seed(ctx context.Context, tx pgx.Tx) error {
	batch := &pgx.Batch{}
	batch.Queue("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, $2, 131072, 65536)", b.model, "bench/"+b.model.String())
	batch.Queue(`INSERT INTO price_versions (id, model_id, effective_at, input_pico, cached_pico, cache_write_pico, output_pico, reasoning_pico,
		image_pico, audio_pico, request_pico, created_by) VALUES ($1, $2, now() - interval '1 day', $3, $4, 0, $5, $6, 0, 0, 0, 'bench')`,
		b.price, b.model, int64(benchPrices[usage.Input]), int64(benchPrices[usage.Cached]), int64(benchPrices[usage.Output]), int64(benchPrices[usage.Reasoning]))
	batch.Queue("INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms) VALUES ($1, 'bench', 300000, 3600000)", b.epoch)
	for range b.cfg.Customers {
		c := benchCustomer{org: ids.New(), project: ids.New(), key: ids.New(), balance: ids.New(), cap: ids.New()}
		b.customers = append(b.customers, c)
		batch.Queue("INSERT INTO orgs (org_id, name) VALUES ($1, 'bench')", c.org)
		for id, of := range map[ids.ID]struct {
			kind, scope string
			id          ids.ID
		}{c.balance: {"balance", "org", c.org}, c.cap: {"cap", "key", c.key}} {
			batch.Queue(`INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano, outstanding_nano)
				VALUES ($1, $2, $3, $4, $5, 'total', 'epoch', $6, $6)`, c.org, id, of.kind, of.scope, of.id, int64(benchCredit))
			batch.Queue("INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano) VALUES ($1, $2, $3, $4)", c.org, id, b.epoch, int64(benchCredit))
		}
	}
	// As autovacuum does within a minute: a database in service knows its tables.
	batch.Queue("RESET ROLE")
	batch.Queue("ANALYZE orgs, budgets, allotments, models, price_versions, gateway_epochs")
	return tx.SendBatch(ctx, batch).Close()
}

// fill writes the events and gives the log's last sequence.
func (b *bench) fill(ctx context.Context) (uint64, error) {
	log, err := usagelog.Open(ctx, usagelog.Config{Bus: b.cfg.Bus, Clock: clock.System})
	if err != nil {
		return 0, err
	}
	defer log.Close(ctx)
	for i := range b.cfg.Events {
		done := log.Append(b.event(i))
		if i%1000 == 0 {
			select {
			case <-done:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
	if err := log.Flush(ctx); err != nil {
		return 0, err
	}
	info, err := usagelog.Inspect(ctx, b.cfg.Bus.JetStream())
	return info.Last, err
}

func (b *bench) event(i int) *usage.Event {
	c := &b.customers[i%len(b.customers)]
	now := time.Now().UnixMilli()
	v := usage.Vector{usage.Input: int64(100 + i%900), usage.Cached: int64(i % 512), usage.Output: int64(20 + i%300), usage.Requests: 1}
	cost, _ := benchPrices.Cost(v)
	budgets := []ids.ID{c.balance, c.cap}
	if compareIDs(c.cap, c.balance) < 0 {
		budgets[0], budgets[1] = c.cap, c.balance
	}
	return &usage.Event{ID: ids.New(), Org: c.org, Project: c.project, Key: c.key, Model: b.model, PriceVersion: b.price, Epoch: b.epoch,
		Budgets: budgets, OrgBudget: c.balance, Attempts: []usage.Attempt{{ID: ids.New(), Unit: b.model}}, Usage: v,
		Raw:    []byte(`{"prompt_tokens":612,"completion_tokens":120,"total_tokens":732,"prompt_tokens_details":{"cached_tokens":512}}`),
		Charge: cost.Nano(), Ending: usage.Complete, Streamed: true, Dialect: "chat", Status: 200,
		StartedMS: now - 1000, FirstTokenMS: now - 900, EndedMS: now}
}

func (b *bench) measure(ctx context.Context, end uint64) (Report, error) {
	rater, err := New(Config{DB: b.cfg.DB, Bus: b.cfg.Bus, Clock: clock.System, Lanes: b.cfg.Lanes, Batch: b.cfg.Batch, Logger: slog.Default()})
	if err != nil {
		return Report{}, err
	}
	var database string
	err = b.cfg.DB.InTx(ctx, db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT current_database()").Scan(&database)
	})
	if err != nil {
		return Report{}, fmt.Errorf("rate: %w", err)
	}
	before, start := cpuTimes(database), time.Now()
	run, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); rater.Run(run) }()
	for rater.mark.reached() < end && ctx.Err() == nil {
		sleep(ctx, benchPoll)
	}
	wall, after := time.Since(start), cpuTimes(database)
	stop()
	<-done
	if ctx.Err() != nil {
		return Report{}, ctx.Err()
	}
	r := Report{Events: b.cfg.Events, Customers: b.cfg.Customers, Wall: wall, Process: after.process - before.process, Database: after.postgres - before.postgres}
	r.PerSecond = int64(float64(r.Events) / wall.Seconds())
	r.CPUPerEvent = (r.Process + r.Database) / time.Duration(r.Events)
	return r, nil
}
