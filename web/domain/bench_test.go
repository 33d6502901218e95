package domain_test

import (
	"io"
	"net/http"
	"testing"

	"millrace/internal/ids"
)

// BenchmarkPages fetches pages over a month of 20 customers with 5 keys and 4 models each: 1.1 million rollups, and 86,000
// requests of Acme's.
func BenchmarkPages(b *testing.B) {
	s := newShop(b)
	s.exec(`INSERT INTO models (id, name, context_tokens, max_output_tokens) SELECT gen_random_uuid(), 'bench/' || i, 1000, 1000 FROM generate_series(1, 2) i`)
	s.exec(`INSERT INTO orgs (org_id, name) SELECT gen_random_uuid(), 'org ' || i FROM generate_series(1, 18) i`)
	s.exec(`INSERT INTO projects (org_id, id, name) SELECT org_id, org_id, 'bench' FROM orgs`)
	s.exec(`INSERT INTO api_keys (org_id, id, project_id, name, hash, prefix, last4) SELECT o.org_id, gen_random_uuid(), o.org_id, 'bench ' || i, sha256((o.org_id::text || i)::bytea), 'mr_live_x', 'abcd'
		FROM orgs o, generate_series(1, 5) i`)
	for i := range 30 { // a statement may take 30 s
		from := now.Truncate(day).AddDate(0, 0, -i)
		s.exec(`INSERT INTO usage_rollups SELECT k.org_id, bucket, k.project_id, k.id, m.id, 10, 0, 1000, 500, 0, 200, 0, 0, 0, 12345, 0, 77, 1000, 10, 2000
			FROM generate_series($1::timestamptz, least($2::timestamptz, $1::timestamptz + interval '23:45'), '15 min') bucket, (SELECT * FROM api_keys WHERE name LIKE 'bench%') k, models m
			ORDER BY bucket ON CONFLICT DO NOTHING`, from, now)
	}
	for d := range 4 {
		from := now.AddDate(0, 0, -d-1)
		s.exec("SELECT ensure_day($1), ensure_day($2)", from, now)
		// Ids by time, as UUIDv7 are.
		s.exec(`INSERT INTO usage_events SELECT e.org_id, (at AT TIME ZONE 'UTC')::date, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid,
			project_id, key_id, model_id, price_version_id, epoch_id, txn_id, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, 0, 0,
			'complete', status, estimated, repriced, streamed, dialect, attempts, raw, at, at + interval '120 ms', at + interval '1 s'
			FROM usage_events e, generate_series($2::timestamptz, $3::timestamptz, interval '4 s') WITH ORDINALITY g(at, n) WHERE e.id = $1`, s.calls[6], from, now.AddDate(0, 0, -d))
		s.exec(`WITH t AS (INSERT INTO ledger_txns (org_id, day, id, kind) SELECT org_id, day, id, 'usage' FROM usage_events
			WHERE org_id = $1 AND started_at >= $2 AND started_at < $2 + interval '6 hours' AND txn_id IS NOT NULL ON CONFLICT DO NOTHING RETURNING org_id, day, id)
			INSERT INTO ledger_entries (org_id, day, txn_id, account, amount_nano) SELECT org_id, day, id, unnest(ARRAY['prepaid_paid', 'revenue']), unnest(ARRAY[25000, -25000]) FROM t`, s.acme.ID, from)
	}
	for _, table := range []string{"usage_rollups", "usage_events", "ledger_txns", "ledger_entries", "api_keys"} {
		s.exec("RESET ROLE; ANALYZE " + table) // the owner's to do
	}
	for _, p := range []struct{ who, path string }{
		{s.owner, "/"}, {s.owner, "/keys"}, {s.owner, "/usage"}, {s.owner, "/usage?group=key&range=today"}, {s.owner, "/requests"}, {s.owner, "/requests?ended=failed"},
		{s.owner, "/requests/" + ids.Format(ids.Request, s.calls[6])}, {s.owner, "/billing"}, {s.owner, "/limits"}, {s.owner, "/models"},
		{s.staff, "/admin"}, {s.staff, "/admin/customers"}, {s.staff, "/admin/customers/" + ids.Format(ids.Org, s.acme.ID)}, {s.staff, "/admin/revenue"},
		{s.staff, "/admin/units"}, {s.staff, "/admin/hosts"}, {s.staff, "/admin/exceptions"}, {s.staff, "/admin/audit"},
	} {
		b.Run(p.path, func(b *testing.B) {
			r, err := http.NewRequest(http.MethodGet, s.console.URL+p.path, nil)
			s.must(err)
			r.AddCookie(&http.Cookie{Name: "millrace_session", Value: p.who})
			for b.Loop() {
				resp, err := http.DefaultClient.Do(r)
				s.must(err)
				n, err := io.Copy(io.Discard, resp.Body)
				s.must(err)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK || n == 0 {
					b.Fatalf("%s answers %d", p.path, resp.StatusCode)
				}
			}
		})
	}
}
