-- The comparisons of `millrace reconcile`. All run in one snapshot.

-- name: ReconcilePosition :one
-- How far the log's newest incarnation is rated, by the log's own time.
SELECT incarnation, seq, last_at FROM rater_offsets ORDER BY updated_at DESC LIMIT 1;

-- name: TokensByClass :many
-- Every attempt that the agents' journals or the events know, in one class each. An attempt that ended within the grace
-- before the watermark may not have arrived on the other side.
WITH journal AS (
  SELECT w.attempt_id, max(w.kind) AS kind, max(w.prompt) AS prompt, max(w.generated) AS generated, min(w.started_at) AS started_at,
         max(w.ended_at) AS ended_at, bool_or(w.ending = 'open') AS open
  FROM attempt_journal w WHERE w.started_at >= sqlc.arg(since)::timestamptz AND w.started_at < sqlc.arg(watermark)::timestamptz
  GROUP BY w.attempt_id
), tried AS (
  SELECT (a.attempt ->> 'id')::uuid AS attempt_id, (a.attempt ->> 'unit')::uuid AS unit_id, a.position = jsonb_array_length(e.attempts) AS last,
         e.ending, e.estimated, e.started_at, e.ended_at, a.attempt ->> 'leg' AS leg, a.attempt ->> 'note' AS note,
         -- The last attempt's share of the bill is what the others leave.
         CASE WHEN a.position < jsonb_array_length(e.attempts) THEN coalesce((a.attempt ->> 'prompt')::bigint, 0)
           ELSE e.input_tokens + e.cached_tokens + e.cache_write_tokens + e.image_tokens + e.audio_tokens
             - (sum(coalesce((a.attempt ->> 'prompt')::bigint, 0)) OVER of_event)::bigint + coalesce((a.attempt ->> 'prompt')::bigint, 0) END AS prompt,
         CASE WHEN a.position < jsonb_array_length(e.attempts) THEN coalesce((a.attempt ->> 'generated')::bigint, 0)
           ELSE e.output_tokens + e.reasoning_tokens
             - (sum(coalesce((a.attempt ->> 'generated')::bigint, 0)) OVER of_event)::bigint + coalesce((a.attempt ->> 'generated')::bigint, 0) END AS generated
  FROM usage_events e CROSS JOIN LATERAL jsonb_array_elements(e.attempts) WITH ORDINALITY a(attempt, position)
  WHERE e.day >= (sqlc.arg(since)::timestamptz AT TIME ZONE 'UTC')::date - 3
  WINDOW of_event AS (PARTITION BY e.org_id, e.day, e.id)
), running AS (
  SELECT DISTINCT (a.attempt ->> 'id')::uuid AS attempt_id
  FROM stream_progress p CROSS JOIN LATERAL jsonb_array_elements(coalesce(p.event -> 'attempts', '[]')) a(attempt)
), classed AS (
  SELECT CASE
    WHEN j.attempt_id IS NULL AND t.ended_at >= sqlc.arg(watermark)::timestamptz - sqlc.arg(grace_ms)::bigint * interval '1 ms' THEN 'open'
    WHEN j.attempt_id IS NULL AND u.id IS NOT NULL AND u.host_id IS NULL THEN 'attached'
    WHEN j.attempt_id IS NULL AND t.prompt + t.generated = 0 THEN 'nothing'
    WHEN j.attempt_id IS NULL AND (h.removed_at IS NOT NULL OR h.seen_at < t.ended_at + sqlc.arg(grace_ms)::bigint * interval '1 ms') THEN 'host_away'
    WHEN j.attempt_id IS NULL THEN 'no_journal'
    WHEN j.kind <> 'serve' THEN j.kind
    WHEN t.leg = 'encode' AND t.note IS NULL THEN 'encode'
    WHEN t.leg = 'prefill' AND t.prompt > 0 THEN 'prefill'
    WHEN t.leg = 'replay' AND t.generated > 0 THEN 'replay'
    WHEN t.attempt_id IS NOT NULL AND NOT t.last THEN 'abandoned'
    WHEN j.open THEN 'open'
    WHEN t.ending = 'complete' AND t.leg = 'decode' THEN 'decode'
    WHEN t.ending = 'complete' THEN 'complete'
    WHEN t.ending = 'gateway_died' THEN 'gateway_died'
    WHEN t.attempt_id IS NOT NULL THEN 'cut'
    WHEN j.ended_at >= sqlc.arg(watermark)::timestamptz - sqlc.arg(grace_ms)::bigint * interval '1 ms' OR r.attempt_id IS NOT NULL THEN 'open'
    WHEN j.attempt_id = ANY(sqlc.arg(aside)::uuid[]) THEN 'quarantined'
    WHEN EXISTS (SELECT FROM gateway_epochs g WHERE g.fenced_at IS NULL AND g.started_at <= j.ended_at
                 AND j.ended_at > sqlc.arg(watermark)::timestamptz - g.request_max_ms * interval '1 ms') THEN 'open'
    WHEN EXISTS (SELECT FROM gateway_epochs g WHERE g.dead_at IS NOT NULL AND g.goodbye_at IS NULL AND g.started_at <= j.ended_at
                 AND j.started_at <= g.dead_at) THEN 'gateway_lost'
    WHEN EXISTS (SELECT FROM log_gaps l WHERE l.noticed_at >= j.started_at) THEN 'log_gap'
    ELSE 'no_event' END AS class,
    coalesce(j.prompt, 0) AS journal_prompt, coalesce(j.generated, 0) AS journal_generated,
    coalesce(t.prompt, 0) AS billed_prompt, coalesce(t.generated, 0) AS billed_generated,
    coalesce(t.estimated, false) AS estimated
  FROM journal j
  FULL JOIN tried t ON t.attempt_id = j.attempt_id
  LEFT JOIN running r ON r.attempt_id = j.attempt_id
  LEFT JOIN units u ON u.id = t.unit_id
  LEFT JOIN hosts h ON h.id = u.host_id
  WHERE j.attempt_id IS NOT NULL OR t.started_at >= sqlc.arg(since)::timestamptz
)
SELECT class::text AS class, count(*) AS attempts,
  sum(journal_prompt)::bigint AS journal_prompt, sum(billed_prompt)::bigint AS billed_prompt,
  coalesce(sum(greatest(billed_prompt - journal_prompt, 0)) FILTER (WHERE class NOT IN ('attached', 'host_away', 'no_journal', 'open') AND NOT (estimated AND journal_prompt = 0)), 0)::bigint AS over_prompt,
  sum(journal_generated)::bigint AS journal_generated, sum(billed_generated)::bigint AS billed_generated,
  coalesce(sum(greatest(billed_generated - journal_generated, 0)) FILTER (WHERE class NOT IN ('attached', 'host_away', 'no_journal', 'open') AND NOT (estimated AND journal_generated = 0)), 0)::bigint AS over_generated
