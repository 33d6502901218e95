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
-- A month of '0001-01-01' is that of the transaction's own day.
INSERT INTO ledger_txns (org_id, day, id, kind, memo, usage_month)
SELECT unnest(sqlc.arg(orgs)::uuid[]), unnest(sqlc.arg(days)::date[]), unnest(sqlc.arg(ids)::uuid[]),
       unnest(sqlc.arg(kinds)::text[]), unnest(sqlc.arg(memos)::text[]), NULLIF(unnest(sqlc.arg(months)::date[]), '0001-01-01');

-- name: InsertLedgerEntries :exec
INSERT INTO ledger_entries (org_id, day, txn_id, account, amount_nano)
SELECT unnest(sqlc.arg(orgs)::uuid[]), unnest(sqlc.arg(days)::date[]), unnest(sqlc.arg(txns)::uuid[]),
       unnest(sqlc.arg(accounts)::text[]), unnest(sqlc.arg(amounts)::bigint[]);

-- name: AddToLedgerBalances :exec
-- The arrays come sorted, by (org, account) and by (org, day, kind, month, account), one element each.
WITH balances AS (
  INSERT INTO ledger_balances (org_id, account, amount_nano)
  SELECT a.org_id, a.account, a.amount_nano
  FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(accounts)::text[]) AS account,
               unnest(sqlc.arg(amounts)::bigint[]) AS amount_nano) a
  ORDER BY a.org_id, a.account
  ON CONFLICT (org_id, account) DO UPDATE SET amount_nano = ledger_balances.amount_nano + excluded.amount_nano
)
INSERT INTO ledger_days (org_id, day, kind, usage_month, account, amount_nano)
SELECT unnest(sqlc.arg(day_orgs)::uuid[]), unnest(sqlc.arg(days)::date[]), unnest(sqlc.arg(kinds)::text[]), unnest(sqlc.arg(months)::date[]),
       unnest(sqlc.arg(day_accounts)::text[]), unnest(sqlc.arg(day_amounts)::bigint[])
ON CONFLICT (org_id, day, kind, usage_month, account) DO UPDATE SET amount_nano = ledger_days.amount_nano + excluded.amount_nano;

-- name: LedgerBalances :many
SELECT account, amount_nano FROM ledger_balances WHERE org_id = $1 ORDER BY account;

-- name: LedgerSumsSince :many
-- What an organization's entries from a moment on add up to: the moment's own day by its entries (a UUIDv7 tells its time, and
-- its day is the partition), later ones by their sums.
SELECT s.account, sum(s.amount_nano)::bigint AS amount_nano
FROM (SELECT e.account, e.amount_nano FROM ledger_entries e
       WHERE e.org_id = sqlc.arg(org_id) AND e.day = sqlc.arg(own_day)::date AND e.txn_id >= sqlc.arg(from_id)
      UNION ALL
      SELECT d.account, d.amount_nano FROM ledger_days d
       WHERE d.org_id = sqlc.arg(org_id) AND d.day >= sqlc.arg(from_day)::date) s
GROUP BY s.account ORDER BY s.account;

-- name: StatementUsage :many
-- Usage per span of time (the days of the customer's zone): a batch of events is not a line that anyone could read.
SELECT s.number::int AS number, e.account, sum(e.amount_nano)::bigint AS amount_nano
FROM (SELECT unnest(sqlc.arg(numbers)::int[]) AS number, unnest(sqlc.arg(from_ids)::uuid[]) AS from_id,
             unnest(sqlc.arg(to_ids)::uuid[]) AS to_id) s
JOIN ledger_txns t ON t.id >= s.from_id AND t.id < s.to_id
JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
WHERE t.org_id = sqlc.arg(org_id) AND t.kind = 'usage' AND t.day BETWEEN sqlc.arg(from_day)::date AND sqlc.arg(to_day)::date
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: StatementUsageDays :many
-- The same of whole UTC days.
SELECT day, account, sum(amount_nano)::bigint AS amount_nano FROM ledger_days
WHERE org_id = sqlc.arg(org_id) AND kind = 'usage' AND day >= sqlc.arg(from_day)::date AND day < sqlc.arg(to_day)::date
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

-- ---- lots ----------------------------------------------------------------------------------------------------------
-- name: LotsLeft :many
-- In the order in which they are used up. Whoever moves them has locked the organizations' balances.
SELECT org_id, lot_id, account, priority, expires_at, remaining_nano FROM ledger_lots
WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]) AND remaining_nano > 0
ORDER BY org_id, priority, expires_at NULLS LAST, lot_id;

-- name: InsertLotMoves :exec
INSERT INTO ledger_lot_moves (org_id, day, txn_id, lot_id, account, amount_nano, priority, expires_at)
SELECT unnest(sqlc.arg(orgs)::uuid[]), unnest(sqlc.arg(days)::date[]), unnest(sqlc.arg(txns)::uuid[]), unnest(sqlc.arg(lots)::uuid[]),
       unnest(sqlc.arg(accounts)::text[]), unnest(sqlc.arg(amounts)::bigint[]),
       NULLIF(unnest(sqlc.arg(priorities)::int[]), 0)::smallint, NULLIF(unnest(sqlc.arg(expires)::timestamptz[]), '0001-01-01T00:00:00Z');

