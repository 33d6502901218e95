package bench

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/cmd/millrace/trial"
)

// fillLimit bounds the making of the rows.
const fillLimit = 3 * time.Hour

// filler makes booked requests by SQL: rating them would take hours.
type filler struct {
	url       string
	shop      trial.Shop
	requests  int64
	days      int
	customers int
	until     time.Time
	progress  io.Writer
}

// lastDay is the last whole UTC day that is filled.
func (f *filler) lastDay() time.Time { return f.until.Truncate(24*time.Hour).AddDate(0, 0, -1) }

// fill makes the rows and gives the size of the database.
func (f *filler) fill(ctx context.Context) (bytes int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, fillLimit)
	defer cancel()
	conn, err := f.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range fillCustomers {
		if _, err := conn.Exec(ctx, sql, pgx.NamedArgs{"customers": f.customers, "org": f.shop.Org, "project": f.shop.Project, "key": f.shop.Key,
			"model": f.shop.Model}); err != nil {
			return 0, fmt.Errorf("customers: %w", err)
		}
	}
	for n := range f.days { // partitions are made before anyone writes to their neighbours
		if _, err := conn.Exec(ctx, "SELECT ensure_day($1)", f.lastDay().AddDate(0, 0, -n)); err != nil {
			return 0, fmt.Errorf("partitions: %w", err)
		}
	}
	if err := f.fillDays(ctx); err != nil {
		return 0, err
	}
	fmt.Fprintln(f.progress, "balances, and what autovacuum would have done")
	for _, sql := range fillSums {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return 0, fmt.Errorf("sums: %w", err)
		}
	}
	err = conn.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(&bytes)
	return bytes, err
}

func (f *filler) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return nil, err
	}
	// The rows fit together by how they are made: checking each foreign key and sum would take most of the time.
	_, err = conn.Exec(ctx, "SET session_replication_role = replica; SET synchronous_commit = off; SET TimeZone = 'UTC'; SET work_mem = '256MB'")
	return conn, err
}

// fillDays makes two days at a time.
func (f *filler) fillDays(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	days := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			conn, err := f.connect(ctx)
			if err != nil {
				cancel(err)
				return
			}
			defer conn.Close(context.WithoutCancel(ctx))
			for n := range days {
				if err := f.fillDay(ctx, conn, n); err != nil {
					cancel(fmt.Errorf("day %d: %w", n, err))
					return
				}
			}
		})
	}
	for n := range f.days {
		select {
		case days <- n:
			fmt.Fprintf(f.progress, "day %d of %d\n", n+1, f.days)
		case <-ctx.Done():
		}
	}
	close(days)
	wg.Wait()
	return context.Cause(ctx)
}

// fillDay makes the rows of one day before today. What does not divide goes to the first.
func (f *filler) fillDay(ctx context.Context, conn *pgx.Conn, n int) error {
	day := f.lastDay().AddDate(0, 0, -n)
	requests := f.requests / int64(f.days)
	if n == 0 {
		requests += f.requests % int64(f.days)
	}
	if requests == 0 {
		return nil
	}
	for _, sql := range fillOneDay {
		if _, err := conn.Exec(ctx, sql, pgx.NamedArgs{"day": day, "requests": requests, "customers": f.customers}); err != nil {
			return err
		}
	}
	return nil
}

// The owner makes tables and reads none of the tenants'; the system writes rows.
const (
	asSystem = "SET ROLE millrace_system"
	asOwner  = "RESET ROLE"
)

// Customers are numbered; the first is the shop's. Each has one key and two models, the first twenty keys and four models.
var fillCustomers = []string{
	`CREATE TABLE bench_customers (n int PRIMARY KEY, org_id uuid, project_id uuid)`,
	`CREATE TABLE bench_keys (n int, k int, keys int, org_id uuid, project_id uuid, key_id uuid)`,
	`CREATE TABLE bench_models (m int, model_id uuid, version_id uuid)`,
	`GRANT ALL ON bench_customers, bench_keys, bench_models TO millrace_system`,
	asSystem,
	`INSERT INTO bench_customers VALUES (0, @org, @project)`,
	`INSERT INTO bench_customers SELECT n, gen_random_uuid(), gen_random_uuid() FROM generate_series(1, @customers::int - 1) n`,
	`INSERT INTO orgs (org_id, name) SELECT org_id, 'Customer ' || n FROM bench_customers WHERE n > 0`,
	`INSERT INTO projects (org_id, id, name) SELECT org_id, project_id, 'default' FROM bench_customers WHERE n > 0`,
	`INSERT INTO api_keys (org_id, id, project_id, name, hash, prefix, last4)
		SELECT org_id, gen_random_uuid(), project_id, 'key ' || k, sha256((n || ' ' || k)::bytea), 'mr_live_x', 'abcd'
		FROM bench_customers, generate_series(1, CASE n WHEN 0 THEN 19 ELSE 1 END) k`,
	`INSERT INTO models (id, name, context_tokens, max_output_tokens) SELECT gen_random_uuid(), 'bench/' || n, 131072, 65536 FROM generate_series(1, 3) n`,
	`INSERT INTO price_versions (id, model_id, effective_at, input_pico, cached_pico, cache_write_pico, output_pico, reasoning_pico, image_pico, audio_pico, request_pico, created_by)
		SELECT gen_random_uuid(), id, now() - interval '400 days', 1000000, 100000, 1000000, 2000000, 2000000, 0, 0, 0, 'bench' FROM models WHERE id <> @model`,
	`INSERT INTO bench_keys SELECT c.n, (row_number() OVER (PARTITION BY c.n ORDER BY k.id) - 1)::int AS k, count(*) OVER (PARTITION BY c.n)::int AS keys, c.org_id, c.project_id, k.id AS key_id
		FROM bench_customers c JOIN api_keys k ON k.org_id = c.org_id`,
	`INSERT INTO bench_models SELECT (row_number() OVER (ORDER BY m.id) - 1)::int AS m, m.id AS model_id,
		(SELECT v.id FROM price_versions v WHERE v.model_id = m.id LIMIT 1) AS version_id FROM models m`,
	asOwner, `ANALYZE bench_customers`, `ANALYZE bench_keys`, `ANALYZE bench_models`,
}