FROM classed GROUP BY class ORDER BY class;

-- name: TokensWithoutAttempt :one
SELECT count(*) AS events, coalesce(sum(input_tokens + cached_tokens + cache_write_tokens + image_tokens + audio_tokens), 0)::bigint AS prompt,
       coalesce(sum(output_tokens + reasoning_tokens), 0)::bigint AS generated
FROM usage_events
WHERE started_at >= sqlc.arg(since) AND attempts = '[]'::jsonb
  AND input_tokens + cached_tokens + cache_write_tokens + image_tokens + audio_tokens + output_tokens + reasoning_tokens > 0;

-- name: QuarantinedPayloads :many
SELECT payload FROM quarantine WHERE created_at >= sqlc.arg(since);

-- name: EventsAgainstRollups :many
-- By rollup cell; a difference in one cell is not made good by another.
WITH e AS (
  SELECT org_id, date_bin('15 minutes', started_at, 'epoch') AS bucket, project_id, key_id, model_id, price_version_id, service_tier, count(*) AS requests,
    sum(input_tokens) AS input, sum(cached_tokens) AS cached, sum(cache_write_tokens) AS cache_write, sum(output_tokens) AS output,
    sum(reasoning_tokens) AS reasoning, sum(image_tokens) AS image, sum(audio_tokens) AS audio,
    sum(charged_nano) AS charged, sum(overrun_nano) AS overrun, sum(saved_nano) AS saved, sum(requests) AS billed
  FROM usage_events GROUP BY 1, 2, 3, 4, 5, 6, 7
), v AS (
  SELECT x.name, x.l, x.r FROM e
  FULL JOIN usage_rollups u ON u.org_id = e.org_id AND u.bucket = e.bucket AND u.project_id = e.project_id AND u.key_id = e.key_id AND u.model_id = e.model_id
    AND u.price_version_id = e.price_version_id AND u.service_tier = e.service_tier
  CROSS JOIN LATERAL (SELECT
    unnest(ARRAY['requests', 'input tokens', 'cached tokens', 'cache write tokens', 'output tokens', 'reasoning tokens', 'image tokens', 'audio tokens',
                 'charged', 'overrun', 'saved', 'billed requests']) AS name,
    unnest(ARRAY[e.requests::numeric, e.input, e.cached, e.cache_write, e.output, e.reasoning, e.image, e.audio, e.charged, e.overrun, e.saved, e.billed]) AS l,
    unnest(ARRAY[u.requests::numeric, u.input_tokens, u.cached_tokens, u.cache_write_tokens, u.output_tokens, u.reasoning_tokens, u.image_tokens, u.audio_tokens,
                 u.charged_nano, u.overrun_nano, u.saved_nano, u.billed_requests]) AS r) x
)
SELECT v.name::text AS name, coalesce(sum(v.l), 0)::bigint AS events, coalesce(sum(v.r), 0)::bigint AS rollups,
       coalesce(sum(abs(coalesce(v.l, 0) - coalesce(v.r, 0))), 0)::bigint AS difference
