-- Alerts of caps and the webhooks that carry them.

-- name: UntoldAlerts :many
-- Locked until they are told. Whoever else looks meanwhile skips them.
SELECT a.org_id, a.budget_id, a.percent, a.id, a.cap_nano, a.settled_nano, a.hard, a.created_at, b.scope, b.scope_id, b.period, b.period_start,
       o.name AS org_name, o.time_zone,
       coalesce((SELECT p.name FROM projects p WHERE p.org_id = a.org_id AND p.id = b.scope_id),
                (SELECT k.name FROM api_keys k WHERE k.org_id = a.org_id AND k.id = b.scope_id), '')::text AS scope_name
FROM cap_alerts a JOIN budgets b ON b.org_id = a.org_id AND b.id = a.budget_id JOIN orgs o ON o.org_id = a.org_id
WHERE a.told_at IS NULL
ORDER BY a.created_at, a.percent LIMIT sqlc.arg(max_rows)
FOR UPDATE OF a SKIP LOCKED;

-- name: AlertsTold :exec
UPDATE cap_alerts a SET told_at = sqlc.arg(told_at)::timestamptz
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(budgets)::uuid[]) AS budget_id, unnest(sqlc.arg(caps)::bigint[]) AS cap_nano,
             unnest(sqlc.arg(percents)::int[]) AS percent) k
WHERE a.org_id = k.org_id AND a.budget_id = k.budget_id AND a.cap_nano = k.cap_nano AND a.percent = k.percent;

-- name: AlertsOfOrg :many
SELECT a.percent, a.cap_nano, a.settled_nano, a.hard, a.created_at, a.told_at, b.scope, b.scope_id, b.period, b.period_start,
       coalesce((SELECT p.name FROM projects p WHERE p.org_id = a.org_id AND p.id = b.scope_id),
                (SELECT k.name FROM api_keys k WHERE k.org_id = a.org_id AND k.id = b.scope_id), '')::text AS scope_name
FROM cap_alerts a JOIN budgets b ON b.org_id = a.org_id AND b.id = a.budget_id
WHERE a.org_id = $1 ORDER BY a.created_at DESC, a.percent DESC LIMIT sqlc.arg(max_rows);

-- name: AlertPeople :many
SELECT u.email FROM members m JOIN users u ON u.id = m.user_id
WHERE m.org_id = $1 AND m.role IN ('owner', 'admin', 'billing') AND u.disabled_at IS NULL ORDER BY u.email;

-- ---- credit that is low ------------------------------------------------------------------------------------------------
-- name: BalanceAlert :one
SELECT below_nano, low_since FROM balance_alerts WHERE org_id = $1;

