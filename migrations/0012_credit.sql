-- +goose Up
-- ---- caps: hard or alert-only, raised for a while, alerts (docs/money-path.md) ----------------------------------------
ALTER TABLE caps ADD COLUMN hard boolean NOT NULL DEFAULT true;      -- false = it only alerts
ALTER TABLE caps ADD COLUMN raised_nano bigint NOT NULL DEFAULT 0 CHECK (raised_nano >= 0);
ALTER TABLE caps ADD COLUMN raised_until timestamptz;                -- NULL = not raised
CREATE INDEX caps_raised ON caps (raised_until) WHERE raised_until IS NOT NULL;

-- A budget's cap_nano is what it enforces: an alert-only cap's budget has the highest cap there is.
ALTER TABLE budgets ADD COLUMN raised_nano bigint NOT NULL DEFAULT 0;
ALTER TABLE budgets ADD COLUMN raised_until timestamptz;

-- What a budget enforces now. The end of a raise is computed from the clock; no job lowers a cap.
-- +goose StatementBegin
CREATE FUNCTION enforced_cap(cap bigint, raised bigint, until timestamptz) RETURNS bigint LANGUAGE sql AS
$$ SELECT CASE WHEN until > clock_timestamp() THEN greatest(cap, raised) ELSE cap END $$;
-- +goose StatementEnd

-- A threshold that a budget's spending passed, once per period and amount of the cap. Written in the transaction that moved the budget or the
-- cap; it waits here until people and webhooks are told, in one transaction with told_at.
CREATE TABLE cap_alerts (
  org_id       uuid NOT NULL,
  budget_id    uuid NOT NULL,
  percent      integer NOT NULL CHECK (percent IN (50, 80, 100)),
  id           uuid NOT NULL DEFAULT gen_random_uuid(),
  cap_nano     bigint NOT NULL,       -- the cap as it was then
  settled_nano bigint NOT NULL,
  hard         boolean NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  told_at      timestamptz,
  PRIMARY KEY (org_id, budget_id, cap_nano, percent),
  FOREIGN KEY (org_id, budget_id) REFERENCES budgets (org_id, id)
);
CREATE INDEX cap_alerts_untold ON cap_alerts (created_at) WHERE told_at IS NULL;
CREATE INDEX cap_alerts_newest ON cap_alerts (org_id, created_at DESC);
SELECT tenant_table('cap_alerts');

-- ---- webhooks --------------------------------------------------------------------------------------------------------
CREATE TABLE webhooks (
  org_id      uuid NOT NULL REFERENCES orgs (org_id),
  id          uuid NOT NULL,
  url         text NOT NULL CHECK (length(url) <= 500),
  secret      bytea NOT NULL,         -- sealed under the installation's master key
  created_by  text NOT NULL,
  created_at  timestamptz NOT NULL,
  removed_at  timestamptz,
  PRIMARY KEY (org_id, id)
);
SELECT tenant_table('webhooks');

-- One row per event and webhook. The event's id is the receiver's idempotency key.
CREATE TABLE webhook_deliveries (
  org_id      uuid NOT NULL,
  id          uuid NOT NULL,
  webhook_id  uuid NOT NULL,
  event_id    uuid NOT NULL,
  kind        text NOT NULL,
  body        text NOT NULL,
  state       text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'failed')),
  attempts    integer NOT NULL DEFAULT 0,
  status      integer,                -- of the last answer; NULL = there was none
  problem     text NOT NULL DEFAULT '',
  created_at  timestamptz NOT NULL,
  next_at     timestamptz NOT NULL,
  tried_at    timestamptz,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, webhook_id, event_id),
  FOREIGN KEY (org_id, webhook_id) REFERENCES webhooks (org_id, id)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE state = 'waiting';
SELECT tenant_table('webhook_deliveries');

-- ---- mail ------------------------------------------------------------------------------------------------------------
ALTER TABLE outbox ADD COLUMN attempts integer NOT NULL DEFAULT 0;
ALTER TABLE outbox ADD COLUMN next_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE outbox ADD COLUMN problem text NOT NULL DEFAULT '';  -- of the last attempt
CREATE INDEX outbox_unsent ON outbox (next_at) WHERE sent_at IS NULL;

-- ---- lots: which grant a charge used up --------------------------------------------------------------------------------
ALTER TABLE credit_grants ADD COLUMN priority smallint; -- lower burns first; NULL = its kind's