// fillOneDay makes a day's requests, five at a time at equal distances: one of the first customer's, four of another's, each
// with a booking. Then the sums of both.
var fillOneDay = []string{
	asSystem,
	`INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, txn_id, input_tokens, cached_tokens, cache_write_tokens,
			output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests, charged_nano, overrun_nano, ending, status, estimated, streamed, dialect, started_at, first_token_at, ended_at)
		SELECT c.org_id, @day::date, (s.ms || '70008' || lpad(to_hex(s.n), 15, '0'))::uuid, c.project_id, c.key_id, m.model_id, m.version_id, m.version_id,
			(s.ms || CASE WHEN s.customer = 0 THEN '70009' ELSE '7000a' END || lpad(to_hex(s.n / 5), 15, '0'))::uuid, 1200 + s.n % 700, s.n % 512, 0, 150 + s.n % 90, 0, 0, 0, 1,
			(1200 + s.n % 700) * 1000 + (s.n % 512) * 100 + (150 + s.n % 90) * 2000, 0, CASE WHEN s.n % 97 = 0 THEN 'client_left' ELSE 'complete' END, 200, false, true, 'chat',
			s.at, s.at + interval '210 ms', s.at + interval '2 s'
		FROM (SELECT n, at, lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS ms,
				CASE WHEN n % 5 = 0 THEN 0 ELSE (1 + (n / 5 * 2654435761) % (@customers - 1))::int END AS customer
			FROM generate_series(0, @requests::bigint - 1) n, LATERAL (SELECT @day::timestamptz + n / 5 * 5 * (interval '86400 s' / @requests::float8) AS at) t) s
		JOIN bench_keys c ON c.n = s.customer AND c.k = (s.n / 5) % c.keys
		JOIN bench_models m ON m.m = CASE WHEN s.customer = 0 THEN (s.n / 100) % 4 ELSE s.customer % 4 END`,
	`INSERT INTO ledger_txns (org_id, day, id, kind, memo) SELECT org_id, day, txn_id, 'usage', count(*) || ' requests' FROM usage_events WHERE day = @day::date GROUP BY 1, 2, 3 ORDER BY 3`,
	`INSERT INTO ledger_entries (org_id, day, txn_id, account, amount_nano)
		SELECT e.org_id, e.day, e.txn_id, a.account, a.sign * e.charged
		FROM (SELECT org_id, day, txn_id, sum(charged_nano)::bigint AS charged FROM usage_events WHERE day = @day::date GROUP BY 1, 2, 3) e,
			(VALUES ('receivable', 1), ('revenue', -1)) a (account, sign)`,
	`INSERT INTO ledger_days (org_id, day, kind, usage_month, account, amount_nano)
		SELECT org_id, day, 'usage', date_trunc('month', day)::date, account, sum(amount_nano) FROM ledger_entries WHERE day = @day::date GROUP BY org_id, day, account`,
	`INSERT INTO usage_rollups SELECT org_id, to_timestamp(floor(extract(epoch FROM started_at) / 900) * 900) AS bucket, project_id, key_id, model_id, count(*),
			count(*) FILTER (WHERE ending <> 'complete'), sum(input_tokens), sum(cached_tokens), 0, sum(output_tokens), 0, 0, 0, sum(charged_nano), 0, 0,
			210 * count(*), count(*), 1790 * count(*), price_version_id, '', count(*)
		FROM usage_events WHERE day = @day::date GROUP BY org_id, bucket, project_id, key_id, model_id, price_version_id ORDER BY 1, 2`,
}

var fillSums = []string{
	asSystem,
	`INSERT INTO ledger_balances (org_id, account, amount_nano) SELECT org_id, account, sum(amount_nano) FROM ledger_days d
		WHERE org_id IN (SELECT org_id FROM bench_customers) AND kind = 'usage' GROUP BY 1, 2
		ON CONFLICT (org_id, account) DO UPDATE SET amount_nano = ledger_balances.amount_nano + excluded.amount_nano`,
	asOwner, `VACUUM (ANALYZE) usage_rollups`, `VACUUM (ANALYZE) ledger_days`, `VACUUM (ANALYZE) ledger_balances`, `VACUUM (ANALYZE) usage_events`,
	`VACUUM (ANALYZE) ledger_txns`, `VACUUM (ANALYZE) ledger_entries`, `ANALYZE`,
}
