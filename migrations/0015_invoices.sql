-- +goose Up
-- ---- usage by the month in which it happened (docs/invoices.md) ----------------------------------------------------------
-- The first day of the UTC month in which the requests of a usage transaction started; NULL = the month of its own day.
ALTER TABLE ledger_txns ADD COLUMN usage_month date CHECK (extract(day FROM usage_month) = 1);
CREATE INDEX ledger_txns_other_month ON ledger_txns (org_id, day, id) WHERE usage_month IS NOT NULL;
ALTER TABLE ledger_txns DROP CONSTRAINT ledger_txns_kind_check;
ALTER TABLE ledger_txns ADD CONSTRAINT ledger_txns_kind_check
  CHECK (kind IN ('usage', 'grant', 'topup', 'refund', 'expiry', 'adjustment', 'reversal', 'invoice', 'payment'));

-- The first month that is invoiced: before it a transaction could hold requests of two months.
CREATE TABLE invoicing (
  only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  first_month date NOT NULL
);
INSERT INTO invoicing (first_month) VALUES (date_trunc('month', now() AT TIME ZONE 'UTC')::date);
GRANT SELECT ON invoicing TO millrace_app, millrace_system;

-- ---- to whom --------------------------------------------------------------------------------------------------------------
CREATE TABLE billing_details (
  org_id        uuid PRIMARY KEY REFERENCES orgs (org_id),
  legal_name    text NOT NULL DEFAULT '',
  address       text NOT NULL DEFAULT '',    -- lines
  country       text NOT NULL DEFAULT '',    -- ISO 3166, two letters
  tax_id        text NOT NULL DEFAULT '',
  email         text NOT NULL DEFAULT '',    -- where invoices go; '' = the people who may see money
  purchase_order text NOT NULL DEFAULT '',
  updated_by    text NOT NULL,
  updated_at    timestamptz NOT NULL
);
SELECT tenant_table('billing_details');

-- ---- invoices -------------------------------------------------------------------------------------------------------------
-- Numbers have no gaps: the row is locked until the invoice that takes the next one is committed.
CREATE TABLE invoice_series (
  series text PRIMARY KEY,
  last   bigint NOT NULL
);
GRANT SELECT, INSERT, UPDATE ON invoice_series TO millrace_system;

CREATE TABLE invoices (
  org_id           uuid NOT NULL REFERENCES orgs (org_id),
  id               uuid NOT NULL UNIQUE,
  month            date NOT NULL CHECK (extract(day FROM month) = 1), -- of usage, UTC
  state            text NOT NULL CHECK (state IN ('draft', 'ready', 'open', 'paid', 'void', 'uncollectible')),
  number           text UNIQUE,                     -- NULL until it is final
  covered_from     timestamptz NOT NULL,            -- usage of earlier months that was booked from here on ...
  covered_to       timestamptz NOT NULL,            -- ... and all usage of its own that was booked before this
  charged_nano     bigint NOT NULL,                 -- what the covered transactions charged: credit and receivable
  promo_nano       bigint NOT NULL,                 -- ... paid from promotional credit
  prepaid_nano     bigint NOT NULL,                 -- ... paid from paid credit
  receivable_nano  bigint NOT NULL,
  overrun_nano     bigint NOT NULL,                 -- delivered, charged to nobody
  subtotal_cents   bigint NOT NULL CHECK (subtotal_cents >= 0), -- the sum of the lines' cents
  tax_cents        bigint NOT NULL DEFAULT 0 CHECK (tax_cents >= 0),
  total_cents      bigint NOT NULL CHECK (total_cents = subtotal_cents + tax_cents),
  paid_cents       bigint NOT NULL DEFAULT 0 CHECK (paid_cents >= 0),
  credited_cents   bigint NOT NULL DEFAULT 0 CHECK (credited_cents BETWEEN 0 AND total_cents), -- by credit notes
  relieved_cents   bigint NOT NULL DEFAULT 0 CHECK (relieved_cents BETWEEN 0 AND credited_cents), -- ... of what was not paid
  given_up_cents   bigint NOT NULL DEFAULT 0 CHECK (given_up_cents >= 0),
  bill_to          jsonb NOT NULL DEFAULT '{}',     -- copied from billing_details when it becomes final
  seller           jsonb NOT NULL DEFAULT '{}',
  problem          text NOT NULL DEFAULT '',        -- why a draft cannot become final
  drafted_at       timestamptz NOT NULL,
  finalized_at     timestamptz,
  finalized_by     text NOT NULL DEFAULT '',
  due_at           timestamptz,
  settled_at       timestamptz,                     -- paid, void or given up
  version          bigint NOT NULL DEFAULT 0,       -- grows with every change
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, month),
  CHECK (paid_cents + relieved_cents + given_up_cents <= total_cents),
  CHECK ((number IS NULL) = (state IN ('draft', 'ready')))
);
CREATE INDEX invoices_by_month ON invoices (month, org_id);
CREATE INDEX invoices_open ON invoices (due_at) WHERE state = 'open';
SELECT tenant_table('invoices');
REVOKE DELETE ON invoices FROM millrace_system;

