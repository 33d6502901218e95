-- Invoices. Lock order: billing/invoice/doc.go.
--
-- Covered by a month's invoice: usage transactions of the month booked before its freeze, and those of earlier months booked
-- since the freeze before (docs/invoices.md). A booking's moment is in its transaction's id.

-- name: InvoicingStart :one
SELECT first_month FROM invoicing;

-- name: OrgsToInvoice :many
SELECT DISTINCT t.org_id
FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
WHERE t.kind = 'usage' AND e.account = 'receivable' AND t.day BETWEEN sqlc.arg(from_day)::date AND sqlc.arg(to_day)::date
  AND t.id >= sqlc.arg(from_id) AND t.id < sqlc.arg(freeze_id)
  AND (coalesce(t.usage_month, date_trunc('month', t.day)::date) = sqlc.arg(month)::date
       OR coalesce(t.usage_month, date_trunc('month', t.day)::date) < sqlc.arg(month)::date AND t.id >= sqlc.arg(late_id))
ORDER BY t.org_id;

-- name: CoveredAccounts :many
-- What the covered transactions moved, by the month of usage.
SELECT coalesce(t.usage_month, date_trunc('month', t.day)::date)::date AS usage_month, e.account, sum(e.amount_nano)::bigint AS amount_nano
FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
WHERE t.org_id = sqlc.arg(org_id) AND t.kind = 'usage' AND t.day BETWEEN sqlc.arg(from_day)::date AND sqlc.arg(to_day)::date
  AND t.id >= sqlc.arg(from_id) AND t.id < sqlc.arg(freeze_id)
  AND (coalesce(t.usage_month, date_trunc('month', t.day)::date) = sqlc.arg(month)::date
       OR coalesce(t.usage_month, date_trunc('month', t.day)::date) < sqlc.arg(month)::date AND t.id >= sqlc.arg(late_id))
GROUP BY 1, 2 ORDER BY 1, 2;

-- name: CoveredUsage :many
-- The tokens behind them, by what decides a price. An event's month is its day's, as its transaction's is.
SELECT date_trunc('month', day)::date AS usage_month, model_id, price_version_id, service_tier, count(*)::bigint AS events,
       sum(input_tokens)::bigint AS input, sum(cached_tokens)::bigint AS cached, sum(cache_write_tokens)::bigint AS cache_write,
       sum(output_tokens)::bigint AS output, sum(reasoning_tokens)::bigint AS reasoning, sum(image_tokens)::bigint AS image,
       sum(audio_tokens)::bigint AS audio, sum(requests)::bigint AS requests
FROM usage_events
WHERE org_id = sqlc.arg(org_id) AND day >= sqlc.arg(from_day)::date AND day < sqlc.arg(to_day)::date
  AND txn_id >= sqlc.arg(from_id)::uuid AND txn_id < sqlc.arg(freeze_id)::uuid
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;

-- name: CoveredUsageOf :many
-- The same of one price version whose prices depend on the prompt's length or the time of the week. Steps are the number of
-- thresholds that the prompt is above; windows count from 1, 0 = none.
SELECT e.usage_month::date AS usage_month, e.model_id, e.service_tier, e.step::int AS step, e.win::int AS win, count(*)::bigint AS events,
       sum(e.input_tokens)::bigint AS input, sum(e.cached_tokens)::bigint AS cached, sum(e.cache_write_tokens)::bigint AS cache_write,
       sum(e.output_tokens)::bigint AS output, sum(e.reasoning_tokens)::bigint AS reasoning, sum(e.image_tokens)::bigint AS image,
       sum(e.audio_tokens)::bigint AS audio, sum(e.requests)::bigint AS requests
FROM (SELECT u.*, date_trunc('month', u.day)::date AS usage_month,
             (SELECT count(*) FROM unnest(sqlc.arg(above)::bigint[]) t
               WHERE u.input_tokens + u.cached_tokens + u.cache_write_tokens + u.image_tokens + u.audio_tokens > t) AS step,
             coalesce((SELECT w.n FROM (SELECT unnest(sqlc.arg(numbers)::int[]) AS n, unnest(sqlc.arg(from_minutes)::int[]) AS f, unnest(sqlc.arg(to_minutes)::int[]) AS t) w
                        WHERE m.minute >= w.f AND m.minute < w.t LIMIT 1), 0) AS win
        FROM usage_events u
       CROSS JOIN LATERAL (SELECT (extract(dow FROM u.started_at AT TIME ZONE 'UTC') * 1440 + extract(hour FROM u.started_at AT TIME ZONE 'UTC') * 60
                                   + extract(minute FROM u.started_at AT TIME ZONE 'UTC'))::int AS minute) m
       WHERE u.org_id = sqlc.arg(org_id) AND u.day >= sqlc.arg(from_day)::date AND u.day < sqlc.arg(to_day)::date
         AND u.txn_id >= sqlc.arg(from_id)::uuid AND u.txn_id < sqlc.arg(freeze_id)::uuid AND u.price_version_id = sqlc.arg(version)) e
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5;

