-- Budgets, allotments, gateway epochs, grants and caps.
--
-- Lock order, for everyone: gateway_epochs, ledger_balances by (org_id, account), allotments by (budget_id, epoch_id),
-- budgets by id. Explicit locks are FOR NO KEY UPDATE: a first allotment takes KEY SHARE on its budget by its foreign key,
-- and FOR UPDATE against that would deadlock.

-- ---- epochs ------------------------------------------------------------------------------------------------------
-- name: InsertEpoch :one
INSERT INTO gateway_epochs (id, process, data_lock, valid_ms, request_max_ms, log_seen, started_at, heartbeat_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp())
RETURNING heartbeat_at;

-- name: BeatEpoch :one
-- No row: the epoch ended, or the database is an older copy that has not seen the last heartbeat. heartbeat_at never
-- goes back, even when the server's clock does.
UPDATE gateway_epochs SET heartbeat_at = greatest(clock_timestamp(), heartbeat_at), log_seen = log_seen || sqlc.arg(log_seen)::jsonb
WHERE id = $1 AND heartbeat_at >= sqlc.arg(last_seen)
  AND goodbye_at IS NULL AND dead_at IS NULL AND fenced_at IS NULL AND voided_at IS NULL
RETURNING heartbeat_at;

-- name: GoodbyeEpoch :execrows
UPDATE gateway_epochs SET goodbye_at = clock_timestamp(), log_end = $2
WHERE id = $1 AND goodbye_at IS NULL AND dead_at IS NULL AND fenced_at IS NULL AND voided_at IS NULL;

-- name: HoldEpochOpen :one
-- Keeps a fence out for the rest of the transaction: a fence locks the row FOR UPDATE. Heartbeats are not held up.
SELECT id FROM gateway_epochs
WHERE id = $1 AND goodbye_at IS NULL AND dead_at IS NULL AND fenced_at IS NULL AND voided_at IS NULL
FOR KEY SHARE;

-- name: LockEpochForFence :one
-- Waits for raises that are under way, so that none commits after the fence has counted.
SELECT * FROM gateway_epochs WHERE id = $1 FOR UPDATE;

-- ---- allotments --------------------------------------------------------------------------------------------------
-- name: RaiseAllotments :many
INSERT INTO allotments (org_id, budget_id, epoch_id, allotted_nano)
SELECT sqlc.arg(org_id)::uuid, a.budget_id, sqlc.arg(epoch_id)::uuid, a.delta
FROM (SELECT unnest(sqlc.arg(budgets)::uuid[]) AS budget_id, unnest(sqlc.arg(deltas)::bigint[]) AS delta) a
ORDER BY a.budget_id
ON CONFLICT (org_id, budget_id, epoch_id) DO UPDATE SET allotted_nano = allotments.allotted_nano + excluded.allotted_nano
RETURNING budget_id, allotted_nano, used_nano, returned_nano;

-- name: LockBudgets :many
SELECT id, enforced_cap(cap_nano, raised_nano, raised_until) AS cap_nano, settled_nano, outstanding_nano FROM budgets
WHERE org_id = $1 AND id = ANY(sqlc.arg(ids)::uuid[])
ORDER BY id
FOR NO KEY UPDATE;

-- name: RaiseBudgets :execrows
-- The one way to spendable money. A budget without room is left out: the caller compares the count and rolls back.
UPDATE budgets b SET outstanding_nano = b.outstanding_nano + a.delta
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(deltas)::bigint[]) AS delta) a
WHERE b.org_id = sqlc.arg(org_id) AND b.id = a.id AND b.settled_nano + b.outstanding_nano + a.delta <= enforced_cap(b.cap_nano, b.raised_nano, b.raised_until);

-- name: LockAllotments :many
SELECT budget_id, allotted_nano, used_nano, returned_nano FROM allotments
WHERE org_id = $1 AND epoch_id = $2 AND budget_id = ANY(sqlc.arg(budgets)::uuid[])
ORDER BY budget_id
FOR NO KEY UPDATE;

-- name: ReturnAllotments :execrows
UPDATE allotments t SET returned_nano = t.returned_nano + a.delta
FROM (SELECT unnest(sqlc.arg(budgets)::uuid[]) AS budget_id, unnest(sqlc.arg(deltas)::bigint[]) AS delta) a
WHERE t.org_id = sqlc.arg(org_id) AND t.epoch_id = sqlc.arg(epoch_id) AND t.budget_id = a.budget_id;

