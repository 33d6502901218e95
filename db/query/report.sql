-- Reads of rated usage, for pages, the control API and exports. Every one of them reads rollups or one request.

-- name: ReportCells :many
SELECT (CASE @step::text
          WHEN 'day' THEN date_trunc('day', r.bucket, @zone::text)
          WHEN 'hour' THEN date_trunc('hour', r.bucket, @zone::text)
          ELSE @since::timestamptz END)::timestamptz AS start,
       (CASE @grp::text WHEN 'model' THEN r.model_id WHEN 'key' THEN r.key_id WHEN 'project' THEN r.project_id WHEN 'org' THEN r.org_id
          ELSE '00000000-0000-0000-0000-000000000000'::uuid END)::uuid AS grp,
       sum(r.requests)::bigint AS requests, sum(r.errors)::bigint AS errors,
       sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
       sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
       sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
       sum(r.audio_tokens)::bigint AS audio_tokens,
       sum(r.charged_nano)::bigint AS charged_nano, sum(r.overrun_nano)::bigint AS overrun_nano, sum(r.saved_nano)::bigint AS saved_nano,
       sum(r.ttft_ms_sum)::bigint AS ttft_ms_sum, sum(r.ttft_count)::bigint AS ttft_count, sum(r.decode_ms_sum)::bigint AS decode_ms_sum
  FROM usage_rollups r
 WHERE r.bucket >= @since AND r.bucket < @until
   AND (sqlc.narg('org')::uuid IS NULL OR r.org_id = sqlc.narg('org'))
   AND (sqlc.narg('model')::uuid IS NULL OR r.model_id = sqlc.narg('model'))
   AND (sqlc.narg('key')::uuid IS NULL OR r.key_id = sqlc.narg('key'))
   AND (sqlc.narg('project')::uuid IS NULL OR r.project_id = sqlc.narg('project'))
 GROUP BY 1, 2 ORDER BY 1, 2 LIMIT @max_rows;

-- name: ReportLabels :many
SELECT id, name::text AS label FROM models WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM api_keys WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM projects WHERE id = ANY(@list::uuid[])
UNION ALL SELECT org_id, name FROM orgs WHERE org_id = ANY(@list::uuid[]);

-- name: ReportRequests :many
-- A page of rated requests, newest first; before is the id of the last row of the page before.
SELECT e.*, m.name AS model_name, k.name AS key_name, p.name AS project_name
  FROM usage_events e
  JOIN models m ON m.id = e.model_id
  LEFT JOIN api_keys k ON k.org_id = e.org_id AND k.id = e.key_id
  LEFT JOIN projects p ON p.org_id = e.org_id AND p.id = e.project_id
 WHERE e.org_id = @org
   AND (e.day, e.id) < (@before_day::date, @before_id::uuid)
   AND e.day <= @before_day::date
   AND (sqlc.narg('model')::uuid IS NULL OR e.model_id = sqlc.narg('model'))
   AND (sqlc.narg('key')::uuid IS NULL OR e.key_id = sqlc.narg('key'))
   AND (NOT @failed::bool OR e.ending <> 'complete')
 ORDER BY e.day DESC, e.id DESC LIMIT @max_rows;

-- name: ReportFirstTokens :one
-- Quantiles of the time to first token in milliseconds, over at most the newest 5,000 streamed requests since a moment.
SELECT coalesce(percentile_disc(0.5) WITHIN GROUP (ORDER BY ms), 0)::bigint AS p50,
       coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY ms), 0)::bigint AS p95, count(*)::bigint AS n
  FROM (SELECT (extract(epoch FROM e.first_token_at - e.started_at) * 1000)::bigint AS ms
          FROM usage_events e
         WHERE e.day >= @since_day::date AND e.id >= @since_id::uuid AND e.first_token_at IS NOT NULL
           AND (sqlc.narg('org')::uuid IS NULL OR e.org_id = sqlc.narg('org'))
         ORDER BY e.day DESC, e.id DESC LIMIT 5000) newest;

