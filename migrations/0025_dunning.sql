-- +goose Up
-- ---- dunning (docs/payments.md, "Nobody pays") ------------------------------------------------------------------------------
-- Invoices that were settled and are owed again: days count from here.
CREATE TABLE invoice_reopenings (
  org_id         uuid NOT NULL,
  invoice_id     uuid NOT NULL,
  reopened_at    timestamptz NOT NULL,
  refunded_cents bigint NOT NULL DEFAULT 0 CHECK (refunded_cents >= 0), -- what the operator gave back past credit notes: nobody is restricted because of it
  PRIMARY KEY (org_id, invoice_id),
  FOREIGN KEY (org_id, invoice_id) REFERENCES invoices (org_id, id)
);
SELECT tenant_table('invoice_reopenings');

-- What dunning holds of an organization, whatever number of its invoices is the reason.
CREATE TABLE dunning_holds (
  org_id       uuid PRIMARY KEY REFERENCES orgs (org_id),
  was_nano     bigint CHECK (was_nano >= 0), -- the credit limit to go back to; NULL = it is not reduced
  set_nano     bigint CHECK (set_nano >= 0), -- what dunning made of it
  limits_set   bigint NOT NULL DEFAULT 0,    -- how often operators had set a limit by then: another number is a decision since
  suspended_at timestamptz,                  -- the suspension that is dunning's; another one is an operator's
  CHECK ((was_nano IS NULL) = (set_nano IS NULL))
);
SELECT tenant_table('dunning_holds');

CREATE INDEX invoice_dunning_in_force ON invoice_dunning (org_id, invoice_id) WHERE undone_at IS NULL;
