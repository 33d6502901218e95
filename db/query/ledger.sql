-- The double-entry ledger. Debit positive. Rows of ledger_txns and ledger_entries are only ever inserted.
-- Lock order: ledger_balances by (org_id, account), before allotments and budgets.

-- name: EnsureLedgerDay :exec
SELECT ensure_day(sqlc.arg(day)::date);

-- name: LockLedgerBalances :many
SELECT org_id, account, amount_nano FROM ledger_balances
WHERE org_id = ANY(sqlc.arg(orgs)::uuid[])
ORDER BY org_id, account
FOR NO KEY UPDATE;

-- name: ClaimLedgerKey :execrows
INSERT INTO ledger_keys (org_id, key, txn_id) VALUES ($1, $2, $3) ON CONFLICT (org_id, key) DO NOTHING;

-- name: LedgerKeyTxn :one
SELECT txn_id FROM ledger_keys WHERE org_id = $1 AND key = $2;

-- name: InsertLedgerTxns :exec
INSERT INTO ledger_txns (org_id, day, id, kind, memo)
SELECT unnest(sqlc.arg(orgs)::uuid[]), unnest(sqlc.arg(days)::date[]), unnest(sqlc.arg(ids)::uuid[]),
       unnest(sqlc.arg(kinds)::text[]), unnest(sqlc.arg(memos)::text[]);

-- name: InsertLedgerEntries :exec
INSERT INTO ledger_entries (org_id, day, txn_id, account, amount_nano)
SELECT unnest(sqlc.arg(orgs)::uuid[]), unnest(sqlc.arg(days)::date[]), unnest(sqlc.arg(txns)::uuid[]),
       unnest(sqlc.arg(accounts)::text[]), unnest(sqlc.arg(amounts)::bigint[]);

-- name: AddToLedgerBalances :exec
-- The arrays come sorted by (org, account), one element each.
INSERT INTO ledger_balances (org_id, account, amount_nano)
SELECT a.org_id, a.account, a.amount_nano
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(accounts)::text[]) AS account,
             unnest(sqlc.arg(amounts)::bigint[]) AS amount_nano) a
ORDER BY a.org_id, a.account
ON CONFLICT (org_id, account) DO UPDATE SET amount_nano = ledger_balances.amount_nano + excluded.amount_nano;

-- name: LedgerBalances :many
SELECT account, amount_nano FROM ledger_balances WHERE org_id = $1 ORDER BY account;

-- name: LedgerSumsSince :many
-- What an organization's entries from a moment on add up to. A UUIDv7 tells its time, and its day is the partition.
SELECT account, sum(amount_nano)::bigint AS amount_nano FROM ledger_entries
WHERE org_id = sqlc.arg(org_id) AND day >= sqlc.arg(from_day)::date AND txn_id >= sqlc.arg(from_id)
GROUP BY account ORDER BY account;

-- name: StatementUsage :many
-- Usage per span of time (the days of the customer's zone): a batch of events is not a line that anyone could read.
SELECT s.number::int AS number, e.account, sum(e.amount_nano)::bigint AS amount_nano
FROM (SELECT unnest(sqlc.arg(numbers)::int[]) AS number, unnest(sqlc.arg(from_ids)::uuid[]) AS from_id,
             unnest(sqlc.arg(to_ids)::uuid[]) AS to_id) s
JOIN ledger_txns t ON t.id >= s.from_id AND t.id < s.to_id
JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
WHERE t.org_id = sqlc.arg(org_id) AND t.kind = 'usage' AND t.day BETWEEN sqlc.arg(from_day)::date AND sqlc.arg(to_day)::date
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: StatementTxns :many
SELECT t.id, t.kind, t.memo, e.account, e.amount_nano
FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
WHERE t.org_id = sqlc.arg(org_id) AND t.kind <> 'usage' AND t.day BETWEEN sqlc.arg(from_day)::date AND sqlc.arg(to_day)::date
  AND t.id >= sqlc.arg(from_id) AND t.id < sqlc.arg(to_id)
ORDER BY t.id, e.account;

-- name: LedgerTotal :one
SELECT coalesce(sum(amount_nano), 0)::text AS total FROM ledger_entries;

-- name: UnbalancedLedgerTxns :many
SELECT t.org_id, t.id, coalesce(sum(e.amount_nano), 0)::text AS total, count(e.account) AS entries
FROM ledger_txns t LEFT JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
GROUP BY t.org_id, t.id
HAVING coalesce(sum(e.amount_nano), 0) <> 0 OR count(e.account) < 2
ORDER BY t.id LIMIT sqlc.arg(max_rows);

-- name: DriftedLedgerBalances :many
-- Where the projection and the entries part. An account that came back to zero has a row, or none: both are right.
WITH sums AS (SELECT org_id, account, sum(amount_nano) AS amount FROM ledger_entries GROUP BY org_id, account)
SELECT coalesce(s.org_id, b.org_id)::uuid AS org_id, coalesce(s.account, b.account)::text AS account,
       coalesce(s.amount, 0)::text AS entries, coalesce(b.amount_nano, 0)::text AS balance
FROM sums s FULL JOIN ledger_balances b ON b.org_id = s.org_id AND b.account = s.account
WHERE coalesce(s.amount, 0) <> coalesce(b.amount_nano, 0)
ORDER BY 1, 2 LIMIT sqlc.arg(max_rows);
