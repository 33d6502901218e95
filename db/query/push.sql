-- Invoices at the payment provider. Lock order: billing/invoice/doc.go.

-- name: BeginInvoicePushes :execrows
-- Every open invoice that is worth a payment gets its row.
INSERT INTO invoice_pushes (org_id, invoice_id, state, next_at, updated_at)
SELECT i.org_id, i.id, 'new', sqlc.arg(now)::timestamptz, sqlc.arg(now)::timestamptz FROM invoices i
WHERE i.state = 'open' AND i.total_cents >= sqlc.arg(least)::bigint
  AND NOT EXISTS (SELECT FROM invoice_pushes p WHERE p.org_id = i.org_id AND p.invoice_id = i.id)
ORDER BY i.id
ON CONFLICT DO NOTHING;

-- name: ClaimDuePush :one
-- Whoever takes one has it until next_at, which the claim moves ahead. Who hangs now is left for the next turn.
UPDATE invoice_pushes SET next_at = sqlc.arg(until)::timestamptz
WHERE (org_id, invoice_id) = (SELECT p.org_id, p.invoice_id FROM invoice_pushes p WHERE p.next_at <= sqlc.arg(now) AND p.org_id <> ALL(sqlc.arg(hanging)::uuid[]) ORDER BY p.next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: InvoicePush :one
SELECT * FROM invoice_pushes WHERE org_id = $1 AND invoice_id = $2;

-- name: LockInvoicePush :one
SELECT * FROM invoice_pushes WHERE org_id = $1 AND invoice_id = $2 FOR NO KEY UPDATE;

-- name: ChangeInvoicePush :exec
UPDATE invoice_pushes p SET state = $3, ref = $4, attempt = $5, url = $6, pdf_url = $7, problem = $8, next_at = $9, charge = $10, payment_id = $11, method_id = $12,
  asks = $13, failed_at = $14, failures = $15, received_cents = $16, clawed_cents = $17, clawbacks = $18, taken_cents = $19, fee_cents = $20, seen_version = $21, updated_at = $22,
  lower_attempt = $23, refunded_cents = $24, loose_cents = $25, moved = $21 IS DISTINCT FROM (SELECT i.version FROM invoices i WHERE i.org_id = p.org_id AND i.id = p.invoice_id), version = p.version + 1
WHERE p.org_id = $1 AND p.invoice_id = $2;

-- name: PushByRef :one
SELECT * FROM invoice_pushes WHERE ref = $1;

-- name: PushByPayment :one
SELECT * FROM invoice_pushes WHERE payment_id = $1;

-- name: PushOfInvoice :one
SELECT * FROM invoice_pushes WHERE invoice_id = $1;

-- name: InvoicePushes :many
-- Those with a problem first: the operator's list.
SELECT p.*, i.number, i.state AS invoice_state, o.name AS org_name FROM invoice_pushes p
JOIN invoices i ON i.org_id = p.org_id AND i.id = p.invoice_id JOIN orgs o ON o.org_id = p.org_id
WHERE p.problem <> '' ORDER BY p.updated_at DESC LIMIT sqlc.arg(max_rows);

-- name: PushesSince :many
SELECT p.* FROM invoice_pushes p JOIN invoices i ON i.org_id = p.org_id AND i.id = p.invoice_id
WHERE p.ref IS NOT NULL AND i.finalized_at >= sqlc.arg(since)::timestamptz ORDER BY p.invoice_id;

-- name: WakePush :exec
UPDATE invoice_pushes SET next_at = sqlc.arg(now)::timestamptz WHERE org_id = $1 AND invoice_id = $2;

-- name: FlagPush :exec
-- Flagged or not, the row is locked until the move is committed: whoever keeps a look meanwhile waits, and sees it.
UPDATE invoice_pushes SET moved = true WHERE org_id = $1 AND invoice_id = $2;

-- name: WakeMovedPushes :exec
-- Invoices that moved here since the last look: paid by hand, credited, given up.
UPDATE invoice_pushes p SET next_at = sqlc.arg(now)::timestamptz
FROM (SELECT m.org_id, m.invoice_id FROM invoice_pushes m
       WHERE m.moved AND (m.next_at IS NULL OR m.next_at > sqlc.arg(now)::timestamptz) AND m.failures = 0 AND m.state <> 'stopped'
       ORDER BY m.invoice_id FOR NO KEY UPDATE) w
WHERE p.org_id = w.org_id AND p.invoice_id = w.invoice_id;

-- name: LinkCreditNote :exec
UPDATE credit_notes SET till_ref = $3, till_problem = '' WHERE org_id = $1 AND id = $2 AND till_ref IS NULL AND sent_at IS NULL;

-- name: RefuseCreditNote :exec
UPDATE credit_notes SET till_problem = $3, till_again_at = $4, till_attempt = till_attempt + 1 WHERE org_id = $1 AND id = $2 AND till_ref IS NULL AND sent_at IS NULL;

-- name: HoldCreditNote :exec
-- Nobody was asked: its key stays.
UPDATE credit_notes SET till_problem = $3, till_again_at = $4 WHERE org_id = $1 AND id = $2 AND till_ref IS NULL AND sent_at IS NULL;

-- name: LockCreditNote :one
SELECT * FROM credit_notes WHERE org_id = $1 AND invoice_id = $2 AND id = $3 FOR NO KEY UPDATE;

-- name: SendCreditNote :exec
UPDATE credit_notes SET sent_at = $3, sent_by = $4, sent_reason = $5, sent_txn_id = $6 WHERE org_id = $1 AND id = $2;

-- name: OvertakePush :exec
-- Whoever looked before keeps nothing: an operator sent a credit note by hand. found is what of it had failed there.
UPDATE invoice_pushes SET version = version + 1, loose_cents = loose_cents + sqlc.arg(found)::bigint, next_at = sqlc.arg(now)::timestamptz
WHERE org_id = $1 AND invoice_id = $2;

-- name: RetryCreditNotes :exec
UPDATE credit_notes SET till_again_at = NULL WHERE org_id = $1 AND invoice_id = $2 AND till_ref IS NULL AND sent_at IS NULL AND till_again_at IS NOT NULL;

-- name: SetChargeInvoices :one
-- No row: there is no card to charge, or nothing to stop. updated_at stays: it is when the card was given.
UPDATE payment_customers SET charge_invoices = $2
WHERE org_id = $1 AND CASE WHEN $2 THEN method_id IS NOT NULL ELSE charge_invoices END
RETURNING card_brand, card_last4;

-- name: InsertInvoiceCheck :exec
INSERT INTO invoice_checks (id, at, invoices, differences, problem) VALUES ($1, $2, $3, $4, $5);

-- name: LastInvoiceCheck :one
SELECT * FROM invoice_checks ORDER BY at DESC, id DESC LIMIT 1;
