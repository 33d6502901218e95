package report_test

import (
	"crypto/rand"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/report"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/tenants"
)

// now is the tests' moment.
var now = time.Date(2026, time.November, 20, 13, 40, 0, 0, time.UTC)

// world is a database with usage in it, written as the rater writes it.
type world struct {
	*report.Service
	t     testing.TB
	db    *db.DB
	clock *clock.Manual
	root  tenants.Actor // an operator
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), clock: clock.NewManual(now), root: tenants.System()}
	w.Service = report.New(w.db, w.clock)
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

// customer is an organization with a project and keys.
type customer struct {
	id, project ids.ID
	keys        []ids.ID
	played      []ids.ID      // keys of the playground
	member      tenants.Actor // an owner
}

func (w *world) customer(name string, keys, played int) customer {
	w.t.Helper()
	c := customer{id: ids.New(), project: ids.New()}
	c.member = tenants.Actor{User: ids.New(), Org: c.id, Role: tenants.Owner}
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, $2)", c.id, name)
	w.exec("INSERT INTO projects (org_id, id, name) VALUES ($1, $2, 'main')", c.id, c.project)
	for i := range keys + played {
		key := ids.New()
		w.exec("INSERT INTO api_keys (org_id, id, project_id, name, hash, prefix, last4, hidden) VALUES ($1, $2, $3, $4, $5, 'mr_live_x', 'abcd', $6)",
			c.id, key, c.project, "key "+string(rune('a'+i)), key[:], i >= keys)
		if i < keys {
			c.keys = append(c.keys, key)
		} else {
			c.played = append(c.played, key)
		}
	}
	return c
}

func (w *world) model(name string) ids.ID {
	id := ids.New()
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, $2, 100000, 100000)", id, name)
	return id
}

func (w *world) version(model ids.ID, p usage.Prices) ids.ID {
	id := ids.New()
	w.exec(`INSERT INTO price_versions (id, model_id, effective_at, input_pico, cached_pico, cache_write_pico, output_pico, reasoning_pico, image_pico, audio_pico, request_pico, created_by)
		VALUES ($1, $2, '2020-01-01', $3, $4, 0, $5, 0, 0, 0, 0, 'test')`, id, model, int64(p[usage.Input]), int64(p[usage.Cached]), int64(p[usage.Output]))
	return id
}

// row is a line of the rollups.
type row struct {
	org, project, key, model ids.ID
	at                       time.Time // a multiple of 15 minutes
	report.Sums
}

func (w *world) roll(rows ...row) {
	w.t.Helper()
	var batch pgx.Batch
	for _, r := range rows {
		batch.Queue(`INSERT INTO usage_rollups VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
			ON CONFLICT (org_id, bucket, project_id, key_id, model_id, price_version_id, service_tier) DO UPDATE SET requests = usage_rollups.requests + excluded.requests,
			errors = usage_rollups.errors + excluded.errors, input_tokens = usage_rollups.input_tokens + excluded.input_tokens,
			cached_tokens = usage_rollups.cached_tokens + excluded.cached_tokens, output_tokens = usage_rollups.output_tokens + excluded.output_tokens,
			charged_nano = usage_rollups.charged_nano + excluded.charged_nano, saved_nano = usage_rollups.saved_nano + excluded.saved_nano,
			overrun_nano = usage_rollups.overrun_nano + excluded.overrun_nano, ttft_count = usage_rollups.ttft_count + excluded.ttft_count,
			ttft_ms_sum = usage_rollups.ttft_ms_sum + excluded.ttft_ms_sum`,
			r.org, r.at, r.project, r.key, r.model, r.Requests, r.Errors, r.Usage[usage.Input], r.Usage[usage.Cached], r.Usage[usage.CacheWrite],
			r.Usage[usage.Output], r.Usage[usage.Reasoning], r.Usage[usage.Image], r.Usage[usage.Audio], int64(r.Charged), int64(r.Overrun), int64(r.Saved),
			r.First.Milliseconds(), r.Streams, r.Decode.Milliseconds())
	}
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { return tx.SendBatch(w.t.Context(), &batch).Close() })
	if err != nil {
		w.t.Fatal(err)
	}
}

// idAt is a fresh id of a moment.
func idAt(t time.Time) ids.ID {
	id := ids.New()
	_, _ = rand.Read(id[8:])
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[8] = id[8]&0x3f | 0x80
	return id
}

// call is a rated request: what rated writes.
type call struct {
	key, model, version ids.ID
	at                  time.Time
	first               time.Duration // 0 = no stream
	ending              usage.Ending  // "" = complete
	status              int           // 0 = 200
	usage               usage.Vector
	charged, overrun    money.Nano
	attempts            []usage.Attempt
}

// rate writes calls as the rater does: events and rollups. It gives their ids.
func (w *world) rate(c customer, calls ...call) []ids.ID {
	w.t.Helper()
	out := make([]ids.ID, len(calls))
	var rows []row
	days := map[time.Time]bool{}
	var batch pgx.Batch
	for i, x := range calls {
		out[i] = idAt(x.at)
		if x.ending == "" {
			x.ending = usage.Complete
		}
		if x.status == 0 {
			x.status = 200
		}
		x.usage[usage.Requests] = 1
		if day := ids.Day(out[i]); !days[day] {
			days[day] = true
			w.exec("SELECT ensure_day($1)", day)
		}
		var first *time.Time
		s := report.Sums{Requests: 1, Usage: x.usage, Charged: x.charged, Overrun: x.overrun}
		if x.first > 0 {
			at := x.at.Add(x.first)
			first = &at
			s.Streams, s.First = 1, x.first
		}
		if x.status >= 500 || x.ending == usage.EngineFailed || x.ending == usage.FailedUnbilled {
			s.Errors = 1
		}
		attempts, err := json.Marshal(append([]usage.Attempt{}, x.attempts...))
		if err != nil {
			w.t.Fatal(err)
		}
		batch.Queue(`INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, input_tokens, cached_tokens, cache_write_tokens,
			output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, overrun_nano, ending, status, estimated, streamed, dialect, attempts, started_at, first_token_at, ended_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, 0, 0, 0, 1, $12, $13, $14, $15, false, $16, 'chat', $17, $18, $19, $20)`,
			c.id, ids.Day(out[i]), out[i], c.project, x.key, x.model, x.version, ids.New(), x.usage[usage.Input], x.usage[usage.Cached], x.usage[usage.Output],
			int64(x.charged), int64(x.overrun), string(x.ending), x.status, x.first > 0, attempts, x.at, first, x.at.Add(time.Second))
		rows = append(rows, row{org: c.id, project: c.project, key: x.key, model: x.model, at: x.at.Truncate(15 * time.Minute), Sums: s})
	}
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { return tx.SendBatch(w.t.Context(), &batch).Close() })
	if err != nil {
		w.t.Fatal(err)
	}
	w.roll(rows...)
	return out
}

// post writes a ledger transaction of a moment.
func (w *world) post(org ids.ID, at time.Time, kind ledger.Kind, memo string, entries ...ledger.Entry) ids.ID {
	w.t.Helper()
	id := idAt(at)
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, _, err := ledger.Post(w.t.Context(), tx, ledger.Txn{ID: id, Org: org, Kind: kind, Memo: memo, Entries: entries})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}
