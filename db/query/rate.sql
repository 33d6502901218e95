-- The rater and the fence: usage events into charges. Everything is set-based: one statement moves a whole batch.
--
-- Lock order, as for everyone: rater_offsets, gateway_epochs, ledger_balances by (org_id, account), allotments by
-- (budget_id, epoch_id), budgets by id; FOR NO KEY UPDATE. Only a fence locks an epoch FOR UPDATE.

-- ---- position in the log -----------------------------------------------------------------------------------------
-- name: RaterOffset :one
SELECT seq, last_at FROM rater_offsets WHERE shard = $1 AND incarnation = $2;

-- name: StartRaterOffset :execrows
INSERT INTO rater_offsets (shard, incarnation, seq) VALUES ($1, $2, 0) ON CONFLICT DO NOTHING;

-- name: AdvanceRater :execrows
-- Of two raters only one finds the old offset. No row: the other one won, or the database is an older copy.
UPDATE rater_offsets SET seq = sqlc.arg(seq), last_at = sqlc.arg(last_at), updated_at = clock_timestamp()
WHERE shard = sqlc.arg(shard) AND incarnation = sqlc.arg(incarnation) AND seq = sqlc.arg(old_seq);

-- name: ReplacedLogs :many
-- The logs before this one that gateways whose money has not come back wrote to, how far they were rated, and how far they
-- are known to have gone. Those whose end is in the goodbye of a gateway are listed with its fence.
SELECT s.incarnation::text AS incarnation, coalesce(o.seq, 0)::bigint AS rated, max(s.seq)::bigint AS seen
FROM (SELECT k.incarnation, (k.log_seen ->> k.incarnation)::bigint AS seq
        FROM (SELECT jsonb_object_keys(log_seen) AS incarnation, log_seen, log_end FROM gateway_epochs WHERE fenced_at IS NULL) k
       WHERE k.log_end IS NULL OR k.log_end ->> 'incarnation' <> k.incarnation) s
LEFT JOIN rater_offsets o ON o.shard = sqlc.arg(shard) AND o.incarnation = s.incarnation
WHERE s.incarnation <> sqlc.arg(incarnation)::text
  AND NOT EXISTS (SELECT FROM log_gaps g WHERE g.shard = sqlc.arg(shard) AND g.incarnation = s.incarnation AND (g.to_seq IS NULL OR g.to_seq > coalesce(o.seq, 0)))
GROUP BY s.incarnation, coalesce(o.seq, 0) ORDER BY s.incarnation;

-- name: ListGoneLog :exec
-- The end of a log that is gone, as a goodbye tells it: what of it is neither rated nor listed already.
INSERT INTO log_gaps (id, shard, incarnation, from_seq, to_seq)
SELECT sqlc.arg(id), sqlc.arg(shard), sqlc.arg(incarnation), l.from_seq, sqlc.arg(to_seq)::bigint
FROM (SELECT greatest(sqlc.arg(rated)::bigint, max(g.to_seq)) + 1 AS from_seq, coalesce(bool_or(g.to_seq IS NULL), false) AS open
        FROM log_gaps g WHERE g.shard = sqlc.arg(shard) AND g.incarnation = sqlc.arg(incarnation)) l
WHERE NOT l.open AND l.from_seq <= sqlc.arg(to_seq)::bigint;

-- name: InsertLogGap :exec
INSERT INTO log_gaps (id, shard, incarnation, from_seq, to_seq) VALUES ($1, $2, $3, $4, $5);

-- ---- what a batch needs to know ----------------------------------------------------------------------------------
-- name: EnsureDays :exec
SELECT ensure_day(d) FROM unnest(sqlc.arg(days)::date[]) d;

-- name: EnsureDaysOfBatch :exec
-- Also says that pages are in memory: the check of an event's organization is planned once per connection, and by the
-- default costs it would read a table of some hundred organizations whole, for every event.
SELECT set_config('random_page_cost', '1.1', true), ensure_day(d) FROM unnest(sqlc.arg(days)::date[]) d;

-- name: BooksOfOrgs :many
SELECT org_id, price_book FROM orgs WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]);

-- name: ContextOfModels :many
SELECT id, context_tokens FROM models WHERE id = ANY(sqlc.arg(models)::uuid[]);