FROM v GROUP BY v.name ORDER BY v.name;

-- name: EventsAgainstLedger :many
-- By organization: what customers paid, what the operator bears, and both as revenue.
WITH e AS (
  SELECT org_id, sum(charged_nano) AS charged, sum(overrun_nano) AS overrun FROM usage_events GROUP BY org_id
), l AS (
  SELECT n.org_id, sum(n.amount_nano) FILTER (WHERE n.account IN ('prepaid_paid', 'prepaid_promo', 'receivable')) AS charged,
         sum(n.amount_nano) FILTER (WHERE n.account = 'overrun') AS overrun, -sum(n.amount_nano) FILTER (WHERE n.account = 'revenue') AS revenue
  FROM ledger_txns t JOIN ledger_entries n ON n.org_id = t.org_id AND n.day = t.day AND n.txn_id = t.id
  WHERE t.kind = 'usage' GROUP BY n.org_id
), v AS (
  SELECT x.name, x.l, x.r FROM e FULL JOIN l ON l.org_id = e.org_id
  CROSS JOIN LATERAL (SELECT unnest(ARRAY['charged', 'overrun', 'revenue']) AS name,
    unnest(ARRAY[e.charged, e.overrun, e.charged + e.overrun]) AS l, unnest(ARRAY[l.charged, l.overrun, l.revenue]) AS r) x
)
SELECT v.name::text AS name, coalesce(sum(v.l), 0)::bigint AS events, coalesce(sum(v.r), 0)::bigint AS ledger,
       coalesce(sum(abs(coalesce(v.l, 0) - coalesce(v.r, 0))), 0)::bigint AS difference
FROM v GROUP BY v.name ORDER BY v.name;

-- name: EventsAgainstTxns :one
-- Each usage transaction is exactly its events.
WITH e AS (
  SELECT org_id, txn_id, sum(charged_nano + overrun_nano) AS amount FROM usage_events WHERE txn_id IS NOT NULL GROUP BY org_id, txn_id
), l AS (
  SELECT n.org_id, n.txn_id, -n.amount_nano AS amount FROM ledger_txns t JOIN ledger_entries n ON n.org_id = t.org_id AND n.day = t.day AND n.txn_id = t.id
  WHERE t.kind = 'usage' AND n.account = 'revenue'
)
SELECT count(*) FILTER (WHERE e.txn_id IS NOT NULL) AS events, count(*) FILTER (WHERE l.txn_id IS NOT NULL) AS ledger,
       count(*) FILTER (WHERE e.amount IS DISTINCT FROM l.amount) AS different
FROM e FULL JOIN l ON l.org_id = e.org_id AND l.txn_id = e.txn_id;

-- name: BalancesAgainstEvents :one
WITH e AS (SELECT org_id, sum(charged_nano) AS charged FROM usage_events GROUP BY org_id),
     b AS (SELECT org_id, sum(settled_nano) AS settled FROM budgets WHERE kind = 'balance' GROUP BY org_id)
SELECT coalesce(sum(e.charged), 0)::bigint AS events, coalesce(sum(b.settled), 0)::bigint AS budgets,
       coalesce(sum(abs(coalesce(e.charged, 0) - coalesce(b.settled, 0))), 0)::bigint AS difference
