package margin_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/margin"
	"millrace/billing/report"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

var now = time.Date(2026, time.November, 20, 13, 30, 0, 0, time.UTC)

type world struct {
	*margin.Service
	t     *testing.T
	db    *db.DB
	clock *clock.Manual
	root  tenants.Actor
	model ids.ID
	orgs  [2]ids.ID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), clock: clock.NewManual(now), root: tenants.System(), model: ids.New(), orgs: [2]ids.ID{ids.New(), ids.New()}}
	w.Service = margin.New(w.db, w.clock, report.New(w.db, w.clock))
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, 'acme/llama', 100000, 100000)", w.model)
	for i, id := range w.orgs {
		w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, $2)", id, []string{"a", "b"}[i])
	}
	return w
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

func (w *world) host(gpus int, simulated bool) ids.ID {
	id, observed := ids.New(), `{"gpus": [], "simulated": false}`
	if simulated {
		observed = `{"gpus": [], "simulated": true}`
	}
	w.exec("INSERT INTO hosts (id, name, provider, region, observed, joined_at) VALUES ($1::uuid, $1::uuid::text, 'own', 'ber', jsonb_set($2::jsonb, '{gpus}', (SELECT coalesce(jsonb_agg('{}'::jsonb), '[]') FROM generate_series(1, $3::int))), $4)",
		id, observed, gpus, now.AddDate(0, 0, -1))
	return id
}

func (w *world) unit(host ids.ID, engine string) ids.ID {
	id := ids.New()
	w.exec("INSERT INTO units (id, name, model_id, engine, host_id, upstream_model, created_at) VALUES ($1::uuid, $1::uuid::text, $2, $3, $4, 'x', $5)", id, w.model, engine, host, now.AddDate(0, 0, -1))
	return id
}

// serve books a request that ran on a unit for some time.
func (w *world) serve(org, unit ids.ID, at time.Time, ran time.Duration, input, output, charged int64) {
	w.t.Helper()
	id := idAt(at)
	w.exec("SELECT ensure_day($1)", ids.Day(id))
	w.exec(`INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, input_tokens, cached_tokens, cache_write_tokens,
		output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, ending, status, estimated, streamed, dialect, attempts, started_at, ended_at)
		VALUES ($1, $2, $3, $3, $3, $4, $3, $3, $5, 0, 0, $6, 0, 0, 0, 1, $7, 'complete', 200, false, false, 'chat', jsonb_build_array(jsonb_build_object('unit', $8::uuid)), $9, $10)`,
		org, ids.Day(id), id, w.model, input, output, charged, unit, at, at.Add(ran))
	w.exec(`INSERT INTO usage_rollups VALUES ($1, $2, $3, $3, $4, 1, 0, $5, 0, 0, $6, 0, 0, 0, $7, 0, 0, 0, 0, 0)`, org, at.Truncate(15*time.Minute), id, w.model, input, output, charged)
}

func idAt(t time.Time) ids.ID {
	id := ids.New()
	_, _ = rand.Read(id[8:])
	for i := range 6 {
		id[i] = byte(t.UnixMilli() >> (40 - 8*i))
	}
	id[8] = id[8]&0x3f | 0x80
	return id
}