-- name: PriceVersionsOfModels :many
-- Cancelled ones too: an event may name one.
SELECT * FROM price_versions WHERE model_id = ANY(sqlc.arg(models)::uuid[]) ORDER BY model_id, book, effective_at;

-- name: StateOfEpochs :many
SELECT id, (fenced_at IS NOT NULL)::boolean AS fenced, (voided_at IS NOT NULL)::boolean AS voided FROM gateway_epochs WHERE id = ANY(sqlc.arg(ids)::uuid[]);

-- name: HoldVoidedEpochs :many
-- Keeps fences out while money is raised for events of these epochs.
SELECT id FROM gateway_epochs
WHERE id = ANY(sqlc.arg(ids)::uuid[]) AND voided_at IS NOT NULL AND fenced_at IS NULL
ORDER BY id FOR KEY SHARE;

-- name: InsertLostEpochs :exec
-- Epochs that the log knows and this database does not: it is an older copy. They are dead from the start.
INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms, started_at, heartbeat_at, dead_at, voided_at)
SELECT i, 'unknown to this database', 0, 0, clock_timestamp(), clock_timestamp(), clock_timestamp(), clock_timestamp()
FROM unnest(sqlc.arg(ids)::uuid[]) i ORDER BY i
ON CONFLICT (id) DO NOTHING;

-- name: KnownEvents :many
-- Those of the events that are rated already.
SELECT e.org_id, e.id, e.ending FROM usage_events e
JOIN (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(days)::date[]) AS day, unnest(sqlc.arg(ids)::uuid[]) AS id) k
  ON k.org_id = e.org_id AND k.day = e.day AND k.id = e.id;

-- ---- money -------------------------------------------------------------------------------------------------------
-- name: LockAllotmentsToUse :many
SELECT a.org_id, a.budget_id, a.epoch_id, (a.allotted_nano - a.used_nano - a.returned_nano)::bigint AS rest
FROM allotments a
JOIN (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(budgets)::uuid[]) AS budget_id,
             unnest(sqlc.arg(epochs)::uuid[]) AS epoch_id) k
  ON k.org_id = a.org_id AND k.budget_id = a.budget_id AND k.epoch_id = a.epoch_id
ORDER BY a.budget_id, a.epoch_id
FOR NO KEY UPDATE OF a;

-- name: UseAllotments :execrows
UPDATE allotments a SET used_nano = a.used_nano + k.used
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(budgets)::uuid[]) AS budget_id,
             unnest(sqlc.arg(epochs)::uuid[]) AS epoch_id, unnest(sqlc.arg(used)::bigint[]) AS used) k
WHERE a.org_id = k.org_id AND a.budget_id = k.budget_id AND a.epoch_id = k.epoch_id;

-- name: BalancesOfOrgs :many
SELECT org_id, id FROM budgets WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]) AND kind = 'balance';

-- name: LockBudgetsToRaise :many
-- Of voided epochs only: what the budgets still have, the organization's balance in any case.
SELECT org_id, id, kind, (enforced_cap(cap_nano, raised_nano, raised_until) - settled_nano - outstanding_nano)::bigint AS free FROM budgets
WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]) AND (id = ANY(sqlc.arg(ids)::uuid[]) OR kind = 'balance')
ORDER BY id
FOR NO KEY UPDATE;

-- name: RaiseVoidedAllotments :exec
INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano)
SELECT k.org_id, k.budget_id, k.epoch_id, k.raised
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(budgets)::uuid[]) AS budget_id,
             unnest(sqlc.arg(epochs)::uuid[]) AS epoch_id, unnest(sqlc.arg(raised)::bigint[]) AS raised) k
ORDER BY k.budget_id, k.epoch_id
ON CONFLICT (org_id, budget_id, epoch_id) DO UPDATE SET allotted_nano = allotments.allotted_nano + excluded.allotted_nano;