FROM e FULL JOIN b ON b.org_id = e.org_id;

-- name: BalancesAgainstLedger :one
-- What a balance still allows is what the books say the customer has, plus his credit limit.
WITH l AS (
  SELECT org_id, -sum(amount_nano) AS has FROM ledger_entries WHERE account IN ('prepaid_paid', 'prepaid_promo', 'receivable') GROUP BY org_id
), b AS (
  SELECT b.org_id, b.cap_nano - b.settled_nano - o.credit_limit_nano AS has FROM budgets b JOIN orgs o ON o.org_id = b.org_id WHERE b.kind = 'balance'
)
SELECT coalesce(sum(l.has), 0)::bigint AS ledger, coalesce(sum(b.has), 0)::bigint AS budgets,
       coalesce(sum(abs(coalesce(l.has, 0) - coalesce(b.has, 0))), 0)::bigint AS difference
FROM l FULL JOIN b ON b.org_id = l.org_id;

-- name: OutstandingAgainstAllotments :one
WITH a AS (
  SELECT org_id, budget_id, sum(allotted_nano - used_nano - returned_nano) AS rest FROM allotments GROUP BY org_id, budget_id
)
SELECT coalesce(sum(b.outstanding_nano), 0)::bigint AS budgets, coalesce(sum(a.rest), 0)::bigint AS allotments,
       coalesce(sum(abs(b.outstanding_nano - coalesce(a.rest, 0))), 0)::bigint AS difference
FROM budgets b LEFT JOIN a ON a.org_id = b.org_id AND a.budget_id = b.id;

-- name: OutstandingBehindFences :one
SELECT count(*) AS allotments, coalesce(sum(a.allotted_nano - a.used_nano - a.returned_nano), 0)::bigint AS nano
FROM allotments a JOIN gateway_epochs e ON e.id = a.epoch_id
WHERE e.fenced_at IS NOT NULL AND a.allotted_nano <> a.used_nano + a.returned_nano;

-- name: ReconcileExceptions :one
SELECT (SELECT count(*) FROM quarantine WHERE resolved_at IS NULL) AS quarantined,
       (SELECT count(*) FROM log_gaps WHERE to_seq IS NULL) AS open_gaps,
       (SELECT coalesce(sum(to_seq - from_seq + 1), 0) FROM log_gaps)::bigint AS gap_messages,
       (SELECT count(*) FROM usage_events WHERE repriced) AS repriced;

-- name: InsertReconcileRun :exec
INSERT INTO reconcile_runs (id, at, watermark, unexplained, report) VALUES ($1, $2, $3, $4, $5);

-- name: TopupsAgainstLedger :one
-- With the payments of invoices. Organization by organization: the difference is every one's without its sign.
WITH t AS (
  SELECT x.org_id, sum(x.cents)::bigint * 10000000 AS nano FROM (
    SELECT org_id, cents - clawed_cents - fee_cents AS cents FROM topups WHERE state = 'succeeded'
    UNION ALL SELECT org_id, received_cents - clawed_cents - fee_cents FROM invoice_pushes
    UNION ALL SELECT org_id, relieved_cents - cents FROM credit_notes WHERE back = 'stripe' AND sent_at IS NULL) x
  GROUP BY x.org_id
), l AS (
  SELECT org_id, sum(amount_nano)::bigint AS nano FROM ledger_balances WHERE account = 'stripe_clearing' GROUP BY org_id
)
SELECT COALESCE(sum(t.nano), 0)::bigint AS topups, COALESCE(sum(l.nano), 0)::bigint AS ledger,
       COALESCE(sum(abs(COALESCE(t.nano, 0) - COALESCE(l.nano, 0))), 0)::bigint AS difference
FROM t FULL JOIN l USING (org_id);

-- name: NewestStripeCheck :one
SELECT at, payments, jsonb_array_length(differences)::bigint AS differences, problem FROM stripe_checks ORDER BY at DESC LIMIT 1;

