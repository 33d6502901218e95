-- Reads of rated usage, for pages, the control API and exports. Sums come from rollups, single requests from usage_events.
-- Queries of one organization and of all are apart, so that no plan has to serve both.

-- name: ReportCells :many
-- Usage by step and group. The caller cuts the steps: days in a zone, hours, or one for all.
SELECT s.start::timestamptz AS start, c.grp::uuid AS grp, c.requests, c.errors, c.input_tokens, c.cached_tokens, c.cache_write_tokens,
       c.output_tokens, c.reasoning_tokens, c.image_tokens, c.audio_tokens, c.charged_nano, c.overrun_nano, c.saved_nano,
       c.ttft_ms_sum, c.ttft_count, c.decode_ms_sum
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT (CASE @grp::text WHEN 'model' THEN r.model_id WHEN 'key' THEN r.key_id WHEN 'project' THEN r.project_id WHEN 'org' THEN r.org_id
              ELSE '00000000-0000-0000-0000-000000000000'::uuid END) AS grp,
           sum(r.requests)::bigint AS requests, sum(r.errors)::bigint AS errors,
           sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
           sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
           sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
           sum(r.audio_tokens)::bigint AS audio_tokens,
           sum(r.charged_nano)::bigint AS charged_nano, sum(r.overrun_nano)::bigint AS overrun_nano, sum(r.saved_nano)::bigint AS saved_nano,
           sum(r.ttft_ms_sum)::bigint AS ttft_ms_sum, sum(r.ttft_count)::bigint AS ttft_count, sum(r.decode_ms_sum)::bigint AS decode_ms_sum
      FROM usage_rollups r
     WHERE r.org_id = @org AND r.bucket >= s.start AND r.bucket < s.stop
       AND (sqlc.narg('model')::uuid IS NULL OR r.model_id = sqlc.narg('model'))
       AND (sqlc.narg('project')::uuid IS NULL OR r.project_id = sqlc.narg('project'))
       AND (sqlc.narg('key')::uuid IS NULL OR r.key_id = sqlc.narg('key'))
       AND (NOT @playground::bool OR r.key_id IN (SELECT k.id FROM api_keys k WHERE k.org_id = @org AND k.hidden))
     GROUP BY 1) c
 ORDER BY 1, 2 LIMIT @max_rows;

-- name: ReportAllCells :many
-- Usage of all organizations by step and group: as many rows as are shown, not as there are organizations and models.
SELECT s.start::timestamptz AS start, c.grp::uuid AS grp, c.requests, c.errors, c.input_tokens, c.cached_tokens, c.cache_write_tokens,
       c.output_tokens, c.reasoning_tokens, c.image_tokens, c.audio_tokens, c.charged_nano, c.overrun_nano, c.saved_nano,
       c.ttft_ms_sum, c.ttft_count, c.decode_ms_sum
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT (CASE @grp::text WHEN 'model' THEN r.model_id WHEN 'org' THEN r.org_id ELSE '00000000-0000-0000-0000-000000000000'::uuid END) AS grp,
           sum(r.requests)::bigint AS requests, sum(r.errors)::bigint AS errors,
           sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
           sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
           sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
           sum(r.audio_tokens)::bigint AS audio_tokens,
           sum(r.charged_nano)::bigint AS charged_nano, sum(r.overrun_nano)::bigint AS overrun_nano, sum(r.saved_nano)::bigint AS saved_nano,
           sum(r.ttft_ms_sum)::bigint AS ttft_ms_sum, sum(r.ttft_count)::bigint AS ttft_count, sum(r.decode_ms_sum)::bigint AS decode_ms_sum
      FROM usage_rollups r
     WHERE r.bucket >= s.start AND r.bucket < s.stop
       AND (sqlc.narg('model')::uuid IS NULL OR r.model_id = sqlc.narg('model'))
     GROUP BY 1) c
 ORDER BY 1, 2 LIMIT @max_rows;