-- name: SettleBudgets :one
-- The last locks of the transaction, by id. Tells which of them belong to caps: only those have thresholds.
WITH moved AS (
  SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(ids)::uuid[]) AS id,
         unnest(sqlc.arg(settled)::bigint[]) AS settled, unnest(sqlc.arg(outstanding)::bigint[]) AS outstanding
), locked AS (
  SELECT b.org_id, b.id, m.settled, m.outstanding FROM budgets b JOIN moved m ON m.org_id = b.org_id AND m.id = b.id
  ORDER BY b.id FOR NO KEY UPDATE OF b
), settled AS (
  UPDATE budgets b SET settled_nano = b.settled_nano + l.settled, outstanding_nano = b.outstanding_nano + l.outstanding
  FROM locked l WHERE b.org_id = l.org_id AND b.id = l.id
  RETURNING b.org_id, b.id, b.kind
)
SELECT count(*) AS moved, coalesce(array_agg(s.org_id ORDER BY s.id) FILTER (WHERE s.kind = 'cap'), '{}')::uuid[] AS cap_orgs,
       coalesce(array_agg(s.id ORDER BY s.id) FILTER (WHERE s.kind = 'cap'), '{}')::uuid[] AS caps
FROM settled s;

-- ---- events, rollups, streams ------------------------------------------------------------------------------------
-- name: InsertUsageEvents :exec
-- An event that is there already fails the statement. What many events share is passed once: an event names its group, by
-- the position in the arrays of groups (uuid and date only: others would be searched from the beginning each time).
INSERT INTO usage_events (org_id, day, project_id, key_id, model_id, price_version_id, epoch_id, txn_id, id,
  input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, image_tokens, audio_tokens, requests,
  charged_nano, overrun_nano, saved_nano, ending, status, estimated, repriced, streamed, dialect, attempts, raw,
  started_at, first_token_at, ended_at, service_tier)
SELECT (sqlc.arg(orgs)::uuid[])[e.grp], (sqlc.arg(days)::date[])[e.grp], (sqlc.arg(projects)::uuid[])[e.grp], (sqlc.arg(keys)::uuid[])[e.grp],
  (sqlc.arg(models)::uuid[])[e.grp], (sqlc.arg(price_versions)::uuid[])[e.grp], (sqlc.arg(epochs)::uuid[])[e.grp],
  NULLIF((sqlc.arg(txns)::uuid[])[e.grp], '00000000-0000-0000-0000-000000000000'), e.id,
  e.input_tokens, e.cached_tokens, e.cache_write_tokens, e.output_tokens, e.reasoning_tokens, e.image_tokens, e.audio_tokens, e.requests,
  e.charged_nano, e.overrun_nano, e.saved_nano, e.ending, e.status, e.flags & 1 <> 0, e.flags & 2 <> 0, e.flags & 4 <> 0, e.dialect, e.attempts::jsonb,
  NULLIF(e.raw, '')::jsonb, to_timestamp(e.started_ms / 1000::float8), to_timestamp(NULLIF(e.first_token_ms, 0) / 1000::float8), to_timestamp(e.ended_ms / 1000::float8),
  CASE WHEN e.flags & 8 <> 0 THEN 'priority' WHEN e.flags & 16 <> 0 THEN 'batch' ELSE '' END
FROM (SELECT unnest(sqlc.arg(groups)::int[]) AS grp, unnest(sqlc.arg(ids)::uuid[]) AS id,
  unnest(sqlc.arg(input)::bigint[]) AS input_tokens, unnest(sqlc.arg(cached)::bigint[]) AS cached_tokens,
  unnest(sqlc.arg(cache_write)::bigint[]) AS cache_write_tokens, unnest(sqlc.arg(output)::bigint[]) AS output_tokens,
  unnest(sqlc.arg(reasoning)::bigint[]) AS reasoning_tokens, unnest(sqlc.arg(image)::bigint[]) AS image_tokens,
  unnest(sqlc.arg(audio)::bigint[]) AS audio_tokens, unnest(sqlc.arg(requests)::bigint[]) AS requests,
  unnest(sqlc.arg(charged)::bigint[]) AS charged_nano, unnest(sqlc.arg(overrun)::bigint[]) AS overrun_nano, unnest(sqlc.arg(saved)::bigint[]) AS saved_nano,
  unnest(sqlc.arg(endings)::text[]) AS ending, unnest(sqlc.arg(statuses)::int[]) AS status, unnest(sqlc.arg(flags)::int[]) AS flags,
  unnest(sqlc.arg(dialects)::text[]) AS dialect, unnest(sqlc.arg(attempts)::text[]) AS attempts, unnest(sqlc.arg(raws)::text[]) AS raw,
  unnest(sqlc.arg(started_ms)::bigint[]) AS started_ms, unnest(sqlc.arg(first_token_ms)::bigint[]) AS first_token_ms,
  unnest(sqlc.arg(ended_ms)::bigint[]) AS ended_ms) e;