-- name: ModelNames :many
SELECT id, name FROM models WHERE id = ANY(sqlc.arg(ids)::uuid[]);

-- name: KeepInvoiceDraft :one
-- A new draft, or the one that there is drawn anew. No row: the one that there is is final.
INSERT INTO invoices AS i (org_id, id, month, state, covered_from, covered_to, charged_nano, promo_nano, prepaid_nano, receivable_nano, overrun_nano,
  subtotal_cents, total_cents, problem, drafted_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, sqlc.arg(cents), sqlc.arg(cents), $12, $13)
ON CONFLICT (org_id, month) DO UPDATE SET state = excluded.state, covered_from = excluded.covered_from, covered_to = excluded.covered_to,
  charged_nano = excluded.charged_nano, promo_nano = excluded.promo_nano, prepaid_nano = excluded.prepaid_nano, receivable_nano = excluded.receivable_nano,
  overrun_nano = excluded.overrun_nano, subtotal_cents = excluded.subtotal_cents, total_cents = excluded.total_cents, problem = excluded.problem,
  drafted_at = excluded.drafted_at, version = i.version + 1
WHERE i.number IS NULL
RETURNING *;

-- name: DropInvoiceLines :exec
DELETE FROM invoice_lines WHERE org_id = $1 AND invoice_id = $2;

