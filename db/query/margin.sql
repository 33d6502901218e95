-- What serving costs. Hours are accrued one at a time, each by one transaction that makes it anew.

-- name: MarginLock :exec
SELECT pg_advisory_xact_lock(hashtext('margin'));

-- name: MarginOpenHours :many
-- The hours since a moment that are not accrued for good.
SELECT g.hour::timestamptz AS hour
  FROM generate_series(@since::timestamptz, @last::timestamptz, interval '1 hour') AS g(hour)
 WHERE NOT EXISTS (SELECT FROM margin_hours m WHERE m.hour = g.hour AND m.final) ORDER BY 1;

-- name: MarginHosts :many
-- The hosts of a span of time, with what a GPU of their fleet costs; -1 = not known. A host without GPUs counts as one.
SELECT h.id, greatest(1, CASE WHEN jsonb_typeof(h.observed -> 'gpus') = 'array' THEN jsonb_array_length(h.observed -> 'gpus') ELSE 0 END)::bigint AS gpus,
       coalesce((h.observed ->> 'simulated')::boolean, false)::boolean AS simulated,
       greatest(h.joined_at, @start)::timestamptz AS since, least(coalesce(h.removed_at, @stop), @stop)::timestamptz AS until,
       coalesce((SELECT p.gpu_hour_nano FROM gpu_prices p
                  WHERE p.provider = h.provider AND p.region = h.region AND p.capacity_kind = h.capacity_kind AND p.effective_at <= @start
                  ORDER BY p.effective_at DESC LIMIT 1), -1)::bigint AS gpu_hour_nano
  FROM hosts h WHERE h.joined_at < @stop AND (h.removed_at IS NULL OR h.removed_at > @start) ORDER BY h.id;

-- name: MarginUnits :many
-- What ran on hosts, by the unit it belongs to. gpus is how many a unit had on its host; 0 = not told.
SELECT coalesce(u.part_of, u.id)::uuid AS id, u.host_id, u.model_id, u.engine, sum(cardinality(u.gpus))::bigint AS gpus FROM units u
 WHERE u.host_id IS NOT NULL AND u.state <> 'planned' AND u.created_at < @stop::timestamptz AND (u.removed_at IS NULL OR u.removed_at > @start::timestamptz)
 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2;

-- name: MarginUse :many
-- What units served that started in a span. The last attempt is the one that served; an engine that is part of a unit counts
-- for the unit.
WITH active AS (SELECT DISTINCT r.org_id FROM usage_rollups r WHERE r.bucket >= @start AND r.bucket < @stop)
SELECT coalesce(u.part_of, (e.attempts -> -1 ->> 'unit')::uuid)::uuid AS unit_id, e.org_id, e.model_id, sum(e.input_tokens)::bigint AS input_tokens,
       sum(e.cached_tokens)::bigint AS cached_tokens, sum(e.cache_write_tokens)::bigint AS cache_write_tokens,
       sum(e.output_tokens)::bigint AS output_tokens, sum(e.reasoning_tokens)::bigint AS reasoning_tokens,
       sum(e.image_tokens)::bigint AS image_tokens, sum(e.audio_tokens)::bigint AS audio_tokens
  FROM active a JOIN usage_events e ON e.org_id = a.org_id LEFT JOIN units u ON u.id = (e.attempts -> -1 ->> 'unit')::uuid
 WHERE e.day BETWEEN @from_day::date AND @to_day::date AND e.id >= @from_id AND e.id < @to_id
   AND e.started_at >= @start AND e.started_at < @stop AND e.attempts -> -1 ->> 'unit' IS NOT NULL
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: MarginBusy :many
-- How long at least one request ran on each unit in a span, in milliseconds.
WITH active AS (SELECT DISTINCT r.org_id FROM usage_rollups r WHERE r.bucket >= @early AND r.bucket < @stop),
ran AS (
  SELECT coalesce(u.part_of, (e.attempts -> -1 ->> 'unit')::uuid) AS unit_id,
         range_agg(tstzrange(greatest(e.started_at, @start::timestamptz), least(greatest(e.ended_at, e.started_at), @stop::timestamptz))) AS spans
    FROM active a JOIN usage_events e ON e.org_id = a.org_id LEFT JOIN units u ON u.id = (e.attempts -> -1 ->> 'unit')::uuid
   WHERE e.day BETWEEN @from_day::date AND @to_day::date AND e.id >= @from_id AND e.id < @to_id
     AND e.started_at < @stop AND e.ended_at > @start::timestamptz AND e.attempts -> -1 ->> 'unit' IS NOT NULL
   GROUP BY 1)
SELECT r.unit_id::uuid AS unit_id, (sum(extract(epoch FROM upper(s) - lower(s))) * 1000)::bigint AS busy_ms
  FROM ran r CROSS JOIN LATERAL unnest(r.spans) AS s GROUP BY 1;

-- name: MarginForget :exec
DELETE FROM margin_hours WHERE hour = $1;