-- name: SetBalanceAlert :exec
-- Another amount is another crossing.
INSERT INTO balance_alerts (org_id, below_nano, updated_by, updated_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (org_id) DO UPDATE SET below_nano = excluded.below_nano, updated_by = excluded.updated_by, updated_at = excluded.updated_at,
  low_since = CASE WHEN balance_alerts.below_nano = excluded.below_nano THEN balance_alerts.low_since END;

-- name: RemoveBalanceAlert :exec
DELETE FROM balance_alerts WHERE org_id = $1;

-- name: BalancesRecovered :exec
-- What rose to its threshold can cross it again.
UPDATE balance_alerts a SET low_since = NULL
FROM budgets b
WHERE a.low_since IS NOT NULL AND b.org_id = a.org_id AND b.kind = 'balance' AND b.cap_nano - b.settled_nano >= a.below_nano;

-- name: BalancesCrossed :many
-- Marks the organizations whose credit is below their threshold since the last look: what is granted and not charged for good,
-- the credit limit included. Whoever else looks meanwhile waits, and finds them marked.
UPDATE balance_alerts a SET low_since = sqlc.arg(now)::timestamptz
FROM budgets b, orgs o
WHERE a.low_since IS NULL AND b.org_id = a.org_id AND b.kind = 'balance' AND o.org_id = a.org_id AND b.cap_nano - b.settled_nano < a.below_nano
  AND a.org_id IN (SELECT x.org_id FROM balance_alerts x JOIN budgets y ON y.org_id = x.org_id AND y.kind = 'balance'
                   WHERE x.low_since IS NULL AND y.cap_nano - y.settled_nano < x.below_nano ORDER BY x.org_id LIMIT sqlc.arg(max_rows))
RETURNING a.org_id, a.below_nano, (b.cap_nano - b.settled_nano)::bigint AS balance_nano, o.name AS org_name;

-- ---- webhooks --------------------------------------------------------------------------------------------------------
-- name: InsertWebhook :exec
INSERT INTO webhooks (org_id, id, url, secret, created_by, created_at) VALUES ($1, $2, $3, $4, $5, $6);

-- name: LockWebhooks :exec
-- Webhooks of an organization are added one after another, so that they can be counted.
SELECT pg_advisory_xact_lock(hashtextextended('webhooks of ' || sqlc.arg(org_id)::uuid::text, 0));

-- name: CountWebhooks :one
SELECT count(*) FROM webhooks WHERE org_id = $1 AND removed_at IS NULL;

-- name: Webhooks :many
SELECT w.id, w.url, w.created_by, w.created_at,
       (SELECT count(*) FROM webhook_deliveries d WHERE d.org_id = w.org_id AND d.webhook_id = w.id AND d.state = 'waiting') AS waiting,
       (SELECT count(*) FROM webhook_deliveries d WHERE d.org_id = w.org_id AND d.webhook_id = w.id AND d.state = 'failed') AS failed
FROM webhooks w WHERE w.org_id = $1 AND w.removed_at IS NULL ORDER BY w.created_at DESC, w.id;

-- name: RemoveWebhook :one
UPDATE webhooks SET removed_at = $3 WHERE org_id = $1 AND id = $2 AND removed_at IS NULL RETURNING id, url;

-- name: EndDeliveries :exec
UPDATE webhook_deliveries SET state = 'failed', problem = 'the webhook was removed' WHERE org_id = $1 AND webhook_id = $2 AND state = 'waiting';

-- name: QueueDeliveries :execrows
INSERT INTO webhook_deliveries (org_id, id, webhook_id, event_id, kind, body, created_at, next_at)
SELECT w.org_id, gen_random_uuid(), w.id, sqlc.arg(event_id), sqlc.arg(kind), sqlc.arg(body), sqlc.arg(now), sqlc.arg(now)
FROM webhooks w WHERE w.org_id = sqlc.arg(org_id) AND w.removed_at IS NULL
  AND (sqlc.arg(one_webhook)::uuid = '00000000-0000-0000-0000-000000000000' OR w.id = sqlc.arg(one_webhook))
ORDER BY w.id FOR SHARE OF w
ON CONFLICT (org_id, webhook_id, event_id) DO NOTHING;

-- name: ClaimDeliveries :many
-- Takes deliveries that are due, the first of each webhook: one that hangs keeps no other waiting. No other process takes
-- them before until.
UPDATE webhook_deliveries d SET attempts = d.attempts + 1, next_at = sqlc.arg(until)::timestamptz, tried_at = sqlc.arg(now)::timestamptz
FROM (SELECT x.org_id, x.id, w.url, w.secret
      FROM (SELECT DISTINCT ON (y.org_id, y.webhook_id) y.org_id, y.id FROM webhook_deliveries y
            WHERE y.state = 'waiting' AND y.next_at <= sqlc.arg(now)::timestamptz ORDER BY y.org_id, y.webhook_id, y.next_at, y.created_at) first
      JOIN webhook_deliveries x ON x.org_id = first.org_id AND x.id = first.id
      JOIN webhooks w ON w.org_id = x.org_id AND w.id = x.webhook_id AND w.removed_at IS NULL
      WHERE x.state = 'waiting' AND x.next_at <= sqlc.arg(now)::timestamptz ORDER BY x.next_at, x.created_at LIMIT sqlc.arg(max_rows)
      FOR UPDATE OF x SKIP LOCKED) due
WHERE d.org_id = due.org_id AND d.id = due.id
RETURNING d.org_id, d.id, d.webhook_id, d.event_id, d.kind, d.body, d.attempts, d.created_at, due.url, due.secret;

-- name: DeliveryDone :exec
-- One that was ended meanwhile stays ended.
UPDATE webhook_deliveries SET state = $3, status = $4, problem = $5, next_at = $6 WHERE org_id = $1 AND id = $2 AND state = 'waiting';

-- name: Deliveries :many
SELECT d.id, d.webhook_id, d.event_id, d.kind, d.state, d.attempts, d.status, d.problem, d.created_at, d.next_at, d.tried_at, w.url
FROM webhook_deliveries d JOIN webhooks w ON w.org_id = d.org_id AND w.id = d.webhook_id
WHERE d.org_id = $1 ORDER BY d.created_at DESC, d.id DESC LIMIT sqlc.arg(max_rows);

-- name: DeleteOldDeliveries :exec
DELETE FROM webhook_deliveries WHERE created_at < $1 AND state <> 'waiting';
