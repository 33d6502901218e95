-- +goose Up
-- A raised credit limit above what an operator may give alone waits for a second one.
ALTER TABLE credit_requests DROP CONSTRAINT credit_requests_kind_check;
ALTER TABLE credit_requests ADD CONSTRAINT credit_requests_kind_check
  CHECK (kind IN ('grant', 'adjustment', 'reversal', 'credit_note', 'write_off', 'credit_limit'));
