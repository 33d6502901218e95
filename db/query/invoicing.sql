-- What drafting waits for, and the running month.

-- name: DatabaseNow :one
SELECT clock_timestamp()::timestamptz AS now;

-- name: RatedTo :one
-- How far a log is rated, by the log's own time.
SELECT seq, last_at FROM rater_offsets WHERE incarnation = sqlc.arg(incarnation) ORDER BY updated_at DESC LIMIT 1;

-- name: FreshMonths :many
-- Months whose invoices were all drafted for the first time not long ago.
SELECT month FROM invoice_months WHERE drafted_at > sqlc.arg(since)::timestamptz AND drafted_at <= sqlc.arg(now)::timestamptz ORDER BY month LIMIT sqlc.arg(max_rows);

-- name: CoveredDays :many
-- CoveredAccounts by the sums of days: a month begins and freezes with a day.
SELECT usage_month, account, sum(amount_nano)::bigint AS amount_nano FROM ledger_days
WHERE org_id = sqlc.arg(org_id) AND kind = 'usage' AND day >= sqlc.arg(from_day)::date AND day < sqlc.arg(to_day)::date
  AND (usage_month = sqlc.arg(month)::date OR usage_month < sqlc.arg(month)::date AND day >= sqlc.arg(late_day)::date)
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: RolledUsage :many
-- The tokens of a month that runs, as CoveredUsage has them, by quarters of an hour. A request's month is its id's, its quarter that
-- of its start, a moment apart: the month's first quarter is read request by request.
SELECT u.model_id, u.price_version_id, u.service_tier, sum(u.events)::bigint AS events,
       sum(u.input_tokens)::bigint AS input, sum(u.cached_tokens)::bigint AS cached, sum(u.cache_write_tokens)::bigint AS cache_write,
       sum(u.output_tokens)::bigint AS output, sum(u.reasoning_tokens)::bigint AS reasoning, sum(u.image_tokens)::bigint AS image,
       sum(u.audio_tokens)::bigint AS audio, sum(u.billed)::bigint AS requests
FROM (SELECT r.model_id, r.price_version_id, r.service_tier, r.requests AS events, r.input_tokens, r.cached_tokens, r.cache_write_tokens,
             r.output_tokens, r.reasoning_tokens, r.image_tokens, r.audio_tokens, r.billed_requests AS billed
        FROM usage_rollups r
       WHERE r.org_id = sqlc.arg(org_id) AND r.bucket >= sqlc.arg(first_quarter_end)::timestamptz AND r.bucket < sqlc.arg(to_at)::timestamptz
         AND r.charged_nano + r.overrun_nano > 0 -- what is free has no transaction
      UNION ALL
      SELECT e.model_id, e.price_version_id, e.service_tier, 1, e.input_tokens, e.cached_tokens, e.cache_write_tokens,
             e.output_tokens, e.reasoning_tokens, e.image_tokens, e.audio_tokens, e.requests
        FROM usage_events e
       WHERE e.org_id = sqlc.arg(org_id) AND e.day = sqlc.arg(first_day)::date AND e.id < sqlc.arg(edge_id)::uuid
         AND e.started_at < sqlc.arg(first_quarter_end)::timestamptz AND e.txn_id IS NOT NULL) u
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
