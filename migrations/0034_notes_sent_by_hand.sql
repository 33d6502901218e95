-- +goose Up
-- ---- credit notes that the payment provider does not send back (docs/payments.md) ------------------------------------------
-- An operator sent it past the payment provider: it is never tried there again.
ALTER TABLE credit_notes
  ADD COLUMN sent_at     timestamptz, -- NULL = he did not
  ADD COLUMN sent_by     text,
  ADD COLUMN sent_reason text,
  ADD COLUMN sent_txn_id uuid,
  ADD CHECK (sent_at IS NULL OR back = 'stripe' AND sent_by IS NOT NULL AND sent_reason IS NOT NULL AND sent_txn_id IS NOT NULL);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION credit_note_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  tries text[] := ARRAY['till_ref', 'till_attempt', 'till_problem', 'till_again_at'];
  hand  text[] := ARRAY['sent_at', 'sent_by', 'sent_reason', 'sent_txn_id'];
BEGIN
  IF OLD.sent_at IS NULL AND ((to_jsonb(NEW) - hand) = (to_jsonb(OLD) - hand) AND NEW.sent_at IS NOT NULL
      OR OLD.till_ref IS NULL AND (to_jsonb(NEW) - tries) = (to_jsonb(OLD) - tries)) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'credit note % is final', OLD.number;
END $$;
-- +goose StatementEnd

-- What was refunded there, at the last look, beyond what is booked as past credit notes and what they sent back. Above 0: it is on
-- its way to be a credit note's. Below 0: a credit note's refund failed at the customer's bank.
ALTER TABLE invoice_pushes ADD COLUMN loose_cents bigint NOT NULL DEFAULT 0;

ALTER TABLE credit_requests DROP CONSTRAINT credit_requests_kind_check;
ALTER TABLE credit_requests ADD CONSTRAINT credit_requests_kind_check
  CHECK (kind IN ('grant', 'adjustment', 'reversal', 'credit_note', 'send_note', 'write_off', 'credit_limit'));
