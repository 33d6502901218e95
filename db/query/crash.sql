-- What the crash bench asks the books after each kill.

-- name: CrashEvents :many
-- Every request booked since an id, with what its tokens cost by the price version it names.
SELECT e.id, e.ending, e.streamed, e.txn_id, e.charged_nano, e.overrun_nano,
  (e.input_tokens + e.cached_tokens + e.cache_write_tokens + e.image_tokens + e.audio_tokens)::bigint AS prompt,
  e.cached_tokens, (e.output_tokens + e.reasoning_tokens)::bigint AS generated,
  (e.input_tokens * p.input_pico + e.cached_tokens * p.cached_pico + e.cache_write_tokens * p.cache_write_pico + e.output_tokens * p.output_pico
    + e.reasoning_tokens * p.reasoning_pico + e.image_tokens * p.image_pico + e.audio_tokens * p.audio_pico + e.requests * p.request_pico)::bigint AS cost_pico
FROM usage_events e JOIN price_versions p ON p.id = e.price_version_id
WHERE e.id > $1 ORDER BY e.id;

-- name: CrashOpenEpochs :one
SELECT count(*) FROM gateway_epochs WHERE fenced_at IS NULL;

-- name: CrashOutlived :many
-- Allotments that still hold something after their epoch was fenced.
SELECT a.budget_id, a.epoch_id, a.allotted_nano, a.used_nano, a.returned_nano
FROM allotments a JOIN gateway_epochs e ON e.id = a.epoch_id
WHERE e.fenced_at IS NOT NULL AND a.allotted_nano <> a.used_nano + a.returned_nano LIMIT 20;

-- name: CrashBudgets :many
-- Budgets that do not add up: outstanding is what their allotments hold; of a balance or a total, settled is what was charged.
SELECT b.id, b.kind, b.scope, b.settled_nano, b.outstanding_nano, held.nano AS held_nano, charged.nano AS charged_nano
FROM budgets b
CROSS JOIN LATERAL (SELECT coalesce(sum(a.allotted_nano - a.used_nano - a.returned_nano), 0)::bigint AS nano
  FROM allotments a WHERE a.org_id = b.org_id AND a.budget_id = b.id) held
CROSS JOIN LATERAL (SELECT coalesce(sum(e.charged_nano), 0)::bigint AS nano
  FROM usage_events e WHERE e.org_id = b.org_id AND (b.scope = 'org' OR b.scope = 'key' AND e.key_id = b.scope_id OR b.scope = 'project' AND e.project_id = b.scope_id)) charged
WHERE b.outstanding_nano <> held.nano OR b.period = 'total' AND b.settled_nano <> charged.nano LIMIT 20;

-- name: CrashTxns :many
-- Usage transactions whose revenue is not what their events came to (charged and overrun), and events that were booked by none.
SELECT coalesce(t.id, e.txn_id)::uuid AS txn_id, coalesce(t.nano, 0)::bigint AS revenue_nano, coalesce(e.nano, 0)::bigint AS charged_nano
FROM (SELECT x.id, -sum(n.amount_nano) AS nano FROM ledger_txns x JOIN ledger_entries n ON n.org_id = x.org_id AND n.day = x.day AND n.txn_id = x.id
  WHERE x.kind = 'usage' AND n.account = 'revenue' GROUP BY x.id) t
FULL JOIN (SELECT txn_id, sum(charged_nano + overrun_nano) AS nano FROM usage_events WHERE charged_nano + overrun_nano > 0 GROUP BY txn_id) e ON e.txn_id = t.id
WHERE t.nano IS DISTINCT FROM e.nano LIMIT 20;

-- name: CrashQuarantine :many
SELECT reason, convert_from(payload, 'UTF8')::text AS payload FROM quarantine LIMIT 20;

-- name: CrashGaps :one
SELECT count(*) FROM log_gaps;