-- name: LowerOutstanding :execrows
UPDATE budgets b SET outstanding_nano = b.outstanding_nano - a.delta
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(deltas)::bigint[]) AS delta) a
WHERE b.org_id = sqlc.arg(org_id) AND b.id = a.id;

-- name: LockAllotmentsOfEpoch :many
SELECT org_id, budget_id, (allotted_nano - used_nano - returned_nano)::bigint AS rest FROM allotments
WHERE epoch_id = $1 AND allotted_nano - used_nano - returned_nano > 0
ORDER BY budget_id
FOR NO KEY UPDATE;

-- name: ReturnRestOfEpoch :execrows
UPDATE allotments SET returned_nano = allotted_nano - used_nano
WHERE epoch_id = $1 AND allotted_nano - used_nano - returned_nano > 0;

-- name: LockBudgetsOfAnyOrg :many
SELECT id FROM budgets WHERE id = ANY(sqlc.arg(ids)::uuid[]) ORDER BY id FOR NO KEY UPDATE;

-- name: LowerOutstandingOfAnyOrg :execrows
UPDATE budgets b SET outstanding_nano = b.outstanding_nano - a.delta
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(deltas)::bigint[]) AS delta) a
WHERE b.org_id = a.org_id AND b.id = a.id;

-- ---- budgets -----------------------------------------------------------------------------------------------------
-- name: FindBudgets :many
-- The budgets of these scopes in these periods; the caller picks by the whole key.
SELECT id, kind, scope, scope_id, period, period_start, enforced_cap(cap_nano, raised_nano, raised_until) AS cap_nano,
  (enforced_cap(cap_nano, raised_nano, raised_until) - settled_nano - outstanding_nano)::bigint AS headroom_nano FROM budgets
WHERE org_id = $1 AND scope_id = ANY(sqlc.arg(scope_ids)::uuid[]) AND period_start = ANY(sqlc.arg(starts)::timestamptz[]);

-- name: BudgetCaps :many
SELECT id, enforced_cap(cap_nano, raised_nano, raised_until) AS cap_nano,
  (enforced_cap(cap_nano, raised_nano, raised_until) - settled_nano - outstanding_nano)::bigint AS headroom_nano FROM budgets WHERE org_id = $1 AND id = ANY(sqlc.arg(ids)::uuid[]);

-- name: EnsureCapBudgets :exec
-- A period's first use copies the cap. FOR SHARE: whoever changes the cap meanwhile sees the new row or is seen by it. What
-- the period has cost counts, as with SpentSince: after a change of time zone the running period is a new row.
INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano, raised_nano, raised_until, settled_nano)
SELECT c.org_id, w.id, 'cap', c.scope, c.scope_id, c.period, w.period_start, CASE WHEN c.hard THEN c.cap_nano ELSE sqlc.arg(no_cap)::bigint END, c.raised_nano, c.raised_until,
       (SELECT coalesce(sum(u.charged_nano), 0)::bigint FROM usage_rollups u
        WHERE u.org_id = c.org_id AND u.bucket >= w.period_start
          AND (c.scope = 'org' OR c.scope = 'project' AND u.project_id = c.scope_id OR c.scope = 'key' AND u.key_id = c.scope_id))
FROM caps c
JOIN (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(scopes)::text[]) AS scope,
             unnest(sqlc.arg(scope_ids)::uuid[]) AS scope_id, unnest(sqlc.arg(periods)::text[]) AS period,
             unnest(sqlc.arg(starts)::timestamptz[]) AS period_start) w
  ON w.scope = c.scope AND w.scope_id = c.scope_id AND w.period = c.period
WHERE c.org_id = sqlc.arg(org_id) AND c.removed_at IS NULL
ORDER BY c.id
FOR SHARE OF c
ON CONFLICT (org_id, kind, scope, scope_id, period, period_start) DO NOTHING;

-- name: EnsureBalanceBudget :exec
INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano)
SELECT o.org_id, sqlc.arg(id), 'balance', 'org', o.org_id, 'total', sqlc.arg(period_start), o.credit_limit_nano
FROM orgs o WHERE o.org_id = sqlc.arg(org_id)
FOR SHARE
ON CONFLICT (org_id, kind, scope, scope_id, period, period_start) DO NOTHING;