CREATE TABLE invoice_lines (
  org_id           uuid NOT NULL,
  invoice_id       uuid NOT NULL,
  position         integer NOT NULL,
  kind             text NOT NULL CHECK (kind IN ('usage', 'rounding', 'overrun', 'promo', 'prepaid', 'cents')),
  usage_month      date NOT NULL,
  model_id         uuid,
  model            text NOT NULL DEFAULT '',
  price_version_id uuid,
  service_tier     text NOT NULL DEFAULT '',
  class            text NOT NULL DEFAULT '',
  quantity         bigint NOT NULL DEFAULT 0,       -- tokens, or requests
  unit_pico        bigint,                          -- NULL = it varied by prompt length or time
  amount_nano      bigint NOT NULL,
  cents            bigint NOT NULL,
  PRIMARY KEY (org_id, invoice_id, position),
  FOREIGN KEY (org_id, invoice_id) REFERENCES invoices (org_id, id)
);
SELECT tenant_table('invoice_lines');
REVOKE UPDATE ON invoice_lines FROM millrace_system;

-- Money that arrived for an invoice. What is above what was due became prepaid credit.
CREATE TABLE invoice_payments (
  org_id          uuid NOT NULL,
  id              uuid NOT NULL,
  invoice_id      uuid NOT NULL,
  cents           bigint NOT NULL CHECK (cents > 0),
  excess_cents    bigint NOT NULL DEFAULT 0 CHECK (excess_cents BETWEEN 0 AND cents),
  fee_cents       bigint NOT NULL DEFAULT 0 CHECK (fee_cents >= 0),
  method          text NOT NULL CHECK (method IN ('hand', 'stripe')),
  reference       text NOT NULL,                    -- of the bank transfer, or the payment provider's
  idempotency_key text NOT NULL,
  txn_id          uuid NOT NULL,
  received_at     timestamptz NOT NULL,
  created_by      text NOT NULL,
  created_at      timestamptz NOT NULL,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, idempotency_key),
  FOREIGN KEY (org_id, invoice_id) REFERENCES invoices (org_id, id)
);
CREATE INDEX invoice_payments_of ON invoice_payments (org_id, invoice_id);
SELECT tenant_table('invoice_payments');
REVOKE UPDATE, DELETE ON invoice_payments FROM millrace_system;

-- What was taken off a final invoice. back says where the part went that had been paid.
CREATE TABLE credit_notes (
  org_id          uuid NOT NULL,
  id              uuid NOT NULL,
  invoice_id      uuid NOT NULL,
  number          text NOT NULL UNIQUE,
  cents           bigint NOT NULL CHECK (cents > 0),
  relieved_cents  bigint NOT NULL CHECK (relieved_cents BETWEEN 0 AND cents), -- of what was not paid
  back            text NOT NULL CHECK (back IN ('', 'credit', 'cash', 'stripe')),
  reason          text NOT NULL,
  idempotency_key text NOT NULL,
  txn_id          uuid NOT NULL,
  till_ref        text UNIQUE,                      -- at the payment provider
  created_by      text NOT NULL,
  created_at      timestamptz NOT NULL,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, idempotency_key),
  FOREIGN KEY (org_id, invoice_id) REFERENCES invoices (org_id, id)
);
CREATE INDEX credit_notes_of ON credit_notes (org_id, invoice_id);
SELECT tenant_table('credit_notes');
REVOKE DELETE ON credit_notes FROM millrace_system;