-- name: MonthsAgainstInvoices :many
-- Frozen months: what usage transactions say = what final invoices say, with the rounding that was booked for them, + what was
-- paid from credit + what was charged to nobody. Which month's invoice a transaction belongs to is worked out here anew, by days:
-- freezes fall on a day's beginning. The first month takes what was booked since it began of whatever month. Sums of days are
-- compared with their entries elsewhere, so entries are read one by one only where invoices booked their rounding, by partition:
-- a transaction's day is in its id. pending = organizations without a final invoice.
WITH first AS (
  SELECT first_month AS month FROM invoicing
), l AS (
  SELECT d.org_id, greatest(accounting_month(d.usage_month, d.day), f.month) AS month,
         -sum(d.amount_nano) FILTER (WHERE d.account = 'revenue') AS used,
         coalesce(sum(d.amount_nano) FILTER (WHERE d.account IN ('prepaid_paid', 'prepaid_promo', 'overrun')), 0) AS covered,
         coalesce(sum(d.amount_nano) FILTER (WHERE d.account = 'receivable'), 0) AS owed
  FROM first f JOIN ledger_days d ON d.kind = 'usage' AND (d.day >= f.month OR d.usage_month > f.month)
  GROUP BY 1, 2
), i AS (
  SELECT v.org_id, v.month, v.subtotal_cents::numeric * 10000000 + coalesce((
    SELECT e.amount_nano FROM ledger_entries e
    WHERE e.org_id = v.org_id AND e.txn_id = k.txn_id AND e.account = 'rounding'
      AND e.day = (to_timestamp(('x' || left(replace(k.txn_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC')::date), 0) AS owed
  FROM invoices v LEFT JOIN ledger_keys k ON k.org_id = v.org_id AND k.key = 'invoice:' || v.id || ':final'
  WHERE v.number IS NOT NULL
), v AS (
  SELECT coalesce(l.month, i.month) AS month, coalesce(l.used, 0) AS used, coalesce(l.covered, 0) AS covered, coalesce(l.owed, 0) AS owed, i.owed AS invoiced
  FROM l FULL JOIN i ON i.org_id = l.org_id AND i.month = l.month
)
SELECT v.month::date AS month, sum(v.used)::bigint AS usage_nano,
       sum(v.covered + coalesce(v.invoiced, CASE WHEN v.owed > 0 THEN v.owed ELSE 0 END))::bigint AS invoices_nano,
       sum(abs(v.used - v.covered - coalesce(v.invoiced, v.owed)))::bigint AS difference_nano,
       count(*) FILTER (WHERE v.owed > 0 AND v.invoiced IS NULL) AS pending,
       coalesce(sum(v.owed) FILTER (WHERE v.invoiced IS NULL), 0)::bigint AS pending_nano
FROM v
WHERE v.month IS NOT NULL AND (v.month::timestamp + interval '1 month 48 hours') AT TIME ZONE 'UTC' <= sqlc.arg(watermark)::timestamptz
GROUP BY v.month ORDER BY v.month;

-- name: DueAgainstReceivable :one
-- What is receivable beside usage that is on no final invoice yet = what is due on final invoices. By organization.
WITH r AS (
  SELECT org_id, sum(amount_nano) AS nano FROM ledger_days WHERE account = 'receivable' AND kind <> 'usage' GROUP BY org_id
), i AS (
  SELECT org_id, sum((total_cents - paid_cents - relieved_cents - given_up_cents)::numeric * 10000000 - receivable_nano) AS nano, sum(receivable_nano) AS used
  FROM invoices WHERE number IS NOT NULL GROUP BY org_id
)
SELECT coalesce(sum(i.nano + i.used), 0)::bigint AS due_nano, coalesce(sum(coalesce(r.nano, 0) + coalesce(i.used, 0)), 0)::bigint AS receivable_nano,
       coalesce(sum(abs(coalesce(r.nano, 0) - coalesce(i.nano, 0))), 0)::bigint AS difference_nano
FROM r FULL JOIN i ON i.org_id = r.org_id;

-- name: InvoiceLinesAgainstTotals :one
-- Final invoices whose lines do not add up to what they say, in nano-USD or in cents.
SELECT count(*) AS invoices, count(*) FILTER (WHERE l.nano IS DISTINCT FROM i.receivable_nano OR l.cents IS DISTINCT FROM i.subtotal_cents) AS different
FROM invoices i LEFT JOIN (SELECT org_id, invoice_id, sum(amount_nano) AS nano, sum(cents) AS cents FROM invoice_lines GROUP BY org_id, invoice_id) l
  ON l.org_id = i.org_id AND l.invoice_id = i.id
WHERE i.number IS NOT NULL;