-- name: RaiseBalanceCap :execrows
UPDATE budgets SET cap_nano = cap_nano + sqlc.arg(delta)
WHERE org_id = sqlc.arg(org_id) AND kind = 'balance';

-- name: BalanceBudget :one
SELECT cap_nano, settled_nano, outstanding_nano FROM budgets WHERE org_id = $1 AND kind = 'balance';

-- name: SetCreditLimit :one
-- The old limit comes from a row that is locked, so the difference is exact.
UPDATE orgs o SET credit_limit_nano = sqlc.arg(credit_limit)
FROM (SELECT org_id, credit_limit_nano FROM orgs WHERE orgs.org_id = sqlc.arg(org_id) FOR NO KEY UPDATE) old
WHERE o.org_id = old.org_id
RETURNING old.credit_limit_nano AS was;

-- ---- caps --------------------------------------------------------------------------------------------------------
-- name: Caps :many
SELECT id, scope, scope_id, period, cap_nano FROM caps WHERE org_id = $1 AND removed_at IS NULL ORDER BY id;

-- name: OrgsWithChangedCaps :many
SELECT DISTINCT org_id FROM caps
WHERE changed_at > clock_timestamp() - sqlc.arg(since_seconds)::bigint * interval '1 second' AND org_id = ANY(sqlc.arg(orgs)::uuid[]);

-- name: FindCapForChange :one
SELECT * FROM caps WHERE org_id = $1 AND scope = $2 AND scope_id = $3 AND period = $4 AND removed_at IS NULL FOR NO KEY UPDATE;

-- name: InsertCap :one
INSERT INTO caps (org_id, id, scope, scope_id, period, cap_nano, hard, changed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())
ON CONFLICT (org_id, scope, scope_id, period) WHERE removed_at IS NULL DO NOTHING
RETURNING *;

-- name: ChangeCap :one
UPDATE caps SET cap_nano = $3, hard = $4, raised_nano = $5, raised_until = $6, changed_at = clock_timestamp() WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: LockCap :one
SELECT * FROM caps WHERE org_id = $1 AND id = $2 AND removed_at IS NULL FOR NO KEY UPDATE;

-- name: EndRaises :many
-- Raises that are over: what budgets enforce fell by itself; this tells which gateways must give back what they hold above
-- it, and what may be past a threshold now.
UPDATE caps SET raised_nano = 0, raised_until = NULL, changed_at = clock_timestamp()
WHERE raised_until <= clock_timestamp() RETURNING org_id, scope, scope_id, period;

-- name: NoteAlerts :exec
-- Thresholds that these budgets have passed, each once per budget and amount of the cap. Whoever moves a budget or its cap
-- calls it in the same transaction, so no alert is lost and none comes twice. Most of what is passed is noted already: it is
-- left out before anything is locked.
INSERT INTO cap_alerts (org_id, budget_id, percent, cap_nano, settled_nano, hard)
SELECT b.org_id, b.id, t.percent, a.amount, b.settled_nano, c.hard
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(ids)::uuid[]) AS id) k
JOIN budgets b ON b.org_id = k.org_id AND b.id = k.id AND b.kind = 'cap'
JOIN caps c ON c.org_id = b.org_id AND c.scope = b.scope AND c.scope_id = b.scope_id AND c.period = b.period AND c.removed_at IS NULL
CROSS JOIN LATERAL (SELECT enforced_cap(c.cap_nano, c.raised_nano, c.raised_until) AS amount) a
JOIN (VALUES (50), (80), (100)) AS t(percent) ON a.amount > 0 AND b.settled_nano::numeric * 100 >= a.amount::numeric * t.percent
WHERE NOT EXISTS (SELECT FROM cap_alerts n WHERE n.org_id = b.org_id AND n.budget_id = b.id AND n.cap_nano = a.amount AND n.percent = t.percent)
ORDER BY b.id, t.percent
ON CONFLICT (org_id, budget_id, cap_nano, percent) DO NOTHING;

-- name: BudgetsOfCap :many
SELECT id FROM budgets WHERE org_id = $1 AND kind = 'cap' AND scope = $2 AND scope_id = $3 AND period = $4 AND period_start >= sqlc.arg(since) ORDER BY id;

-- name: RemoveCap :one
UPDATE caps SET removed_at = clock_timestamp(), changed_at = clock_timestamp() WHERE org_id = $1 AND id = $2 AND removed_at IS NULL RETURNING *;