-- name: InsertInvoiceLines :exec
INSERT INTO invoice_lines (org_id, invoice_id, position, kind, usage_month, model_id, model, price_version_id, service_tier, class, quantity, unit_pico, amount_nano, cents)
SELECT sqlc.arg(org_id)::uuid, sqlc.arg(invoice_id)::uuid, unnest(sqlc.arg(positions)::int[]), unnest(sqlc.arg(kinds)::text[]), unnest(sqlc.arg(months)::date[]),
  NULLIF(unnest(sqlc.arg(models)::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(sqlc.arg(names)::text[]),
  NULLIF(unnest(sqlc.arg(versions)::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(sqlc.arg(services)::text[]), unnest(sqlc.arg(classes)::text[]),
  unnest(sqlc.arg(quantities)::bigint[]), NULLIF(unnest(sqlc.arg(units)::bigint[]), -1), unnest(sqlc.arg(amounts)::bigint[]), unnest(sqlc.arg(cents)::bigint[]);

-- name: InvoiceLines :many
SELECT * FROM invoice_lines WHERE org_id = $1 AND invoice_id = $2 ORDER BY position;

-- name: Invoice :one
SELECT * FROM invoices WHERE org_id = $1 AND id = $2;

-- name: LockInvoice :one
SELECT * FROM invoices WHERE org_id = $1 AND id = $2 FOR NO KEY UPDATE;

-- name: Invoices :many
SELECT i.* FROM invoices i WHERE i.org_id = sqlc.arg(org_id) AND (i.number IS NOT NULL OR sqlc.arg(drafts)::boolean)
  AND (sqlc.arg(before)::uuid = '00000000-0000-0000-0000-000000000000'
       OR i.month < (SELECT b.month FROM invoices b WHERE b.org_id = i.org_id AND b.id = sqlc.arg(before)::uuid))
ORDER BY i.month DESC LIMIT sqlc.arg(max_rows);

-- name: AllInvoices :many
SELECT sqlc.embed(i), o.name AS org_name FROM invoices i JOIN orgs o ON o.org_id = i.org_id
WHERE (sqlc.arg(state)::text = '' OR i.state = sqlc.arg(state)) AND (sqlc.arg(month)::date = '0001-01-01' OR i.month = sqlc.arg(month)::date)
  AND (NOT sqlc.arg(overdue)::boolean OR i.state = 'open' AND i.due_at < sqlc.arg(now)::timestamptz)
  AND (sqlc.arg(before)::uuid = '00000000-0000-0000-0000-000000000000'
       OR (i.month, i.id) < (SELECT b.month, b.id FROM invoices b WHERE b.id = sqlc.arg(before)::uuid))
ORDER BY i.month DESC, i.id DESC LIMIT sqlc.arg(max_rows);

-- name: ReadyInvoices :many
SELECT org_id, id FROM invoices WHERE state = 'ready' AND id > sqlc.arg(after) ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: NextInvoiceNumber :one
INSERT INTO invoice_series AS s (series, last) VALUES ($1, 1) ON CONFLICT (series) DO UPDATE SET last = s.last + 1 RETURNING last;

-- name: FinalizeInvoice :one
UPDATE invoices SET state = $3, number = $4, bill_to = $5, seller = $6, finalized_at = $7, finalized_by = $8, due_at = $9, settled_at = $10, version = version + 1
WHERE org_id = $1 AND id = $2 AND state = 'ready' RETURNING *;

-- name: MoveInvoice :one
UPDATE invoices SET state = $3, paid_cents = $4, credited_cents = $5, relieved_cents = $6, given_up_cents = $7, settled_at = $8, version = version + 1
WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: InvoicePaymentByKey :one
SELECT * FROM invoice_payments WHERE org_id = $1 AND idempotency_key = $2;

-- name: InsertInvoicePayment :exec
INSERT INTO invoice_payments (org_id, id, invoice_id, cents, excess_cents, fee_cents, method, reference, idempotency_key, txn_id, received_at, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: InvoicePayments :many
SELECT * FROM invoice_payments WHERE org_id = $1 AND invoice_id = $2 ORDER BY id;

-- name: ReversedPayments :many
SELECT v.* FROM invoice_payment_reversals v JOIN invoice_payments p ON p.org_id = v.org_id AND p.id = v.payment_id
WHERE p.org_id = $1 AND p.invoice_id = $2;

-- name: InsertPaymentReversal :exec
INSERT INTO invoice_payment_reversals (org_id, payment_id, reason, txn_id, created_by, created_at) VALUES ($1, $2, $3, $4, $5, $6);

-- name: CreditNoteByKey :one
SELECT * FROM credit_notes WHERE org_id = $1 AND idempotency_key = $2;

-- name: InsertCreditNote :exec
INSERT INTO credit_notes (org_id, id, invoice_id, number, cents, relieved_cents, back, reason, idempotency_key, txn_id, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);

-- name: CreditNotes :many
SELECT * FROM credit_notes WHERE org_id = $1 AND invoice_id = $2 ORDER BY id;

-- name: DraftedMonths :many
SELECT month FROM invoice_months ORDER BY month DESC LIMIT sqlc.arg(max_rows);

-- name: MarkMonthDrafted :exec
INSERT INTO invoice_months (month, drafted_at) VALUES ($1, $2) ON CONFLICT (month) DO NOTHING;

-- name: BillingDetails :one
SELECT * FROM billing_details WHERE org_id = $1;

-- name: SetBillingDetails :exec
INSERT INTO billing_details (org_id, legal_name, address, country, tax_id, email, purchase_order, updated_by, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (org_id) DO UPDATE SET legal_name = excluded.legal_name, address = excluded.address, country = excluded.country, tax_id = excluded.tax_id,
  email = excluded.email, purchase_order = excluded.purchase_order, updated_by = excluded.updated_by, updated_at = excluded.updated_at;

-- name: OrgNames :many
SELECT org_id, name FROM orgs WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]);

-- name: InvoiceStateOf :one
SELECT state FROM invoices WHERE org_id = $1 AND month = $2;

-- name: DoubtInvoice :exec
UPDATE invoices SET state = 'draft', problem = $3, version = version + 1 WHERE org_id = $1 AND id = $2 AND number IS NULL;

-- name: CameByProvider :one
-- An invoice's money that ever came by the payment provider, in cents: what it paid, what became credit, and what credit notes
-- send back there. What came again after a dispute is a payment, too.
SELECT (SELECT coalesce(sum(p.cents - p.excess_cents), 0) FROM invoice_payments p WHERE p.org_id = sqlc.arg(org_id) AND p.invoice_id = sqlc.arg(invoice_id) AND p.method = 'stripe')::bigint AS paid,
  (SELECT coalesce(sum(p.excess_cents), 0) FROM invoice_payments p WHERE p.org_id = sqlc.arg(org_id) AND p.invoice_id = sqlc.arg(invoice_id) AND p.method = 'stripe')::bigint AS excess,
  (SELECT coalesce(sum(n.cents - n.relieved_cents), 0) FROM credit_notes n WHERE n.org_id = sqlc.arg(org_id) AND n.invoice_id = sqlc.arg(invoice_id) AND n.back = 'stripe' AND n.sent_at IS NULL)::bigint AS noted;

-- name: MonthsWithProblems :many
SELECT DISTINCT month FROM invoices WHERE state = 'draft' ORDER BY month LIMIT sqlc.arg(max_rows);