-- Part of the ledger: every movement of prepaid credit says which lot it opened, filled or burned. The row that opens a lot
-- carries its terms. Positive adds to the lot.
CREATE TABLE ledger_lot_moves (
  org_id      uuid NOT NULL,
  day         date NOT NULL,
  txn_id      uuid NOT NULL,
  lot_id      uuid NOT NULL,
  account     text NOT NULL CHECK (account IN ('prepaid_paid', 'prepaid_promo')),
  amount_nano bigint NOT NULL,
  priority    smallint,
  expires_at  timestamptz,
  PRIMARY KEY (org_id, day, txn_id, lot_id),
  FOREIGN KEY (org_id, day, txn_id) REFERENCES ledger_txns (org_id, day, id)
) PARTITION BY RANGE (day);
SELECT tenant_table('ledger_lot_moves');
REVOKE UPDATE, DELETE ON ledger_lot_moves FROM millrace_system;

-- A projection: may be dropped and rebuilt from ledger_lot_moves.
CREATE TABLE ledger_lots (
  org_id         uuid NOT NULL REFERENCES orgs (org_id),
  lot_id         uuid NOT NULL,
  account        text NOT NULL,
  priority       smallint NOT NULL,
  expires_at     timestamptz,
  remaining_nano bigint NOT NULL CHECK (remaining_nano >= 0),
  PRIMARY KEY (org_id, lot_id)
);
CREATE INDEX ledger_lots_left ON ledger_lots (org_id, priority, expires_at, lot_id) WHERE remaining_nano > 0;
CREATE INDEX ledger_lots_expiring ON ledger_lots (expires_at) WHERE remaining_nano > 0 AND expires_at IS NOT NULL;
SELECT tenant_table('ledger_lots');

-- That people were told, so many days before, that a lot ends.
CREATE TABLE lot_warnings (
  org_id  uuid NOT NULL REFERENCES orgs (org_id),
  lot_id  uuid NOT NULL,
  days    integer NOT NULL,
  told_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, lot_id, days)
);
SELECT tenant_table('lot_warnings');

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION ensure_day(d date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE parent text; child text;
BEGIN
  IF d < date '2020-01-01' OR d > current_date + 400 THEN RAISE EXCEPTION 'no partition for day %', d; END IF;
  FOREACH parent IN ARRAY ARRAY['usage_events', 'ledger_txns', 'ledger_entries', 'ledger_lot_moves'] LOOP
    child := parent || '_' || to_char(d, 'YYYYMMDD');
    IF to_regclass(child) IS NULL THEN
      PERFORM pg_advisory_xact_lock(hashtext('ensure_day'));
      IF to_regclass(child) IS NULL THEN
        EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)', child, parent, d, d + 1);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', child);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', child);
      END IF;
    END IF;
  END LOOP;
END $$;
-- +goose StatementEnd
SELECT ensure_day(current_date - 1), ensure_day(current_date), ensure_day(current_date + 1);

-- Credit from before lots were kept is one lot per account, without an end.
SET LOCAL ROLE millrace_system;
SELECT ensure_day(e.day) FROM (SELECT DISTINCT day FROM ledger_entries WHERE account IN ('prepaid_paid', 'prepaid_promo')) e;
INSERT INTO ledger_lot_moves (org_id, day, txn_id, lot_id, account, amount_nano, priority)
SELECT DISTINCT ON (b.org_id, b.account) b.org_id, e.day, e.txn_id, gen_random_uuid(), b.account, -b.amount_nano,
       CASE b.account WHEN 'prepaid_promo' THEN 10 ELSE 20 END
FROM ledger_balances b JOIN ledger_entries e ON e.org_id = b.org_id AND e.account = b.account
WHERE b.account IN ('prepaid_paid', 'prepaid_promo') AND b.amount_nano < 0
ORDER BY b.org_id, b.account, e.txn_id DESC;
INSERT INTO ledger_lots (org_id, lot_id, account, priority, expires_at, remaining_nano)
SELECT org_id, lot_id, account, priority, expires_at, amount_nano FROM ledger_lot_moves;
RESET ROLE;

-- ---- what operators ask for and a second one approves ------------------------------------------------------------------
CREATE TABLE credit_requests (
  org_id          uuid NOT NULL REFERENCES orgs (org_id),
  id              uuid NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('grant', 'adjustment', 'reversal')),
  amount_nano     bigint NOT NULL,     -- negative takes credit
  reason          text NOT NULL,
  details         jsonb NOT NULL,      -- what else will be done when it is approved
  idempotency_key text NOT NULL,
  state           text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'done', 'refused')),
  asked_by        text NOT NULL,
  asked_at        timestamptz NOT NULL,
  decided_by      text,
  decided_at      timestamptz,
  note            text NOT NULL DEFAULT '',
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, idempotency_key),
  CHECK (decided_by IS DISTINCT FROM asked_by OR state = 'refused')
);
CREATE INDEX credit_requests_waiting ON credit_requests (asked_at) WHERE state = 'waiting';
SELECT tenant_table('credit_requests');