-- name: SetBudgetCaps :execrows
-- The running period and any that began since; closed periods keep what they were.
UPDATE budgets SET cap_nano = sqlc.arg(cap_nano), raised_nano = sqlc.arg(raised_nano), raised_until = sqlc.narg(raised_until)
WHERE org_id = sqlc.arg(org_id) AND kind = 'cap' AND scope = sqlc.arg(scope) AND scope_id = sqlc.arg(scope_id)
  AND period = sqlc.arg(period) AND period_start >= sqlc.arg(since);

-- name: StartCapBudget :exec
-- A cap that is set in the middle of a period counts what the period has cost so far.
INSERT INTO budgets (org_id, id, kind, scope, scope_id, period, period_start, cap_nano, settled_nano)
VALUES ($1, $2, 'cap', $3, $4, $5, $6, $7, $8)
ON CONFLICT (org_id, kind, scope, scope_id, period, period_start)
DO UPDATE SET cap_nano = excluded.cap_nano, settled_nano = greatest(budgets.settled_nano, excluded.settled_nano);

-- name: SpentSince :one
SELECT coalesce(sum(charged_nano), 0)::bigint AS spent FROM usage_rollups
WHERE org_id = sqlc.arg(org_id) AND bucket >= sqlc.arg(since)
  AND (sqlc.arg(scope)::text = 'org' OR sqlc.arg(scope)::text = 'project' AND project_id = sqlc.arg(scope_id)
       OR sqlc.arg(scope)::text = 'key' AND key_id = sqlc.arg(scope_id));

-- name: CapUsage :many
-- Caps with their budgets; the caller picks the row of the running period. No row: nothing was spent in it.
SELECT c.id, c.scope, c.scope_id, c.period, c.cap_nano, c.hard, c.raised_nano, c.raised_until, b.period_start, b.settled_nano, b.outstanding_nano
FROM caps c LEFT JOIN budgets b
  ON b.org_id = c.org_id AND b.kind = 'cap' AND b.scope = c.scope AND b.scope_id = c.scope_id AND b.period = c.period
     AND b.period_start = ANY(sqlc.arg(starts)::timestamptz[])
WHERE c.org_id = sqlc.arg(org_id) AND c.removed_at IS NULL
ORDER BY c.scope, c.scope_id, c.period;

-- name: ScopeExists :one
SELECT CASE sqlc.arg(scope)::text
  WHEN 'org' THEN sqlc.arg(scope_id)::uuid = sqlc.arg(org_id)::uuid AND EXISTS (SELECT FROM orgs WHERE orgs.org_id = sqlc.arg(org_id))
  WHEN 'project' THEN EXISTS (SELECT FROM projects WHERE projects.org_id = sqlc.arg(org_id) AND id = sqlc.arg(scope_id))
  WHEN 'key' THEN EXISTS (SELECT FROM api_keys WHERE api_keys.org_id = sqlc.arg(org_id) AND id = sqlc.arg(scope_id))
  ELSE false END::boolean AS found;

-- name: OrgTimeZone :one
SELECT time_zone FROM orgs WHERE org_id = $1;

-- ---- grants ------------------------------------------------------------------------------------------------------
-- name: InsertGrant :one
INSERT INTO credit_grants (org_id, id, kind, amount_nano, reason, idempotency_key, created_by, created_at, expires_at, priority)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (org_id, idempotency_key) DO NOTHING
RETURNING *;

-- name: GrantByKey :one
SELECT * FROM credit_grants WHERE org_id = $1 AND idempotency_key = $2;

-- name: Grants :many
SELECT * FROM credit_grants WHERE org_id = $1 ORDER BY id DESC LIMIT sqlc.arg(max_rows);

-- ---- the end of credit -------------------------------------------------------------------------------------------------
-- name: ExpiredLots :many
-- The page behind a lot: those that cannot end now stay, and keep none behind them waiting.
SELECT org_id, lot_id, expires_at::timestamptz AS expires_at FROM ledger_lots WHERE remaining_nano > 0 AND expires_at <= sqlc.arg(through)::timestamptz
  AND (expires_at, lot_id) > (sqlc.arg(after)::timestamptz, sqlc.arg(after_lot)::uuid)
ORDER BY expires_at, lot_id LIMIT sqlc.arg(max_rows);

-- name: LockBalanceBudget :one
SELECT id, cap_nano, settled_nano, outstanding_nano FROM budgets WHERE org_id = $1 AND kind = 'balance' FOR NO KEY UPDATE;