-- name: ReportSomeCells :many
-- Usage of some organizations by step and group; each of them is found by its own rows.
SELECT s.start::timestamptz AS start, c.grp::uuid AS grp, c.requests, c.errors, c.input_tokens, c.cached_tokens, c.cache_write_tokens,
       c.output_tokens, c.reasoning_tokens, c.image_tokens, c.audio_tokens, c.charged_nano, c.overrun_nano, c.saved_nano,
       c.ttft_ms_sum, c.ttft_count, c.decode_ms_sum
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT (CASE @grp::text WHEN 'model' THEN r.model_id WHEN 'org' THEN r.org_id ELSE '00000000-0000-0000-0000-000000000000'::uuid END) AS grp,
           sum(r.requests)::bigint AS requests, sum(r.errors)::bigint AS errors,
           sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
           sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
           sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
           sum(r.audio_tokens)::bigint AS audio_tokens,
           sum(r.charged_nano)::bigint AS charged_nano, sum(r.overrun_nano)::bigint AS overrun_nano, sum(r.saved_nano)::bigint AS saved_nano,
           sum(r.ttft_ms_sum)::bigint AS ttft_ms_sum, sum(r.ttft_count)::bigint AS ttft_count, sum(r.decode_ms_sum)::bigint AS decode_ms_sum
      FROM usage_rollups r
     WHERE r.org_id = ANY(@orgs::uuid[]) AND r.bucket >= s.start AND r.bucket < s.stop
       AND (sqlc.narg('model')::uuid IS NULL OR r.model_id = sqlc.narg('model'))
     GROUP BY 1) c
 ORDER BY 1, 2 LIMIT @max_rows;

-- name: ReportFoldedCells :many
-- Usage of all organizations by step: some of them by themselves, the others added up under the nil id.
SELECT s.start::timestamptz AS start, c.grp::uuid AS grp, c.requests, c.errors, c.input_tokens, c.cached_tokens, c.cache_write_tokens,
       c.output_tokens, c.reasoning_tokens, c.image_tokens, c.audio_tokens, c.charged_nano, c.overrun_nano, c.saved_nano,
       c.ttft_ms_sum, c.ttft_count, c.decode_ms_sum
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT coalesce(k.id, '00000000-0000-0000-0000-000000000000'::uuid) AS grp,
           sum(r.requests)::bigint AS requests, sum(r.errors)::bigint AS errors,
           sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
           sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
           sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
           sum(r.audio_tokens)::bigint AS audio_tokens,
           sum(r.charged_nano)::bigint AS charged_nano, sum(r.overrun_nano)::bigint AS overrun_nano, sum(r.saved_nano)::bigint AS saved_nano,
           sum(r.ttft_ms_sum)::bigint AS ttft_ms_sum, sum(r.ttft_count)::bigint AS ttft_count, sum(r.decode_ms_sum)::bigint AS decode_ms_sum
      FROM usage_rollups r LEFT JOIN unnest(@kept::uuid[]) AS k(id) ON k.id = r.org_id
     WHERE r.bucket >= s.start AND r.bucket < s.stop
       AND (sqlc.narg('model')::uuid IS NULL OR r.model_id = sqlc.narg('model'))
     GROUP BY 1) c
 ORDER BY 1, 2 LIMIT @max_rows;

-- name: ReportTopOrgs :many
-- The organizations that paid most between two moments.
SELECT r.org_id FROM usage_rollups r
 WHERE r.bucket >= @since::timestamptz AND r.bucket < @until::timestamptz
   AND (sqlc.narg('model')::uuid IS NULL OR r.model_id = sqlc.narg('model'))
 GROUP BY r.org_id ORDER BY sum(r.charged_nano) DESC, r.org_id LIMIT @max_rows;

-- name: ReportActiveOrgs :one
-- How many organizations used anything between two moments. Grouped, since count(DISTINCT) sorts every row.
SELECT count(*) FROM (SELECT FROM usage_rollups r WHERE r.bucket >= @since::timestamptz AND r.bucket < @until::timestamptz GROUP BY r.org_id) active;

-- name: ReportRevenue :many
-- Usage of all organizations by step, organization and model.
SELECT s.start::timestamptz AS start, c.org_id, c.model_id, c.requests, c.errors, c.input_tokens, c.cached_tokens, c.cache_write_tokens,
       c.output_tokens, c.reasoning_tokens, c.image_tokens, c.audio_tokens, c.charged_nano, c.overrun_nano, c.saved_nano,
       c.ttft_ms_sum, c.ttft_count, c.decode_ms_sum
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT r.org_id, r.model_id, sum(r.requests)::bigint AS requests, sum(r.errors)::bigint AS errors,
           sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
           sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
           sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
           sum(r.audio_tokens)::bigint AS audio_tokens,
           sum(r.charged_nano)::bigint AS charged_nano, sum(r.overrun_nano)::bigint AS overrun_nano, sum(r.saved_nano)::bigint AS saved_nano,
           sum(r.ttft_ms_sum)::bigint AS ttft_ms_sum, sum(r.ttft_count)::bigint AS ttft_count, sum(r.decode_ms_sum)::bigint AS decode_ms_sum
      FROM usage_rollups r
     WHERE r.bucket >= s.start AND r.bucket < s.stop
     GROUP BY 1, 2) c
 ORDER BY 1, 2, 3 LIMIT @max_rows;