-- name: AddRollups :exec
INSERT INTO usage_rollups AS r (org_id, bucket, project_id, key_id, model_id, price_version_id, service_tier, requests, errors,
  input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, image_tokens, audio_tokens,
  charged_nano, overrun_nano, saved_nano, ttft_ms_sum, ttft_count, decode_ms_sum, billed_requests)
SELECT a.* FROM (SELECT
  unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(buckets)::timestamptz[]) AS bucket,
  unnest(sqlc.arg(projects)::uuid[]) AS project_id, unnest(sqlc.arg(keys)::uuid[]) AS key_id,
  unnest(sqlc.arg(models)::uuid[]) AS model_id, unnest(sqlc.arg(versions)::uuid[]) AS price_version_id,
  unnest(sqlc.arg(services)::text[]) AS service_tier, unnest(sqlc.arg(requests)::bigint[]) AS requests,
  unnest(sqlc.arg(errors)::bigint[]) AS errors, unnest(sqlc.arg(input)::bigint[]) AS input_tokens,
  unnest(sqlc.arg(cached)::bigint[]) AS cached_tokens, unnest(sqlc.arg(cache_write)::bigint[]) AS cache_write_tokens,
  unnest(sqlc.arg(output)::bigint[]) AS output_tokens, unnest(sqlc.arg(reasoning)::bigint[]) AS reasoning_tokens,
  unnest(sqlc.arg(image)::bigint[]) AS image_tokens, unnest(sqlc.arg(audio)::bigint[]) AS audio_tokens,
  unnest(sqlc.arg(charged)::bigint[]) AS charged_nano, unnest(sqlc.arg(overrun)::bigint[]) AS overrun_nano,
  unnest(sqlc.arg(saved)::bigint[]) AS saved_nano, unnest(sqlc.arg(ttft_ms_sum)::bigint[]) AS ttft_ms_sum,
  unnest(sqlc.arg(ttft_count)::bigint[]) AS ttft_count, unnest(sqlc.arg(decode_ms_sum)::bigint[]) AS decode_ms_sum,
  unnest(sqlc.arg(billed)::bigint[]) AS billed_requests) a
ORDER BY a.org_id, a.bucket, a.project_id, a.key_id, a.model_id, a.price_version_id, a.service_tier
ON CONFLICT (org_id, bucket, project_id, key_id, model_id, price_version_id, service_tier) DO UPDATE SET
  requests = r.requests + excluded.requests, errors = r.errors + excluded.errors,
  input_tokens = r.input_tokens + excluded.input_tokens, cached_tokens = r.cached_tokens + excluded.cached_tokens,
  cache_write_tokens = r.cache_write_tokens + excluded.cache_write_tokens, output_tokens = r.output_tokens + excluded.output_tokens,
  reasoning_tokens = r.reasoning_tokens + excluded.reasoning_tokens, image_tokens = r.image_tokens + excluded.image_tokens,
  audio_tokens = r.audio_tokens + excluded.audio_tokens, charged_nano = r.charged_nano + excluded.charged_nano,
  overrun_nano = r.overrun_nano + excluded.overrun_nano, saved_nano = r.saved_nano + excluded.saved_nano,
  ttft_ms_sum = r.ttft_ms_sum + excluded.ttft_ms_sum, ttft_count = r.ttft_count + excluded.ttft_count,
  decode_ms_sum = r.decode_ms_sum + excluded.decode_ms_sum, billed_requests = r.billed_requests + excluded.billed_requests;

-- name: UpsertProgress :exec
-- The log may be read again: a stream that has ended stays ended. News of a fenced epoch come too late: nobody would close
-- its streams any more.
INSERT INTO stream_progress AS p (org_id, event_id, epoch_id, progress, event)
SELECT k.org_id, k.event_id, k.epoch_id, k.progress, k.event::jsonb
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(days)::date[]) AS day, unnest(sqlc.arg(ids)::uuid[]) AS event_id,
             unnest(sqlc.arg(epochs)::uuid[]) AS epoch_id, unnest(sqlc.arg(progress)::bigint[]) AS progress, unnest(sqlc.arg(events)::text[]) AS event) k