-- name: LotsToWarn :many
-- Lots that end within so many days and whose owners were not told so.
SELECT l.org_id, l.lot_id, l.account, l.expires_at, l.remaining_nano FROM ledger_lots l
WHERE l.remaining_nano > 0 AND l.expires_at > sqlc.arg(now)::timestamptz AND l.expires_at <= sqlc.arg(until)::timestamptz
  AND NOT EXISTS (SELECT FROM lot_warnings w WHERE w.org_id = l.org_id AND w.lot_id = l.lot_id AND w.days <= sqlc.arg(days))
ORDER BY l.expires_at, l.lot_id LIMIT sqlc.arg(max_rows);

-- name: ClaimLotWarning :execrows
INSERT INTO lot_warnings (org_id, lot_id, days, told_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING;

-- ---- requests of operators ---------------------------------------------------------------------------------------------
-- name: LockCreditLimit :one
SELECT credit_limit_nano FROM orgs WHERE org_id = $1 FOR NO KEY UPDATE;

-- name: LockApprovals :exec
-- What one operator does to a customer is added up: one at a time. Taken before any row.
SELECT pg_advisory_xact_lock(hashtextextended('approvals of ' || sqlc.arg(org_id)::uuid::text, 0));

-- name: DoneAlone :one
-- What an operator gave a customer or took from him, alone, since a moment: in person, and by every control token that he is or
-- was behind, whichever of them asks now. Grants that were asked for are under their request.
WITH people AS (SELECT sqlc.arg(who)::text AS name
                UNION SELECT t.created_by FROM control_tokens t WHERE 'token:' || t.name = sqlc.arg(who)::text AND t.created_by <> ''),
     names AS (SELECT p.name FROM people p UNION SELECT 'token:' || t.name FROM control_tokens t JOIN people p ON t.created_by = p.name)
SELECT ((SELECT coalesce(sum(CASE r.kind WHEN 'credit_limit' THEN greatest(r.amount_nano, 0) ELSE abs(r.amount_nano) END), 0) FROM credit_requests r
          WHERE r.org_id = $1 AND (r.asked_by IN (SELECT n.name FROM names n) OR sqlc.arg(any_token)::boolean AND r.asked_by LIKE 'token:%') AND r.state = 'done' AND r.decided_by IS NULL AND r.asked_at > sqlc.arg(since)::timestamptz)
      + (SELECT coalesce(sum(g.amount_nano), 0) FROM credit_grants g
          WHERE g.org_id = $1 AND (g.created_by IN (SELECT n.name FROM names n) OR sqlc.arg(any_token)::boolean AND g.created_by LIKE 'token:%') AND g.created_at > sqlc.arg(since)::timestamptz AND g.idempotency_key NOT LIKE 'creq\_%'))::bigint AS nano;

-- name: IsBehind :one
-- Whether a person is or was behind a control token, as rows name both.
SELECT EXISTS (SELECT FROM control_tokens t WHERE 'token:' || t.name = sqlc.arg(token)::text AND t.created_by = sqlc.arg(person)::text)::boolean AS behind;

-- name: InsertCreditRequest :one
INSERT INTO credit_requests (org_id, id, kind, amount_nano, reason, details, idempotency_key, asked_by, asked_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (org_id, idempotency_key) DO NOTHING
RETURNING *;

-- name: CreditRequestByKey :one
SELECT * FROM credit_requests WHERE org_id = $1 AND idempotency_key = $2;

-- name: CreditRequestOrg :one
SELECT org_id FROM credit_requests WHERE id = $1;

-- name: LockCreditRequest :one
-- After LockApprovals.
SELECT * FROM credit_requests WHERE id = $1 FOR NO KEY UPDATE;

-- name: DecideCreditRequest :one
UPDATE credit_requests SET state = $3, decided_by = $4, decided_at = $5, note = $6 WHERE org_id = $1 AND id = $2 AND state = 'waiting' RETURNING *;

-- name: CreditRequests :many
SELECT r.*, o.name AS org_name,
       EXISTS (SELECT FROM control_tokens t WHERE 'token:' || t.name = r.asked_by AND t.created_by = sqlc.arg(person)::text)::boolean AS by_token
FROM credit_requests r JOIN orgs o ON o.org_id = r.org_id
ORDER BY (r.state = 'waiting') DESC, r.asked_at DESC LIMIT sqlc.arg(max_rows);