-- name: OpenLots :exec
INSERT INTO ledger_lots (org_id, lot_id, account, priority, expires_at, remaining_nano)
SELECT unnest(sqlc.arg(orgs)::uuid[]), unnest(sqlc.arg(lots)::uuid[]), unnest(sqlc.arg(accounts)::text[]), unnest(sqlc.arg(priorities)::int[])::smallint,
       NULLIF(unnest(sqlc.arg(expires)::timestamptz[]), '0001-01-01T00:00:00Z'), unnest(sqlc.arg(amounts)::bigint[]);

-- name: BurnLots :execrows
UPDATE ledger_lots l SET remaining_nano = l.remaining_nano - k.amount
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(lots)::uuid[]) AS lot_id, unnest(sqlc.arg(amounts)::bigint[]) AS amount) k
WHERE l.org_id = k.org_id AND l.lot_id = k.lot_id;

-- name: LockProjections :exec
-- Every posting locks rows of balances, or inserts them, first.
LOCK TABLE ledger_balances, ledger_days, ledger_lots IN EXCLUSIVE MODE;

-- name: DropBalances :exec
DELETE FROM ledger_balances;

-- name: RebuildBalances :exec
INSERT INTO ledger_balances (org_id, account, amount_nano)
SELECT org_id, account, sum(amount_nano) FROM ledger_entries GROUP BY org_id, account;

-- name: DropDays :exec
DELETE FROM ledger_days;

-- name: RebuildDays :exec
INSERT INTO ledger_days (org_id, day, kind, usage_month, account, amount_nano)
SELECT t.org_id, t.day, t.kind, coalesce(t.usage_month, date_trunc('month', t.day)::date), e.account, sum(e.amount_nano)
FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
GROUP BY 1, 2, 3, 4, 5;

-- name: DriftedDays :many
-- Days that are not the sum of their entries.
WITH sums AS (
  SELECT t.org_id, t.day, t.kind, coalesce(t.usage_month, date_trunc('month', t.day)::date) AS usage_month, e.account, sum(e.amount_nano) AS amount
  FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
  GROUP BY 1, 2, 3, 4, 5)
SELECT coalesce(s.org_id, d.org_id)::uuid AS org_id, coalesce(s.day, d.day)::date AS day, coalesce(s.account, d.account)::text AS account,
       coalesce(s.amount, 0)::text AS expected, coalesce(d.amount_nano, 0)::text AS found
FROM sums s FULL JOIN ledger_days d
  ON d.org_id = s.org_id AND d.day = s.day AND d.kind = s.kind AND d.usage_month = s.usage_month AND d.account = s.account
WHERE coalesce(s.amount, 0) <> coalesce(d.amount_nano, 0)
ORDER BY 1, 2, 3 LIMIT sqlc.arg(max_rows);

-- name: DropLots :exec
DELETE FROM ledger_lots;

-- name: RebuildLots :exec
INSERT INTO ledger_lots (org_id, lot_id, account, priority, expires_at, remaining_nano)
SELECT org_id, lot_id, account, max(priority), max(expires_at), sum(amount_nano)
FROM ledger_lot_moves GROUP BY org_id, lot_id, account;

-- name: DriftedLots :many
-- Lots that are not the sum of their moves, and accounts whose lots are not their credit.
WITH moves AS (SELECT org_id, lot_id, sum(amount_nano) AS amount FROM ledger_lot_moves GROUP BY org_id, lot_id),
     sums AS (SELECT org_id, account, sum(remaining_nano) AS amount FROM ledger_lots GROUP BY org_id, account),
     has AS (SELECT org_id, account, greatest(0, -amount_nano) AS amount FROM ledger_balances WHERE account IN ('prepaid_paid', 'prepaid_promo'))
SELECT coalesce(m.org_id, l.org_id)::uuid AS org_id, coalesce(m.lot_id, l.lot_id)::text AS what, coalesce(m.amount, 0)::text AS expected, coalesce(l.remaining_nano, 0)::text AS found
FROM moves m FULL JOIN ledger_lots l ON l.org_id = m.org_id AND l.lot_id = m.lot_id
WHERE coalesce(m.amount, 0) <> coalesce(l.remaining_nano, 0)
UNION ALL
SELECT coalesce(h.org_id, s.org_id)::uuid, coalesce(h.account, s.account)::text, coalesce(h.amount, 0)::text, coalesce(s.amount, 0)::text
FROM has h FULL JOIN sums s ON s.org_id = h.org_id AND s.account = h.account
WHERE coalesce(h.amount, 0) <> coalesce(s.amount, 0)
ORDER BY 1, 2 LIMIT sqlc.arg(max_rows);

-- name: LedgerTxn :many
SELECT t.kind, e.account, e.amount_nano
FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
WHERE t.org_id = $1 AND t.day = $2 AND t.id = $3 ORDER BY e.account;

-- name: LotOpenedBy :many
SELECT lot_id, priority, expires_at FROM ledger_lot_moves WHERE org_id = $1 AND day = $2 AND txn_id = $3 AND priority IS NOT NULL;

-- name: LotEnded :one
-- Whether any of a lot ended unused, which only reversing that end undoes.
SELECT EXISTS (
  SELECT FROM ledger_lot_moves m JOIN ledger_txns t ON t.org_id = m.org_id AND t.day = m.day AND t.id = m.txn_id
  WHERE m.org_id = $1 AND m.lot_id = $2 AND t.kind = 'expiry'
) AS ended;