WHERE NOT EXISTS (SELECT FROM usage_events e WHERE e.org_id = k.org_id AND e.day = k.day AND e.id = k.event_id)
  AND NOT EXISTS (SELECT FROM gateway_epochs g WHERE g.id = k.epoch_id AND g.fenced_at IS NOT NULL)
ON CONFLICT (org_id, event_id) DO UPDATE SET progress = excluded.progress, event = excluded.event
WHERE p.progress < excluded.progress;

-- name: DeleteProgress :exec
DELETE FROM stream_progress p
USING (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(ids)::uuid[]) AS event_id) k
WHERE p.org_id = k.org_id AND p.event_id = k.event_id;

-- ---- quarantine --------------------------------------------------------------------------------------------------
-- name: InsertQuarantine :execrows
INSERT INTO quarantine (id, org_id, event_id, shard, incarnation, seq, position, reason, payload) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (incarnation, shard, seq, position) DO NOTHING;

-- name: LockQuarantined :one
SELECT * FROM quarantine WHERE id = $1 FOR NO KEY UPDATE;

-- name: ResolveQuarantined :exec
UPDATE quarantine SET resolved_at = clock_timestamp(), decision = sqlc.arg(decision)::text, decided_by = sqlc.arg(decided_by)::text, resolution = sqlc.arg(resolution)::text
WHERE id = $1 AND resolved_at IS NULL;

-- ---- fence -------------------------------------------------------------------------------------------------------
-- name: EpochsToFence :many
-- expired: validity and the longest request have passed since the last heartbeat, or since the epoch was voided.
SELECT id, process, data_lock, goodbye_at, dead_at, log_end, voided_at,
  (clock_timestamp() > greatest(heartbeat_at, voided_at) + (valid_ms + request_max_ms) * interval '1 millisecond')::boolean AS expired,
  (dead_at IS NOT NULL AND clock_timestamp() > dead_at + sqlc.arg(grace_ms)::bigint * interval '1 millisecond')::boolean AS settled
FROM gateway_epochs WHERE fenced_at IS NULL ORDER BY id;

-- name: MarkEpochDead :execrows
UPDATE gateway_epochs SET dead_at = clock_timestamp() WHERE id = $1 AND dead_at IS NULL AND fenced_at IS NULL;

-- name: MarkEpochExpired :execrows
-- A heartbeat that came meanwhile wins.
UPDATE gateway_epochs SET dead_at = clock_timestamp()
WHERE id = $1 AND dead_at IS NULL AND fenced_at IS NULL
  AND clock_timestamp() > greatest(heartbeat_at, voided_at) + (valid_ms + request_max_ms) * interval '1 millisecond';

-- name: SetEpochLogEnd :execrows
UPDATE gateway_epochs SET log_end = $2 WHERE id = $1 AND log_end IS NULL AND fenced_at IS NULL;

-- name: ProgressOfEpoch :many
SELECT org_id, event_id, event FROM stream_progress WHERE epoch_id = $1 ORDER BY org_id, event_id;

-- name: LockAllotmentsOfFence :many
-- Nothing of a fenced epoch may move any more, so all of its rows are locked, then their budgets.
SELECT org_id, budget_id FROM allotments WHERE epoch_id = $1 ORDER BY budget_id FOR NO KEY UPDATE;

-- name: LockBudgetsOfFence :many
SELECT b.id FROM budgets b JOIN allotments a ON a.org_id = b.org_id AND a.budget_id = b.id
WHERE a.epoch_id = $1 ORDER BY b.id FOR NO KEY UPDATE OF b;

-- name: FenceEpoch :execrows
UPDATE gateway_epochs SET fenced_at = clock_timestamp(), dead_at = coalesce(dead_at, clock_timestamp())
WHERE id = $1 AND fenced_at IS NULL;

-- name: VoidEpochs :execrows
UPDATE gateway_epochs SET voided_at = clock_timestamp() WHERE fenced_at IS NULL AND voided_at IS NULL;
