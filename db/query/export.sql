-- What billing/export reads, page by page inside one snapshot. Partitions are days of ids; what a row belongs to is when it
-- started. A gateway makes the id as it starts, so both lie close together.

-- name: ExportRequests :many
-- A page of one partition in the order of its key. Row-level security narrows it to an organization by itself.
SELECT e.org_id, e.id, e.project_id, e.key_id, e.model_id, e.price_version_id, e.txn_id, e.input_tokens, e.cached_tokens,
       e.cache_write_tokens, e.output_tokens, e.reasoning_tokens, e.image_tokens, e.audio_tokens, e.requests, e.charged_nano,
       e.overrun_nano, e.saved_nano, e.ending, e.status, e.estimated, e.repriced, e.streamed, e.dialect, e.service_tier, e.started_at,
       e.first_token_at, e.ended_at
  FROM usage_events e
 WHERE e.day = @day::date AND (e.org_id, e.day, e.id) > (@after_org::uuid, @day::date, @after_id::uuid)
   AND e.started_at >= @start AND e.started_at < @stop
 ORDER BY e.org_id, e.day, e.id LIMIT @max_rows;

-- name: ExportOrgs :many
-- The next organizations that used something in a span.
SELECT DISTINCT r.org_id FROM usage_rollups r
 WHERE r.bucket >= @start AND r.bucket < @stop AND r.org_id > @after_org
 ORDER BY 1 LIMIT @max_rows;

-- name: ExportSums :many
-- The usage of some organizations that started in a span, by project, model, price version and service tier: whole quarters of
-- an hour from rollups, the span's ragged ends, if it has any, from the requests.
SELECT u.org_id, u.project_id, u.model_id, u.price_version_id, u.service_tier, sum(u.requests)::bigint AS requests,
       sum(u.input_tokens)::bigint AS input_tokens, sum(u.cached_tokens)::bigint AS cached_tokens,
       sum(u.cache_write_tokens)::bigint AS cache_write_tokens, sum(u.output_tokens)::bigint AS output_tokens,
       sum(u.reasoning_tokens)::bigint AS reasoning_tokens, sum(u.image_tokens)::bigint AS image_tokens,
       sum(u.audio_tokens)::bigint AS audio_tokens, sum(u.charged_nano)::bigint AS charged_nano,
       sum(u.overrun_nano)::bigint AS overrun_nano, sum(u.saved_nano)::bigint AS saved_nano
  FROM (SELECT r.org_id, r.project_id, r.model_id, r.price_version_id, r.service_tier, r.billed_requests AS requests, r.input_tokens, r.cached_tokens, r.cache_write_tokens,
               r.output_tokens, r.reasoning_tokens, r.image_tokens, r.audio_tokens, r.charged_nano, r.overrun_nano, r.saved_nano
          FROM usage_rollups r
         WHERE r.org_id = ANY(@orgs::uuid[]) AND r.bucket >= @whole_start AND r.bucket < @whole_stop
        UNION ALL
        SELECT e.org_id, e.project_id, e.model_id, e.price_version_id, e.service_tier, e.requests, e.input_tokens, e.cached_tokens, e.cache_write_tokens,
               e.output_tokens, e.reasoning_tokens, e.image_tokens, e.audio_tokens, e.charged_nano, e.overrun_nano, e.saved_nano
          FROM usage_events e
         WHERE @ragged::boolean AND e.org_id = ANY(@orgs::uuid[]) AND e.day BETWEEN @from_day::date AND @to_day::date
           AND e.id >= @from_id AND e.id < @to_id AND e.started_at >= @start AND e.started_at < @stop
           AND NOT (e.started_at >= @whole_start AND e.started_at < @whole_stop)) u
 GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;

-- name: ExportNames :many
-- hidden = a key of the playground.
SELECT id, name::text AS label, false AS hidden FROM models WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name, hidden FROM api_keys WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name, false FROM projects WHERE id = ANY(@list::uuid[])
UNION ALL SELECT org_id, name, false FROM orgs WHERE org_id = ANY(@list::uuid[]);

-- name: ExportNow :one
-- The first statement takes the snapshot.
SELECT transaction_timestamp()::timestamptz AS at;