func (w *world) report() margin.Report {
	w.t.Helper()
	if err := w.Accrue(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	end := w.clock.Now().Truncate(time.Hour).Add(time.Hour)
	r, err := w.Of(w.t.Context(), w.root, end.Add(-2*time.Hour), end, true)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

var fleet = margin.Fleet{Provider: "own", Region: "ber", Kind: "reserved"}

// Two hosts of eight GPUs at 2 USD: one serves two customers half of an hour, one nothing.
func TestCostGoesWhereTheWorkWas(t *testing.T) {
	w := newWorld(t)
	serving, _ := w.host(8, false), w.host(8, false)
	unit := w.unit(serving, "vllm")
	w.clock.Advance(-time.Hour) // the price begins with the hour before
	if err := w.SetPrice(t.Context(), w.root, fleet, 2*money.NanoPerUSD); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(time.Hour)
	last := now.Truncate(time.Hour).Add(-time.Hour)
	// 12:00 to 12:20, 12:10 to 12:30 over it: busy for half an hour. a: 1000 input = 1000 weights, b: 500 output = 2000.
	w.serve(w.orgs[0], unit, last, 20*time.Minute, 1_000_000, 0, int64(6*money.NanoPerUSD))
	w.serve(w.orgs[1], unit, last.Add(10*time.Minute), 20*time.Minute, 0, 500_000, int64(18*money.NanoPerUSD))
	r := w.report()
	// The last hour whole and half of this one, of 16 GPUs.
	if want := 48 * money.NanoPerUSD; r.Total.Cost != want || r.Total.GPU != 24*time.Hour || r.Total.Busy != 4*time.Hour {
		t.Fatalf("cost %s USD of %v GPU time, %v busy", r.Total.Cost, r.Total.GPU, r.Total.Busy)
	}
	if r.Total.Idle != 40*money.NanoPerUSD || r.Total.Revenue != 24*money.NanoPerUSD || r.Total.Simulated {
		t.Fatalf("%+v", r.Total)
	}
	if a, b := r.Orgs[1], r.Orgs[0]; a.Cost+b.Cost != r.Total.Cost-r.Total.Idle || b.Cost != 2*a.Cost+2 && b.Cost != 2*a.Cost+1 && b.Cost != 2*a.Cost {
		t.Fatalf("a bears %s, b %s", a.Cost, b.Cost)
	} else if of, err := w.CostOf(t.Context(), w.root, w.orgs[:], last.Add(-time.Hour), now); err != nil || len(of) != 2 || of[a.ID] != a.Cost || of[b.ID] != b.Cost {
		t.Fatalf("by customer: %v, %v", of, err)
	}
	if use, ok := r.Total.Utilisation(); !ok || use != 166 {
		t.Fatalf("utilisation %d, %v", use, ok)
	}
	if even, ok := r.Total.BreakEven(); !ok || even != 332 { // twice the revenue is needed
		t.Fatalf("break-even %d, %v", even, ok)
	}
	if n, ok := r.Total.CostPerGPUHour(); !ok || n != 2*money.NanoPerUSD {
		t.Fatalf("%s a GPU-hour", n)
	}
	if len(r.Models) != 2 || r.Models[0].Cost+r.Models[1].Cost != r.Total.Cost || len(r.Steps) != 2 {
		t.Fatalf("models %+v, steps %+v", r.Models, r.Steps)
	}
	cost, known, err := w.CostPerToken(t.Context(), w.model)
	if want := money.Pico(24*int64(money.NanoPerUSD)*1000) / 1_500_000; err != nil || !known || cost != want { // one host's 12 GPU-hours
		t.Fatalf("%d pico a token, want %d (%v, %v)", cost, want, known, err)
	}
	again := w.report()
	if again.Total != r.Total {
		t.Fatalf("made anew it is %+v, was %+v", again.Total, r.Total)
	}
}

func TestWhatHasNoPriceIsUnknown(t *testing.T) {
	w := newWorld(t)
	unit := w.unit(w.host(0, true), "sim")
	w.serve(w.orgs[0], unit, now.Add(-10*time.Minute), time.Minute, 10, 10, 1000)
	r := w.report()
	if r.Total.Known() || r.Total.Cost != 0 || r.Total.GPU == 0 || !r.Total.Simulated || r.Total.Revenue != 1000 {
		t.Fatalf("%+v", r.Total)
	}
	if _, ok := r.Total.CostPerMillion(); ok {
		t.Fatal("a cost is told that nobody knows")
	}
	if _, known, err := w.ServingCost(t.Context(), w.model, now.Add(-24*time.Hour), now); known || err != nil {
		t.Fatalf("known %v, %v", known, err)
	}
	if of, err := w.CostOf(t.Context(), w.root, w.orgs[:], now.Add(-24*time.Hour), now); err != nil || len(of) != 0 {
		t.Fatalf("by customer: %v, %v", of, err)
	}
	member := tenants.Actor{User: ids.New(), Org: w.orgs[0], Role: tenants.Owner}
	if _, err := w.Of(t.Context(), member, now.Add(-time.Hour), now, true); !fault.Is(err, fault.Forbidden) {
		t.Fatalf("a customer sees costs: %v", err)
	}
	if _, err := w.CostOf(t.Context(), member, w.orgs[:], now.Add(-time.Hour), now); !fault.Is(err, fault.Forbidden) {
		t.Fatalf("a customer sees costs: %v", err)
	}
	if err := w.SetPrice(t.Context(), member, fleet, 1); !fault.Is(err, fault.Forbidden) {
		t.Fatalf("a customer sets costs: %v", err)
	}
	if err := w.SetPrice(t.Context(), w.root, margin.Fleet{Provider: "x", Region: "y", Kind: "spot"}, 1); !fault.Is(err, fault.NotFound) {
		t.Fatalf("a fleet without hosts: %v", err)
	}
}