-- name: ReportLabels :many
-- How groups read. hidden = a key of the playground.
SELECT id, name::text AS label, false AS hidden FROM models WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name, hidden FROM api_keys WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name, false FROM projects WHERE id = ANY(@list::uuid[])
UNION ALL SELECT org_id, name, false FROM orgs WHERE org_id = ANY(@list::uuid[]);

-- name: ReportKeySpend :many
-- What the keys of an organization cost with each model, by step, and when they were used last in it.
SELECT s.start::timestamptz AS start, c.key_id, c.project_id, c.model_id, c.charged_nano, c.last_bucket
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT r.key_id, r.project_id, r.model_id, sum(r.charged_nano)::bigint AS charged_nano, max(r.bucket)::timestamptz AS last_bucket
      FROM usage_rollups r WHERE r.org_id = @org AND r.bucket >= s.start AND r.bucket < s.stop
     GROUP BY 1, 2, 3) c
 LIMIT @max_rows;

-- name: ReportHasUsage :one
SELECT EXISTS (SELECT FROM usage_rollups WHERE org_id = @org) AS found;

-- name: ReportRequestIDs :many
-- A page of requests, newest first; before is the id of the last row of the page before. Each of the three ways to find
-- them has an index of its own.
SELECT e.day, e.id FROM usage_events e
 WHERE e.org_id = @org AND (e.day, e.id) < (@before_day::date, @before_id::uuid) AND e.day <= @before_day::date
   AND (sqlc.narg('model')::uuid IS NULL OR e.model_id = sqlc.narg('model'))
   AND (NOT @playground::bool OR e.key_id IN (SELECT k.id FROM api_keys k WHERE k.org_id = @org AND k.hidden))
 ORDER BY e.day DESC, e.id DESC LIMIT @max_rows;

-- name: ReportRequestIDsOfKey :many
SELECT e.day, e.id FROM usage_events e
 WHERE e.org_id = @org AND e.key_id = @key AND e.id < @before_id::uuid AND e.day <= @before_day::date
   AND (sqlc.narg('model')::uuid IS NULL OR e.model_id = sqlc.narg('model'))
   AND (NOT @failed::bool OR e.ending <> 'complete')
 ORDER BY e.id DESC LIMIT @max_rows;

-- name: ReportFailedRequestIDs :many
SELECT e.day, e.id FROM usage_events e
 WHERE e.org_id = @org AND (e.day, e.id) < (@before_day::date, @before_id::uuid) AND e.day <= @before_day::date
   AND e.ending <> 'complete'
   AND (sqlc.narg('model')::uuid IS NULL OR e.model_id = sqlc.narg('model'))
   AND (NOT @playground::bool OR e.key_id IN (SELECT k.id FROM api_keys k WHERE k.org_id = @org AND k.hidden))
 ORDER BY e.day DESC, e.id DESC LIMIT @max_rows;

-- name: ReportRequests :many
SELECT e.*, m.name AS model_name, k.name AS key_name, p.name AS project_name
  FROM (SELECT unnest(@days::date[]) AS day, unnest(@ids::uuid[]) AS id) w
  JOIN usage_events e ON e.org_id = @org AND e.day = w.day AND e.id = w.id
  JOIN models m ON m.id = e.model_id
  LEFT JOIN api_keys k ON k.org_id = e.org_id AND k.id = e.key_id
  LEFT JOIN projects p ON p.org_id = e.org_id AND p.id = e.project_id
 ORDER BY e.day DESC, e.id DESC;

-- name: ReportUnits :many
-- Names and engines of units, those that are gone too: what attempts name.
SELECT id, name, engine FROM units WHERE id = ANY(@list::uuid[]);

-- name: ReportPutAside :one
-- The newest of what was set aside of one request.
SELECT * FROM quarantine WHERE org_id = @org::uuid AND event_id = @request::uuid ORDER BY id DESC LIMIT 1;

-- name: ReportFirstTokens :one
-- Quantiles of the time to first token in milliseconds, over an organization's newest streams since a moment.
SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY ms), 0)::bigint AS p50,
       coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY ms), 0)::bigint AS p95, count(*)::bigint AS n
  FROM (SELECT (extract(epoch FROM e.first_token_at - e.started_at) * 1000)::bigint AS ms
          FROM usage_events e
         WHERE e.org_id = @org AND e.day >= @since_day::date AND e.id >= @since_id::uuid AND e.first_token_at IS NOT NULL
         ORDER BY e.day DESC, e.id DESC LIMIT @max_rows) newest;

