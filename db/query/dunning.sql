-- Dunning. Lock order: billing/invoice/doc.go; ledger balances and pushes are only read. Orgs are locked FOR NO KEY UPDATE: rows of all kinds take KEY SHARE on them by their foreign key.

-- name: DunnedOrgs :many
-- Organizations with an open invoice whose money should have come by now, with steps in force, or with something that is held.
SELECT o.org_id::uuid AS org_id FROM (
  SELECT i.org_id FROM invoices i LEFT JOIN invoice_pushes p ON p.org_id = i.org_id AND p.invoice_id = i.id
   WHERE i.state = 'open' AND LEAST(i.due_at, p.failed_at) <= sqlc.arg(now)::timestamptz
  UNION SELECT d.org_id FROM invoice_dunning d WHERE d.undone_at IS NULL
  UNION SELECT h.org_id FROM dunning_holds h) o
WHERE o.org_id > sqlc.arg(after)::uuid
ORDER BY o.org_id LIMIT sqlc.arg(max_rows);

-- name: LockDunnedInvoices :exec
SELECT i.id FROM invoices i
WHERE i.org_id = $1 AND (i.state = 'open' OR EXISTS (SELECT FROM invoice_dunning d WHERE d.org_id = i.org_id AND d.invoice_id = i.id AND d.undone_at IS NULL))
ORDER BY i.id FOR NO KEY UPDATE;

-- name: DunnedInvoices :many
SELECT sqlc.embed(i), GREATEST(LEAST(i.due_at, p.failed_at), b.reopened_at)::timestamptz AS since, p.failed_at, b.reopened_at,
       COALESCE(b.refunded_cents, 0)::bigint AS refunded_cents, COALESCE(p.clawed_cents, 0)::bigint AS clawed_cents, COALESCE(p.url, '')::text AS url,
       COALESCE((SELECT array_agg(d.step ORDER BY d.step) FROM invoice_dunning d WHERE d.org_id = i.org_id AND d.invoice_id = i.id AND d.undone_at IS NULL), '{}')::int[] AS steps
FROM invoices i LEFT JOIN invoice_pushes p ON p.org_id = i.org_id AND p.invoice_id = i.id
LEFT JOIN invoice_reopenings b ON b.org_id = i.org_id AND b.invoice_id = i.id
WHERE i.org_id = $1 AND (i.state = 'open' OR EXISTS (SELECT FROM invoice_dunning d WHERE d.org_id = i.org_id AND d.invoice_id = i.id AND d.undone_at IS NULL))
ORDER BY i.id;

-- name: LockDunnedOrg :exec
SELECT org_id FROM orgs WHERE org_id = $1 FOR NO KEY UPDATE;

-- name: DunnedOrg :one
SELECT o.credit_limit_nano, o.suspended_at, h.was_nano, h.set_nano, COALESCE(h.limits_set, 0)::bigint AS limits_set, h.suspended_at AS held_suspended_at,
       (SELECT count(*) FROM credit_requests r WHERE r.org_id = o.org_id AND r.kind = 'credit_limit' AND r.state = 'done')::bigint AS limits_set_now,
       GREATEST(COALESCE((SELECT b.amount_nano FROM ledger_balances b WHERE b.org_id = o.org_id AND b.account = 'receivable'), 0), 0)::bigint AS receivable_nano
FROM orgs o LEFT JOIN dunning_holds h ON h.org_id = o.org_id
WHERE o.org_id = $1;

-- name: KeepDunningHold :exec
INSERT INTO dunning_holds AS h (org_id, was_nano, set_nano, limits_set, suspended_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (org_id) DO UPDATE SET was_nano = excluded.was_nano, set_nano = excluded.set_nano, limits_set = excluded.limits_set, suspended_at = excluded.suspended_at;

-- name: DropDunningHold :exec
DELETE FROM dunning_holds WHERE org_id = $1;

-- name: DunningSteps :many
SELECT * FROM invoice_dunning WHERE org_id = $1 AND invoice_id = $2 ORDER BY step;

-- name: InsertDunningStep :exec
-- A step that was undone can be taken again: the money went back.
INSERT INTO invoice_dunning AS d (org_id, invoice_id, step, details, done_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (org_id, invoice_id, step) DO UPDATE SET details = excluded.details, done_at = excluded.done_at, undone_at = NULL;

-- name: UndoDunningSteps :exec
UPDATE invoice_dunning SET undone_at = sqlc.arg(now)::timestamptz
WHERE org_id = sqlc.arg(org_id) AND invoice_id = sqlc.arg(invoice_id) AND step = ANY(sqlc.arg(steps)::int[]) AND undone_at IS NULL;

-- name: UndoAllDunning :exec
UPDATE invoice_dunning SET undone_at = sqlc.arg(now)::timestamptz WHERE org_id = sqlc.arg(org_id) AND invoice_id = sqlc.arg(invoice_id) AND undone_at IS NULL;

-- name: KeepReopening :exec
INSERT INTO invoice_reopenings AS b (org_id, invoice_id, reopened_at) VALUES ($1, $2, $3)
ON CONFLICT (org_id, invoice_id) DO UPDATE SET reopened_at = excluded.reopened_at;

-- name: RefundedCents :one
SELECT COALESCE((SELECT refunded_cents FROM invoice_reopenings WHERE org_id = $1 AND invoice_id = $2), 0)::bigint AS cents;

-- name: KeepRefunded :exec
INSERT INTO invoice_reopenings AS b (org_id, invoice_id, reopened_at, refunded_cents) VALUES ($1, $2, sqlc.arg(now), sqlc.arg(cents))
ON CONFLICT (org_id, invoice_id) DO UPDATE SET refunded_cents = excluded.refunded_cents;
