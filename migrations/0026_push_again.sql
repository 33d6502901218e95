-- +goose Up
-- ---- credit notes that the payment provider does not take (docs/payments.md) -----------------------------------------------
-- The key of a credit note there changes only when its answer was a refusal, or repeats one.
ALTER TABLE credit_notes
  ADD COLUMN till_attempt  integer NOT NULL DEFAULT 1,
  ADD COLUMN till_problem  text NOT NULL DEFAULT '',  -- why it was refused there
  ADD COLUMN till_again_at timestamptz;               -- when it is tried again; NULL = at once
ALTER TABLE invoice_pushes
  ADD COLUMN lower_attempt integer NOT NULL DEFAULT 1,     -- the same of what lowers the invoice there
  ADD COLUMN moved         boolean NOT NULL DEFAULT false; -- the invoice moved here since the last look
CREATE INDEX invoice_pushes_moved ON invoice_pushes (org_id, invoice_id) WHERE moved;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION credit_note_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE moves text[] := ARRAY['till_ref', 'till_attempt', 'till_problem', 'till_again_at'];
BEGIN
  IF OLD.till_ref IS NULL AND (to_jsonb(NEW) - moves) = (to_jsonb(OLD) - moves) THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'credit note % is final', OLD.number;
END $$;
-- +goose StatementEnd

-- ---- payments by hand that never were ---------------------------------------------------------------------------------------
CREATE TABLE invoice_payment_reversals (
  org_id     uuid NOT NULL,
  payment_id uuid NOT NULL,
  reason     text NOT NULL,
  txn_id     uuid NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, payment_id),
  FOREIGN KEY (org_id, payment_id) REFERENCES invoice_payments (org_id, id)
);
SELECT tenant_table('invoice_payment_reversals');
REVOKE UPDATE, DELETE ON invoice_payment_reversals FROM millrace_system;

SET LOCAL ROLE millrace_system;
UPDATE invoice_pushes p SET moved = true FROM invoices i WHERE i.org_id = p.org_id AND i.id = p.invoice_id AND i.version <> p.seen_version;
RESET ROLE;
