-- What a statement's line of usage is made of.

-- name: StatementEventIDs :many
-- Requests that were booked by transactions of a span, newest first.
SELECT e.day, e.id FROM usage_events e
WHERE e.org_id = sqlc.arg(org) AND e.day = ANY(sqlc.arg(days)::date[])
  AND (e.day, e.id) < (sqlc.arg(before_day)::date, sqlc.arg(before_id)::uuid)
  AND e.txn_id >= sqlc.arg(from_txn)::uuid AND e.txn_id < sqlc.arg(to_txn)::uuid
ORDER BY e.day DESC, e.id DESC LIMIT sqlc.arg(max_rows);

-- name: StatementEventSum :one
SELECT coalesce(sum(e.charged_nano), 0)::bigint AS charged, count(*) AS requests FROM usage_events e
WHERE e.org_id = sqlc.arg(org) AND e.day = ANY(sqlc.arg(days)::date[])
  AND e.txn_id >= sqlc.arg(from_txn)::uuid AND e.txn_id < sqlc.arg(to_txn)::uuid;

-- name: StatementRedriven :many
-- Events that were booked out of quarantine about then: they may be older than the usage log keeps any.
SELECT event_id::uuid AS event_id FROM quarantine
WHERE org_id = sqlc.arg(org)::uuid AND decision = 'booked' AND event_id IS NOT NULL
  AND resolved_at >= sqlc.arg(since)::timestamptz AND resolved_at < sqlc.arg(until)::timestamptz;
