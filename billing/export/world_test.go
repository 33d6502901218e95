package export_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/export"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/tenants"
)

// now is the tests' moment.
var now = time.Date(2026, time.November, 20, 13, 40, 0, 0, time.UTC)

// world is a database with usage in it, written as the rater writes it.
type world struct {
	*export.Service
	t     testing.TB
	db    *db.DB
	root  tenants.Actor
	model ids.ID
	price ids.ID
}

func newWorld(t testing.TB) *world {
	t.Helper()
	d := dbtest.New(t)
	w := &world{Service: export.New(d, clock.NewManual(now)), t: t, db: d, root: tenants.System(), model: ids.New(), price: ids.New()}
	w.exec("INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, 'acme/llama', 100000, 100000)", w.model)
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

// customer is an organization with a project, a key and a key of the playground.
type customer struct {
	id, project, key, played ids.ID
	member                   tenants.Actor
}

func (w *world) customer(name string) customer {
	w.t.Helper()
	c := customer{id: ids.New(), project: ids.New(), key: ids.New(), played: ids.New()}
	c.member = tenants.Actor{User: ids.New(), Org: c.id, Role: tenants.Viewer}
	w.exec("INSERT INTO orgs (org_id, name) VALUES ($1, $2)", c.id, name)
	w.exec("INSERT INTO projects (org_id, id, name) VALUES ($1, $2, 'main')", c.id, c.project)
	for key, hidden := range map[ids.ID]bool{c.key: false, c.played: true} {
		w.exec("INSERT INTO api_keys (org_id, id, project_id, name, hash, prefix, last4, hidden) VALUES ($1, $2, $3, '-key', $4, 'mr_live_x', 'abcd', $5)",
			c.id, key, c.project, key[:], hidden)
	}
	return c
}

// use writes n requests from a moment on, step apart, each charged a nano-dollar more than the one before, with the
// rollups they make. The price counts every seventh for nothing by the request.
func (w *world) use(c customer, key ids.ID, from time.Time, step time.Duration, n int) {
	w.t.Helper()
	for d := from.Truncate(24 * time.Hour); !d.After(from.Add(time.Duration(n) * step)); d = d.AddDate(0, 0, 1) {
		w.exec("SELECT ensure_day($1)", d)
	}
	var batch pgx.Batch
	for i := range n {
		at := from.Add(time.Duration(i) * step)
		id, counts := idAt(at), 1
		if i%7 == 0 {
			counts = 0
		}
		batch.Queue(`INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, input_tokens, cached_tokens, cache_write_tokens,
			output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, overrun_nano, ending, status, estimated, streamed, dialect, started_at, first_token_at, ended_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 10, 2, 0, 5, 0, 0, 0, $13, $9, 3, 'complete', 200, false, true, 'chat', $10, $11, $12)`,
			c.id, ids.Day(id), id, c.project, key, w.model, w.price, ids.New(), i+1, at, at.Add(time.Millisecond), at.Add(time.Second), counts)
		batch.Queue(`INSERT INTO usage_rollups AS r VALUES ($1, $2, $3, $4, $5, 1, 0, 10, 2, 0, 5, 0, 0, 0, $6, 3, 0, 1, 1, 1, $7, '', $8)
			ON CONFLICT (org_id, bucket, project_id, key_id, model_id, price_version_id, service_tier) DO UPDATE SET requests = r.requests + 1, billed_requests = r.billed_requests + $8,
			input_tokens = r.input_tokens + 10, cached_tokens = r.cached_tokens + 2, output_tokens = r.output_tokens + 5,
			charged_nano = r.charged_nano + excluded.charged_nano, overrun_nano = r.overrun_nano + 3`,
			c.id, at.Truncate(15*time.Minute), c.project, key, w.model, i+1, w.price, counts)
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
