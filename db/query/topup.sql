-- Top-ups, payment methods, auto-recharge.
--
-- Lock order, for everyone: auto_recharges, topups by id, payment_customers, then what db/query/credit.sql says. Whoever
-- changes a card takes auto_recharges first: a pause or its end follows from it.

-- name: PaymentCustomer :one
SELECT * FROM payment_customers WHERE org_id = $1;

-- name: LockPaymentCustomer :one
-- After LockAutoRecharge, which may find no row to lock.
SELECT * FROM payment_customers WHERE org_id = $1 FOR NO KEY UPDATE;

-- name: OrgOfPaymentCustomer :one
SELECT org_id FROM payment_customers WHERE customer_id = $1;

-- name: OrgOfPaymentMethod :one
SELECT org_id FROM payment_customers WHERE method_id = sqlc.arg(method)::text;

-- name: InsertPaymentCustomer :exec
INSERT INTO payment_customers (org_id, customer_id, created_at, updated_at) VALUES ($1, $2, sqlc.arg(now), sqlc.arg(now))
ON CONFLICT (org_id) DO NOTHING;

-- name: ReplacePaymentCustomer :exec
-- The payment provider knows the old one no more; the card went with it.
UPDATE payment_customers SET customer_id = sqlc.arg(fresh), method_id = NULL, card_brand = '', card_last4 = '', card_expiry = NULL,
  charge_invoices = false, updated_at = sqlc.arg(now)
WHERE org_id = sqlc.arg(org_id) AND customer_id = sqlc.arg(gone);

-- name: OpenTopups :one
-- How many payment pages of an organization are open.
SELECT count(*) FROM topups WHERE org_id = $1 AND kind = 'manual' AND state IN ('created', 'open') AND created_at > sqlc.arg(since);

-- name: KeepPaymentMethod :execrows
-- While a card is kept, updated_at is when it was given, by the payment provider's clock. No row: a card that was given
-- later is kept already.
UPDATE payment_customers SET method_id = $2, card_brand = $3, card_last4 = $4, card_expiry = $5, updated_at = sqlc.arg(given)
WHERE org_id = $1 AND (method_id IS NULL OR updated_at <= sqlc.arg(given));

-- name: DropPaymentMethod :one
-- No row: the card was dropped, or another one took its place. The consent to charge it for invoices ends with it.
UPDATE payment_customers c SET method_id = NULL, card_brand = '', card_last4 = '', card_expiry = NULL, charge_invoices = false, updated_at = sqlc.arg(now)
FROM (SELECT org_id, card_brand, card_last4 FROM payment_customers) was
WHERE c.org_id = $1 AND c.method_id = sqlc.arg(method)::text AND was.org_id = c.org_id
RETURNING was.card_brand, was.card_last4;

-- name: InsertTopup :one
-- No row: there is one with this id, or another automatic one is open.
INSERT INTO topups (org_id, id, kind, state, cents, keep_card, created_by, created_at, updated_at, next_at)
VALUES ($1, $2, $3, 'created', $4, $5, $6, sqlc.arg(now), sqlc.arg(now), $7)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: Topup :one
SELECT * FROM topups WHERE org_id = $1 AND id = $2;

-- name: LockTopup :one
SELECT * FROM topups WHERE org_id = $1 AND id = $2 FOR NO KEY UPDATE;

-- name: TopupByID :one
SELECT * FROM topups WHERE id = $1;

-- name: TopupByPayment :one
SELECT * FROM topups WHERE payment_id = $1;

-- name: Topups :many
SELECT * FROM topups WHERE org_id = $1 AND (state <> 'created' OR kind = 'auto') ORDER BY id DESC LIMIT sqlc.arg(max_rows);

-- name: ChangeTopup :exec
UPDATE topups SET state = $3, session_id = $4, session_url = $5, payment_id = $6, attempt = $7, declines = $8, failure = $9,
  clawed_cents = $10, clawbacks = $11, refunded_cents = $12, disputed_cents = $13, fee_cents = $14, next_at = $15, paid_at = $16,
  updated_at = $17, customer_ids = $18, version = version + 1
WHERE org_id = $1 AND id = $2;

