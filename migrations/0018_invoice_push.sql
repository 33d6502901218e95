-- +goose Up
-- ---- what is known of an invoice's money at the payment provider (docs/payments.md) ---------------------------------------
-- Amounts are cumulative: the books move by the difference to what they hold.
ALTER TABLE invoice_pushes
  ADD COLUMN charge         boolean NOT NULL DEFAULT false, -- from the kept card; else it is sent
  ADD COLUMN payment_id     text UNIQUE,
  ADD COLUMN method_id      text NOT NULL DEFAULT '',       -- the card that was charged last
  ADD COLUMN asks           integer NOT NULL DEFAULT 0,     -- how often it was sent, or the card charged
  ADD COLUMN failed_at      timestamptz,                    -- when the card was declined first; dunning counts from here
  ADD COLUMN failures       integer NOT NULL DEFAULT 0,     -- tries in a row that brought nothing: the pause before the next
  ADD COLUMN received_cents bigint NOT NULL DEFAULT 0 CHECK (received_cents >= 0),
  ADD COLUMN clawed_cents   bigint NOT NULL DEFAULT 0 CHECK (clawed_cents BETWEEN 0 AND received_cents), -- by refunds past credit notes, and disputes
  ADD COLUMN clawbacks      integer NOT NULL DEFAULT 0,     -- movements of clawed_cents: part of their ledger keys
  ADD COLUMN taken_cents    bigint NOT NULL DEFAULT 0 CHECK (taken_cents >= 0), -- all that clawbacks ever took off invoices.paid_cents
  ADD COLUMN seen_version   bigint NOT NULL DEFAULT -1,      -- of the invoice, at the last look
  ADD COLUMN fee_cents      bigint NOT NULL DEFAULT 0 CHECK (fee_cents >= 0),
  ADD CHECK (state IN ('new', 'draft', 'final', 'asked', 'done', 'stopped'));

-- Whether the kept card may be charged for invoices: another consent than that for top-ups.
ALTER TABLE payment_customers ADD COLUMN charge_invoices boolean NOT NULL DEFAULT false;
