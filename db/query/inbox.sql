-- The payment provider's events.

-- name: StoreInboxEvent :execrows
INSERT INTO stripe_events (id, type, object_id, created_at, received_at, source, payload, state, next_at)
VALUES ($1, $2, $3, $4, sqlc.arg(now), $5, $6, $7, sqlc.arg(now))
ON CONFLICT (id) DO NOTHING;

-- name: NextInboxEvent :one
-- The oldest by the payment provider's clock of those that are due.
SELECT * FROM stripe_events WHERE state = 'new' AND next_at <= sqlc.arg(now) ORDER BY created_at, id LIMIT 1;

-- name: LockInboxEvent :one
SELECT * FROM stripe_events WHERE id = $1 FOR NO KEY UPDATE;

-- name: FinishInboxEvent :exec
UPDATE stripe_events SET state = $2, attempts = attempts + 1, problem = '' WHERE id = $1;

-- name: DelayInboxEvent :execrows
UPDATE stripe_events SET state = $2, attempts = attempts + 1, next_at = $3, problem = $4 WHERE id = $1 AND state = 'new';

-- name: RetryInboxEvent :execrows
UPDATE stripe_events SET state = 'new', attempts = 0, next_at = sqlc.arg(now), decided_at = sqlc.arg(now), decided_by = $2 WHERE id = $1 AND state = 'dead';

-- name: DismissInboxEvent :execrows
UPDATE stripe_events SET state = 'dismissed', decided_at = sqlc.arg(now), decided_by = $2, reason = $3 WHERE id = $1 AND state = 'dead';

-- name: InboxEvent :one
SELECT * FROM stripe_events WHERE id = $1;

-- name: WaitingInboxEvents :many
-- Dead ones first, then those that failed at least once.
SELECT * FROM stripe_events WHERE state = 'dead' OR state = 'new' AND attempts > 0 ORDER BY state, created_at LIMIT sqlc.arg(max_rows);

-- name: NewestInboxEvents :many
SELECT * FROM stripe_events ORDER BY received_at DESC, id LIMIT sqlc.arg(max_rows);

-- name: EmptyOldInboxEvents :exec
UPDATE stripe_events SET payload = '' WHERE received_at < $1 AND state IN ('done', 'ignored', 'dismissed') AND payload <> '';

-- name: InsertStripeCheck :exec
INSERT INTO stripe_checks (id, at, payments, missed, differences, problem) VALUES ($1, $2, $3, $4, $5, $6);

-- name: LastStripeCheck :one
SELECT * FROM stripe_checks ORDER BY id DESC LIMIT 1;
