-- +goose Up
-- ---- refunds past credit notes (docs/payments.md) --------------------------------------------------------------------------
-- What of clawed_cents are refunds that no credit note asked for: a later credit note does not take them for its own.
ALTER TABLE invoice_pushes ADD COLUMN refunded_cents bigint NOT NULL DEFAULT 0 CHECK (refunded_cents >= 0);

SET LOCAL ROLE millrace_system;
UPDATE invoice_pushes p SET refunded_cents = LEAST(b.refunded_cents, p.clawed_cents) FROM invoice_reopenings b
WHERE b.org_id = p.org_id AND b.invoice_id = p.invoice_id AND b.refunded_cents > 0;
-- What was paid again since is not the operator's doing any more.
UPDATE invoice_reopenings b SET refunded_cents = LEAST(b.refunded_cents, GREATEST(i.total_cents - i.paid_cents - i.relieved_cents - i.given_up_cents, 0)) FROM invoices i
WHERE i.org_id = b.org_id AND i.id = b.invoice_id AND b.refunded_cents > 0;
RESET ROLE;