-- What is final stays: only what was paid, credited or given up of it moves.
-- +goose StatementBegin
CREATE FUNCTION invoice_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE moves text[] := ARRAY['state', 'paid_cents', 'credited_cents', 'relieved_cents', 'given_up_cents', 'settled_at', 'version'];
BEGIN
  IF OLD.number IS NULL OR (to_jsonb(NEW) - moves) = (to_jsonb(OLD) - moves) THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'invoice % is final', OLD.number;
END $$;
CREATE FUNCTION invoice_line_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE line record := coalesce(NEW, OLD);
BEGIN
  IF EXISTS (SELECT FROM invoices i WHERE i.org_id = line.org_id AND i.id = line.invoice_id AND i.number IS NOT NULL) THEN
    RAISE EXCEPTION 'the lines of a final invoice stay';
  END IF;
  RETURN line;
END $$;
CREATE FUNCTION credit_note_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.till_ref IS NULL AND (to_jsonb(NEW) - 'till_ref') = (to_jsonb(OLD) - 'till_ref') THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'credit note % is final', OLD.number;
END $$;
-- +goose StatementEnd
CREATE TRIGGER invoices_stay BEFORE UPDATE ON invoices FOR EACH ROW EXECUTE FUNCTION invoice_stays();
CREATE TRIGGER invoice_lines_stay BEFORE INSERT OR DELETE ON invoice_lines FOR EACH ROW EXECUTE FUNCTION invoice_line_stays();
CREATE TRIGGER credit_notes_stay BEFORE UPDATE ON credit_notes FOR EACH ROW EXECUTE FUNCTION credit_note_stays();

-- How far the worker is with a month.
CREATE TABLE invoice_months (
  month      date PRIMARY KEY,
  drafted_at timestamptz NOT NULL    -- every organization that owes something has its invoice
);
GRANT SELECT, INSERT ON invoice_months TO millrace_system;

-- ---- at the payment provider ----------------------------------------------------------------------------------------------
CREATE TABLE invoice_pushes (
  org_id      uuid NOT NULL,
  invoice_id  uuid NOT NULL,
  state       text NOT NULL,
  ref         text UNIQUE,              -- the payment provider's invoice; NULL = none yet
  attempt     integer NOT NULL DEFAULT 1, -- part of idempotency keys
  url         text NOT NULL DEFAULT '', -- where the customer pays
  pdf_url     text NOT NULL DEFAULT '',
  problem     text NOT NULL DEFAULT '',
  next_at     timestamptz,              -- when the worker looks at it next; NULL = never by itself
  version     bigint NOT NULL DEFAULT 0,
  updated_at  timestamptz NOT NULL,
  PRIMARY KEY (org_id, invoice_id),
  FOREIGN KEY (org_id, invoice_id) REFERENCES invoices (org_id, id)
);
CREATE INDEX invoice_pushes_due ON invoice_pushes (next_at) WHERE next_at IS NOT NULL;
SELECT tenant_table('invoice_pushes');

-- Steps of dunning that were taken, each once.
CREATE TABLE invoice_dunning (
  org_id      uuid NOT NULL,
  invoice_id  uuid NOT NULL,
  step        integer NOT NULL,         -- days
  details     jsonb NOT NULL DEFAULT '{}', -- what undoing it needs to know
  done_at     timestamptz NOT NULL,
  undone_at   timestamptz,
  PRIMARY KEY (org_id, invoice_id, step),
  FOREIGN KEY (org_id, invoice_id) REFERENCES invoices (org_id, id)
);
SELECT tenant_table('invoice_dunning');

-- What comparing with the payment provider's own list of invoices found.
CREATE TABLE invoice_checks (
  id          uuid PRIMARY KEY,
  at          timestamptz NOT NULL,
  invoices    bigint NOT NULL,            -- looked at
  differences jsonb NOT NULL,
  problem     text NOT NULL DEFAULT ''    -- why it could not be finished
);
GRANT SELECT, INSERT ON invoice_checks TO millrace_system;

-- ---- credit notes and write-offs above the limit wait for a second operator --------------------------------------------------
ALTER TABLE credit_requests DROP CONSTRAINT credit_requests_kind_check;
ALTER TABLE credit_requests ADD CONSTRAINT credit_requests_kind_check
  CHECK (kind IN ('grant', 'adjustment', 'reversal', 'credit_note', 'write_off'));