-- name: ReportStreams :many
-- How many streams each organization had since a moment.
SELECT r.org_id, sum(r.ttft_count)::bigint AS streams FROM usage_rollups r WHERE r.bucket >= @since GROUP BY 1 HAVING sum(r.ttft_count) > 0;

-- name: ReportStreamSamples :many
-- The times to first token, in milliseconds, of the newest streams of each organization since a moment.
SELECT s.org_id::uuid AS org_id, e.ms
  FROM (SELECT unnest(@orgs::uuid[]) AS org_id) s
 CROSS JOIN LATERAL (
    SELECT (extract(epoch FROM u.first_token_at - u.started_at) * 1000)::bigint AS ms
      FROM usage_events u
     WHERE u.org_id = s.org_id AND u.day >= @since_day::date AND u.id >= @since_id::uuid AND u.first_token_at IS NOT NULL
     ORDER BY u.day DESC, u.id DESC LIMIT @max_rows) e
 ORDER BY 2;

-- name: ReportFirstTokenSteps :many
-- The median per step, of at most max_rows of its newest streams. from_ids and to_ids bound each step's requests.
SELECT s.number::int AS number, (percentile_disc(0.5) WITHIN GROUP (ORDER BY e.ms))::bigint AS p50
  FROM (SELECT unnest(@numbers::int[]) AS number, unnest(@from_ids::uuid[]) AS from_id, unnest(@to_ids::uuid[]) AS to_id,
               unnest(@from_days::date[]) AS from_day, unnest(@to_days::date[]) AS to_day) s
 CROSS JOIN LATERAL (
    SELECT (extract(epoch FROM u.first_token_at - u.started_at) * 1000)::bigint AS ms
      FROM usage_events u
     WHERE u.org_id = @org AND u.day >= s.from_day AND u.day <= s.to_day AND u.id >= s.from_id AND u.id < s.to_id AND u.first_token_at IS NOT NULL
     ORDER BY u.day DESC, u.id DESC LIMIT @max_rows) e
 GROUP BY 1 ORDER BY 1;

-- name: ReportUnitTraffic :many
-- What units answered since a moment, over at most max_rows requests per organization. The last attempt is the one that
-- served.
WITH active AS (SELECT DISTINCT r.org_id FROM usage_rollups r WHERE r.bucket >= @since_bucket)
SELECT e.unit::uuid AS unit, count(*)::bigint AS requests, (count(*) FILTER (WHERE e.failed))::bigint AS errors,
       sum(e.prompt)::bigint AS prompt, sum(e.cached)::bigint AS cached,
       coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY e.ms), 0)::bigint AS p50,
       coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY e.ms), 0)::bigint AS p95,
       coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY e.step_us), 0)::bigint AS step50_us,
       coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY e.step_us), 0)::bigint AS step95_us
  FROM active a
 CROSS JOIN LATERAL (
    SELECT u.attempts -> -1 ->> 'unit' AS unit, (u.ending IN ('engine_failed', 'failed_unbilled', 'gateway_died') OR u.status >= 500) AS failed,
           u.input_tokens + u.cached_tokens + u.cache_write_tokens + u.image_tokens + u.audio_tokens AS prompt, u.cached_tokens AS cached,
           (extract(epoch FROM u.first_token_at - u.started_at) * 1000)::bigint AS ms,
           (extract(epoch FROM u.ended_at - u.first_token_at) * 1000000 / nullif(u.output_tokens + u.reasoning_tokens - 1, 0))::bigint AS step_us
      FROM usage_events u
     WHERE u.org_id = a.org_id AND u.day >= @since_day::date AND u.id >= @since_id::uuid
     ORDER BY u.day DESC, u.id DESC LIMIT @max_rows) e
 WHERE e.unit IS NOT NULL
 GROUP BY 1;

-- name: ReportLastRequests :many
-- The newest request of each of some organizations. Rollups tell the day.
SELECT l.org_id::uuid AS org_id, l.id::uuid AS id
  FROM (SELECT o.org_id, (SELECT e.id FROM usage_events e
                           WHERE e.org_id = o.org_id AND e.day >= (o.last_bucket - interval '1 day')::date
                           ORDER BY e.day DESC, e.id DESC LIMIT 1) AS id
          FROM (SELECT w.org_id, (SELECT max(r.bucket) FROM usage_rollups r WHERE r.org_id = w.org_id) AS last_bucket
                  FROM (SELECT unnest(@orgs::uuid[]) AS org_id) w) o
         WHERE o.last_bucket IS NOT NULL) l
 WHERE l.id IS NOT NULL;