-- name: MarginHour :exec
INSERT INTO margin_hours (hour, until, final) VALUES ($1, $2, $3);

-- name: MarginUnit :exec
INSERT INTO margin_units (hour, host_id, unit_id, model_id, gpu_ms, busy_ms, cost_nano, idle_nano, simulated)
VALUES ($1, $2, $3, sqlc.narg(model_id), $4, $5, sqlc.narg(cost_nano), sqlc.narg(idle_nano), $6);

-- name: MarginOrg :exec
INSERT INTO margin_orgs (hour, unit_id, org_id, model_id, weighted, tokens, cost_nano)
VALUES ($1, $2, $3, $4, $5, $6, sqlc.narg(cost_nano));

-- name: MarginUnitSums :many
-- Costs of a span by step (hour, day or all of it) and model; the nil model is hosts that served nothing. priced_ms is the
-- GPU time whose price is known.
SELECT (CASE @step::text WHEN 'hour' THEN m.hour WHEN 'day' THEN date_trunc('day', m.hour, 'UTC') ELSE @start::timestamptz END)::timestamptz AS step,
       coalesce(m.model_id, '00000000-0000-0000-0000-000000000000')::uuid AS model_id, sum(m.gpu_ms)::bigint AS gpu_ms, sum(m.busy_ms)::bigint AS busy_ms,
       coalesce(sum(m.gpu_ms) FILTER (WHERE m.cost_nano IS NOT NULL), 0)::bigint AS priced_ms,
       coalesce(sum(m.cost_nano), 0)::bigint AS cost_nano, coalesce(sum(m.idle_nano), 0)::bigint AS idle_nano, bool_or(m.simulated)::boolean AS simulated
  FROM margin_units m WHERE m.hour >= @start AND m.hour < @stop GROUP BY 1, 2 ORDER BY 1, 2;

-- name: MarginOrgSums :many
SELECT m.org_id, sum(m.tokens)::bigint AS tokens, coalesce(sum(m.cost_nano), 0)::bigint AS cost_nano,
       bool_and(m.cost_nano IS NOT NULL)::boolean AS known
  FROM margin_orgs m WHERE m.hour >= @start AND m.hour < @stop GROUP BY 1 ORDER BY 1;

-- name: MarginOfOrgs :many
SELECT m.org_id, coalesce(sum(m.cost_nano), 0)::bigint AS cost_nano, bool_and(m.cost_nano IS NOT NULL)::boolean AS known
  FROM margin_orgs m WHERE m.org_id = ANY(@orgs::uuid[]) AND m.hour >= @start AND m.hour < @stop GROUP BY 1;

-- name: MarginFleets :many
-- The fleets that have hosts, or a price, with the price in force; -1 = none.
SELECT f.provider, f.region, f.capacity_kind, f.hosts,
       coalesce((SELECT p.gpu_hour_nano FROM gpu_prices p WHERE p.provider = f.provider AND p.region = f.region AND p.capacity_kind = f.capacity_kind
                    AND p.effective_at <= @now ORDER BY p.effective_at DESC LIMIT 1), -1)::bigint AS gpu_hour_nano
  FROM (SELECT x.provider, x.region, x.capacity_kind, sum(x.hosts)::bigint AS hosts
          FROM (SELECT h.provider, h.region, h.capacity_kind, count(*) AS hosts FROM hosts h WHERE h.removed_at IS NULL GROUP BY 1, 2, 3
                UNION ALL SELECT DISTINCT p.provider, p.region, p.capacity_kind, 0 FROM gpu_prices p) x
         GROUP BY 1, 2, 3) f
 ORDER BY 1, 2, 3;

-- name: InsertGPUPrice :execrows
INSERT INTO gpu_prices (id, provider, region, capacity_kind, gpu_hour_nano, effective_at, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (provider, region, capacity_kind, effective_at) DO NOTHING;

-- name: MarginFirstHour :one
-- The first accrued hour of a span from which on every GPU has a price; the first accrued one when the last has none either.
SELECT (CASE WHEN max(u.hour) FILTER (WHERE u.cost_nano IS NULL) < max(u.hour)
             THEN max(u.hour) FILTER (WHERE u.cost_nano IS NULL) + interval '1 hour' ELSE min(u.hour) END)::timestamptz AS hour
  FROM margin_units u WHERE u.hour >= @start AND u.hour < @stop HAVING min(u.hour) IS NOT NULL;

-- name: MarginModelCost :one
-- What a model's units cost, idle time included, and the tokens of the same hours; only hours with a price.
SELECT coalesce(sum(u.cost_nano), 0)::bigint AS cost_nano,
       coalesce(sum((SELECT sum(o.tokens) FROM margin_orgs o WHERE o.hour = u.hour AND o.unit_id = u.unit_id AND o.model_id = u.model_id)), 0)::bigint AS tokens
  FROM margin_units u WHERE u.hour >= @start AND u.hour < @stop AND u.model_id = @model::uuid AND u.cost_nano IS NOT NULL;