-- name: ReportRevenue :many
SELECT r.org_id, o.name AS org_name, m.name AS model_name, sum(r.requests)::bigint AS requests,
       sum(r.input_tokens)::bigint AS input_tokens, sum(r.cached_tokens)::bigint AS cached_tokens,
       sum(r.cache_write_tokens)::bigint AS cache_write_tokens, sum(r.output_tokens)::bigint AS output_tokens,
       sum(r.reasoning_tokens)::bigint AS reasoning_tokens, sum(r.image_tokens)::bigint AS image_tokens,
       sum(r.audio_tokens)::bigint AS audio_tokens, sum(r.charged_nano)::bigint AS charged_nano
  FROM usage_rollups r JOIN orgs o ON o.org_id = r.org_id JOIN models m ON m.id = r.model_id
 WHERE r.bucket >= @since AND r.bucket < @until
 GROUP BY 1, 2, 3 ORDER BY 2, 3 LIMIT @max_rows;

-- name: ReportOrgActivity :many
-- Per organization: usage since a moment and its last bucket.
SELECT r.org_id, sum(r.charged_nano)::bigint AS charged_nano, sum(r.requests)::bigint AS requests, max(r.bucket)::timestamptz AS last_bucket
  FROM usage_rollups r WHERE r.bucket >= @since AND r.org_id = ANY(@orgs::uuid[]) GROUP BY 1;

-- name: ReportLedger :many
-- Movements of what an organization may spend, newest first. A usage transaction of a batch is a line; pages add days up.
SELECT t.id, t.day, t.kind, t.memo, t.created_at,
       (-sum(e.amount_nano) FILTER (WHERE e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable')))::bigint AS amount_nano
  FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
 WHERE t.org_id = @org AND (t.day, t.id) < (@before_day::date, @before_id::uuid) AND t.day <= @before_day::date
   AND e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable')
 GROUP BY t.id, t.day, t.kind, t.memo, t.created_at
 ORDER BY t.day DESC, t.id DESC LIMIT @max_rows;

-- name: ReportLedgerDays :many
-- The same, with usage added up by day: what a customer reads.
SELECT t.day, t.kind, (CASE WHEN t.kind = 'usage' THEN '' ELSE t.memo END)::text AS memo,
       max(t.created_at)::timestamptz AS at, count(DISTINCT t.id)::bigint AS txns, (array_agg(t.id ORDER BY t.id DESC))[1]::uuid AS last_txn,
       (-sum(e.amount_nano))::bigint AS amount_nano
  FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
 WHERE t.org_id = @org AND t.day < @before_day::date AND e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable')
 GROUP BY t.day, t.kind, 3, (CASE WHEN t.kind = 'usage' THEN t.day::text ELSE t.id::text END)
 ORDER BY t.day DESC, at DESC LIMIT @max_rows;

-- name: ReportLedgerTotal :one
SELECT coalesce(-sum(e.amount_nano), 0)::bigint FROM ledger_entries e
 WHERE e.org_id = @org AND e.day < @before_day::date AND e.account IN ('prepaid_paid', 'prepaid_promo', 'receivable');

-- name: ReportOverruns :many
SELECT e.id, e.org_id, o.name AS org_name, e.overrun_nano, e.ended_at, e.ending FROM usage_events e JOIN orgs o ON o.org_id = e.org_id
 WHERE e.day >= @since_day::date AND e.overrun_nano > 0 ORDER BY e.day DESC, e.id DESC LIMIT @max_rows;

-- name: ReportOverrunTotal :one
SELECT coalesce(sum(overrun_nano), 0)::bigint AS nano, coalesce(count(*) , 0)::bigint AS n FROM usage_events
 WHERE day >= @since_day::date AND overrun_nano > 0;

-- name: ReportQuarantine :many
SELECT id, org_id, reason, payload, created_at FROM quarantine WHERE resolved_at IS NULL AND id < @before_id::uuid ORDER BY id DESC LIMIT @max_rows;

-- name: ReportQuarantineCount :one
SELECT count(*) FROM quarantine WHERE resolved_at IS NULL;


-- name: ReportLastReconcile :one
SELECT * FROM reconcile_runs ORDER BY at DESC LIMIT 1;

-- name: ReportOpenEpochs :many
SELECT e.id, e.process, e.started_at, e.heartbeat_at,
       coalesce(sum(a.allotted_nano - a.used_nano - a.returned_nano) FILTER (WHERE b.kind = 'balance'), 0)::bigint AS outstanding_nano
  FROM gateway_epochs e LEFT JOIN allotments a ON a.epoch_id = e.id LEFT JOIN budgets b ON b.org_id = a.org_id AND b.id = a.budget_id
 WHERE e.fenced_at IS NULL GROUP BY e.id ORDER BY e.id LIMIT 1000;