-- name: ReportUsageDays :many
-- The newest UTC days before a moment on which something was charged, by skipping from day to day.
WITH RECURSIVE days AS (
    SELECT date_trunc('day', (SELECT max(r.bucket) FROM usage_rollups r WHERE r.org_id = @org AND r.bucket < @before AND r.charged_nano > 0), 'UTC') AS day
    UNION ALL
    SELECT date_trunc('day', (SELECT max(r.bucket) FROM usage_rollups r WHERE r.org_id = @org AND r.bucket < d.day AND r.charged_nano > 0), 'UTC')
      FROM days d WHERE d.day IS NOT NULL)
SELECT d.day::timestamptz AS day FROM days d WHERE d.day IS NOT NULL LIMIT @max_rows;

-- name: ReportDayCharges :many
-- What some days of an organization cost: two sums are read much faster than all of ReportCells.
SELECT s.start::timestamptz AS start, c.requests::bigint AS requests, c.charged_nano::bigint AS charged_nano
  FROM (SELECT unnest(@starts::timestamptz[]) AS start, unnest(@stops::timestamptz[]) AS stop) s
 CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.requests), 0) AS requests, coalesce(sum(r.charged_nano), 0) AS charged_nano FROM usage_rollups r
     WHERE r.org_id = @org AND r.bucket >= s.start AND r.bucket < s.stop) c
 ORDER BY 1;

-- name: ReportChargedSince :one
SELECT coalesce(sum(charged_nano), 0)::bigint AS charged_nano FROM usage_rollups WHERE org_id = @org AND bucket >= @since;

-- name: ReportOtherTxns :many
-- Ledger transactions that are not usage and move what an organization may spend, newest first.
SELECT t.id, t.day, t.kind, t.memo, (-sum(e.amount_nano))::bigint AS amount_nano
  FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
 WHERE t.org_id = @org AND t.kind <> 'usage' AND (t.day, t.id) < (@before_day::date, @before_id::uuid) AND t.day <= @before_day::date
   AND e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable')
 GROUP BY t.id, t.day, t.kind, t.memo
 ORDER BY t.day DESC, t.id DESC LIMIT @max_rows;

-- name: ReportOtherTxnsSince :one
SELECT coalesce(-sum(e.amount_nano), 0)::bigint AS amount_nano
  FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
 WHERE t.org_id = @org AND t.kind <> 'usage' AND (t.day, t.id) >= (@since_day::date, @since_id::uuid) AND t.day >= @since_day::date
   AND e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable');

-- name: ReportSpendable :one
-- Credit less what is owed, by the books.
SELECT coalesce(-sum(amount_nano), 0)::bigint AS amount_nano FROM ledger_balances
 WHERE org_id = @org AND account IN ('prepaid_paid', 'prepaid_promo', 'receivable');

-- name: ReportOverruns :many
SELECT e.id, e.org_id, o.name AS org_name, e.overrun_nano, e.ended_at, e.ending FROM usage_events e JOIN orgs o ON o.org_id = e.org_id
 WHERE e.overrun_nano > 0 AND e.day >= @since_day::date AND e.day <= @before_day::date AND e.id < @before_id::uuid
 ORDER BY e.id DESC LIMIT @max_rows;

-- name: ReportOverrunTotal :one
SELECT coalesce(sum(overrun_nano), 0)::bigint AS nano, count(*)::bigint AS n FROM usage_events
 WHERE day >= @since_day::date AND overrun_nano > 0;

-- name: ReportQuarantine :many
SELECT * FROM quarantine WHERE resolved_at IS NULL AND id < @before_id::uuid ORDER BY id DESC LIMIT @max_rows;

-- name: ReportQuarantined :one
SELECT * FROM quarantine WHERE id = $1;

-- name: ReportQuarantineCount :one
SELECT count(*) FROM quarantine WHERE resolved_at IS NULL;

-- name: ReportLastReconcile :one
SELECT * FROM reconcile_runs ORDER BY at DESC LIMIT 1;

-- name: ReportOpenEpochs :many
SELECT e.id, e.process, e.started_at, e.heartbeat_at,
       coalesce(sum(a.allotted_nano - a.used_nano - a.returned_nano) FILTER (WHERE b.kind = 'balance'), 0)::bigint AS outstanding_nano
  FROM gateway_epochs e LEFT JOIN allotments a ON a.epoch_id = e.id LEFT JOIN budgets b ON b.org_id = a.org_id AND b.id = a.budget_id
 WHERE e.fenced_at IS NULL GROUP BY e.id ORDER BY e.id LIMIT 1000;
