-- Accounting months: what the ledger came to, by its sums of days (whose usage_month is that of the day where the transaction has none),
-- and which are closed.

-- name: FirstOrgAt :one
SELECT coalesce(min(created_at), now())::timestamptz AS at FROM orgs;

-- name: ClosedMonths :many
SELECT month, closed_at, closed_by FROM accounting_months ORDER BY month;

-- name: ClosedMonth :one
SELECT * FROM accounting_months WHERE month = $1;

-- name: CloseMonth :exec
-- In a snapshot, a row that somebody else made meanwhile is a collision: the transaction is run again and finds it.
INSERT INTO accounting_months (month, closed_at, closed_by, report, checksum) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (month) DO NOTHING;

-- name: MonthTotals :many
-- Sums of all customers by month, from a month on. Its transactions lie behind from_day.
SELECT accounting_month(d.usage_month, d.day)::date AS month, d.kind, d.account, sum(d.amount_nano)::bigint AS amount_nano
  FROM ledger_days d
 WHERE d.day >= sqlc.arg(from_day)::date AND accounting_month(d.usage_month, d.day) >= sqlc.arg(month)::date
 GROUP BY 1, 2, 3;

-- name: MonthOrgs :many
-- The next customers whose accounts ever moved.
SELECT o.org_id, o.name FROM orgs o
 WHERE o.org_id > sqlc.arg(after_org)::uuid AND EXISTS (SELECT FROM ledger_balances b WHERE b.org_id = o.org_id)
 ORDER BY o.org_id LIMIT sqlc.arg(max_rows);

-- name: MonthBalances :many
SELECT org_id, account, amount_nano FROM ledger_balances WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]);

-- name: MonthSums :many
-- Sums of some customers, of a month (inside) and of everything behind it.
SELECT d.org_id, (accounting_month(d.usage_month, d.day) = sqlc.arg(month)::date)::bool AS inside, d.kind, d.account, sum(d.amount_nano)::bigint AS amount_nano
  FROM ledger_days d
 WHERE d.org_id = ANY(sqlc.arg(orgs)::uuid[]) AND d.day >= sqlc.arg(from_day)::date
   AND accounting_month(d.usage_month, d.day) >= sqlc.arg(month)::date
 GROUP BY 1, 2, 3, 4;

-- name: MonthQuarantined :one
SELECT count(*) FROM quarantine WHERE resolved_at IS NULL AND created_at < sqlc.arg(before);

-- name: MonthReconciled :one
-- The last comparison of the books.
SELECT at, watermark, unexplained FROM reconcile_runs ORDER BY at DESC LIMIT 1;

-- name: MonthInvoices :one
-- Whether a month's invoices are made (months from before invoicing have none), how many are not final, and when the last one
-- became so.
SELECT (EXISTS (SELECT FROM invoice_months m WHERE m.month = sqlc.arg(month)::date)
        OR sqlc.arg(month)::date < (SELECT first_month FROM invoicing))::bool AS made,
       (SELECT count(*) FROM invoices i WHERE i.month = sqlc.arg(month)::date AND i.state IN ('draft', 'ready')) AS drafts,
       coalesce((SELECT max(i.finalized_at) FROM invoices i WHERE i.month = sqlc.arg(month)::date), '0001-01-01')::timestamptz AS final_at;