-- name: ClaimDueTopup :one
-- Whoever takes one has it until next_at, which the claim moves ahead.
UPDATE topups SET next_at = sqlc.arg(until)::timestamptz
WHERE (org_id, id) = (SELECT t.org_id, t.id FROM topups t WHERE t.next_at <= sqlc.arg(now) ORDER BY t.next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: PendingTopupCents :one
-- Money on its way: what a decision to charge must count in.
SELECT coalesce(sum(cents), 0)::bigint AS cents FROM topups WHERE org_id = $1 AND state IN ('processing', 'retrying') OR org_id = $1 AND kind = 'auto' AND state = 'created';

-- name: AutoTopupCentsSince :one
-- What automatic top-ups took since a moment, and what one is about to take now, whenever it was begun.
SELECT coalesce(sum(cents), 0)::bigint AS cents FROM topups
WHERE org_id = $1 AND kind = 'auto' AND (state IN ('created', 'processing', 'retrying') OR state = 'succeeded' AND paid_at >= sqlc.arg(since)::timestamptz);

-- name: AutoTopupsSince :one
SELECT count(*) FROM topups WHERE org_id = $1 AND kind = 'auto' AND state = 'succeeded' AND paid_at >= sqlc.arg(since)::timestamptz;

-- name: PaidTopups :many
-- Paid from a moment until another.
SELECT * FROM topups WHERE paid_at >= sqlc.arg(since)::timestamptz AND paid_at <= sqlc.arg(until)::timestamptz ORDER BY id;

-- name: AutoRecharge :one
SELECT * FROM auto_recharges WHERE org_id = $1;

-- name: LockAutoRecharge :one
SELECT * FROM auto_recharges WHERE org_id = $1 FOR NO KEY UPDATE;

-- name: SetAutoRecharge :exec
INSERT INTO auto_recharges (org_id, enabled, below_nano, to_nano, monthly_max_nano, consent, consented_by, consented_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, sqlc.arg(now), sqlc.arg(now))
ON CONFLICT (org_id) DO UPDATE SET enabled = excluded.enabled, below_nano = excluded.below_nano, to_nano = excluded.to_nano,
  monthly_max_nano = excluded.monthly_max_nano, consent = excluded.consent, consented_by = excluded.consented_by,
  consented_at = excluded.consented_at, paused = '', paused_at = NULL, month_full_at = NULL, updated_at = excluded.updated_at;

-- name: StopAutoRecharge :execrows
UPDATE auto_recharges SET enabled = false, updated_at = $2 WHERE org_id = $1 AND enabled;

-- name: PauseAutoRecharge :execrows
-- A pause for one of the reasons over gives way to this one.
UPDATE auto_recharges SET paused = $2, paused_at = sqlc.arg(now)::timestamptz, updated_at = sqlc.arg(now)
WHERE org_id = $1 AND enabled AND (paused = '' OR paused = ANY (sqlc.arg(over)::text[]));

-- name: ResumeAutoRecharge :execrows
-- Ends a pause for one of the reasons, and no other.
UPDATE auto_recharges SET paused = '', paused_at = NULL, updated_at = $2 WHERE org_id = $1 AND paused = ANY (sqlc.arg(reasons)::text[]);

-- name: NoteMonthFull :exec
UPDATE auto_recharges SET month_full_at = sqlc.arg(now)::timestamptz WHERE org_id = $1;

-- name: OrgsToRecharge :many
-- Organizations behind another one whose balance is below what they said. What they wait for already is looked at under the lock.
SELECT a.org_id FROM auto_recharges a JOIN orgs o USING (org_id) LEFT JOIN budgets b ON b.org_id = a.org_id AND b.kind = 'balance'
WHERE a.org_id > sqlc.arg(after) AND a.enabled AND a.paused = '' AND o.suspended_at IS NULL AND COALESCE(b.cap_nano - b.settled_nano - b.outstanding_nano, 0) < a.below_nano
  AND NOT EXISTS (SELECT FROM topups t WHERE t.org_id = a.org_id AND t.kind = 'auto' AND t.state IN ('created', 'processing', 'retrying'))
ORDER BY a.org_id LIMIT sqlc.arg(max_rows);

-- name: PausedRecharges :many
SELECT a.*, o.name AS org_name FROM auto_recharges a JOIN orgs o USING (org_id) WHERE a.enabled AND a.paused <> '' ORDER BY a.paused_at DESC LIMIT sqlc.arg(max_rows);

-- name: BillingPeople :many
-- Who gets mail about an organization's money.
SELECT u.email FROM members m JOIN users u ON u.id = m.user_id
WHERE m.org_id = $1 AND m.role IN ('owner', 'billing') AND u.disabled_at IS NULL ORDER BY u.email;

-- name: OperatorPeople :many
SELECT email FROM users WHERE is_operator AND disabled_at IS NULL ORDER BY email;
