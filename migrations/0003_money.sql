-- +goose Up
-- ---- caps and budgets (docs/money-path.md) ------------------------------------------------------------------------
-- A cap is the rule; a budget is its row for one period. The org's prepaid balance is the budget of kind 'balance'.
CREATE TABLE caps (
  org_id     uuid NOT NULL REFERENCES orgs (org_id),
  id         uuid NOT NULL,
  scope      text NOT NULL CHECK (scope IN ('org', 'project', 'key')),
  scope_id   uuid NOT NULL,
  period     text NOT NULL CHECK (period IN ('total', 'day', 'week', 'month')),
  cap_nano   bigint NOT NULL CHECK (cap_nano >= 0),
  created_at timestamptz NOT NULL DEFAULT now(),
  changed_at timestamptz NOT NULL DEFAULT now(), -- set, lowered, raised or removed: what gateways poll while the bus is down
  removed_at timestamptz,
  PRIMARY KEY (org_id, id)
);
CREATE UNIQUE INDEX caps_one_per_period ON caps (org_id, scope, scope_id, period) WHERE removed_at IS NULL;
CREATE INDEX caps_by_change ON caps (changed_at);
SELECT tenant_table('caps');
GRANT INSERT, UPDATE ON caps TO millrace_app;

-- settled + outstanding <= cap is an admission rule, not a CHECK: a lowered cap or a dispute may leave it above.
CREATE TABLE budgets (
  org_id           uuid NOT NULL REFERENCES orgs (org_id),
  id               uuid NOT NULL,
  kind             text NOT NULL CHECK (kind IN ('balance', 'cap')),
  scope            text NOT NULL CHECK (scope IN ('org', 'project', 'key')),
  scope_id         uuid NOT NULL,
  period           text NOT NULL CHECK (period IN ('total', 'day', 'week', 'month')),
  period_start     timestamptz NOT NULL,
  cap_nano         bigint NOT NULL,
  settled_nano     bigint NOT NULL DEFAULT 0,
  outstanding_nano bigint NOT NULL DEFAULT 0 CHECK (outstanding_nano >= 0),
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, kind, scope, scope_id, period, period_start)
);
SELECT tenant_table('budgets');

-- A gateway process's life. Validity is counted by its monotonic clock from before the heartbeat was sent.
CREATE TABLE gateway_epochs (
  id             uuid PRIMARY KEY,
  process        text NOT NULL,               -- host and pid, for people
  data_lock      text NOT NULL DEFAULT '',    -- which data-folder lock proves it dead ('' = none can)
  started_at     timestamptz NOT NULL DEFAULT now(),
  heartbeat_at   timestamptz NOT NULL DEFAULT now(),
  valid_ms       bigint NOT NULL,
  request_max_ms bigint NOT NULL,             -- the longest a request admitted by it may run
  goodbye_at     timestamptz,
  dead_at        timestamptz,                 -- proven dead, or past validity and the longest request
  log_end        jsonb,                       -- {"incarnation": …, "seq": {shard: last}} seen after goodbye or death
  fenced_at      timestamptz,
  voided_at      timestamptz
);
CREATE INDEX gateway_epochs_open ON gateway_epochs (id) WHERE fenced_at IS NULL;
GRANT SELECT, INSERT, UPDATE ON gateway_epochs TO millrace_system;

CREATE TABLE allotments (
  org_id        uuid NOT NULL,
  budget_id     uuid NOT NULL,
  epoch_id      uuid NOT NULL REFERENCES gateway_epochs (id),
  allotted_nano bigint NOT NULL DEFAULT 0 CHECK (allotted_nano >= 0),
  used_nano     bigint NOT NULL DEFAULT 0 CHECK (used_nano >= 0),
  returned_nano bigint NOT NULL DEFAULT 0 CHECK (returned_nano >= 0),
  PRIMARY KEY (org_id, budget_id, epoch_id),
  FOREIGN KEY (org_id, budget_id) REFERENCES budgets (org_id, id),
  CHECK (used_nano + returned_nano <= allotted_nano)
);
CREATE INDEX allotments_by_epoch ON allotments (epoch_id);
SELECT tenant_table('allotments');

-- ---- credit ------------------------------------------------------------------------------------------------------
CREATE TABLE credit_grants (
  org_id          uuid NOT NULL REFERENCES orgs (org_id),
  id              uuid NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('paid', 'promotional')),
  amount_nano     bigint NOT NULL CHECK (amount_nano > 0),
  reason          text NOT NULL,
  idempotency_key text NOT NULL,
  created_by      text NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  expires_at      timestamptz,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, idempotency_key)
);
SELECT tenant_table('credit_grants');
REVOKE UPDATE, DELETE ON credit_grants FROM millrace_system;

-- ---- ledger ------------------------------------------------------------------------------------------------------
-- Debit positive, credit negative. Every account exists per organization.
CREATE TABLE ledger_accounts (
  kind        text PRIMARY KEY,
  normal_side text NOT NULL CHECK (normal_side IN ('debit', 'credit')),
  meaning     text NOT NULL
);
INSERT INTO ledger_accounts VALUES
  ('prepaid_paid', 'credit', 'credit the customer paid for and has not used'),
  ('prepaid_promo', 'credit', 'credit given to the customer and not used'),
  ('receivable', 'debit', 'used on a credit limit and not yet paid'),
  ('revenue', 'credit', 'tokens delivered, at their price'),
  ('deferred', 'credit', 'paid for a period that has not passed'),
  ('breakage', 'credit', 'paid credit that expired'),
  ('promo_cost', 'debit', 'promotional credit given away'),
  ('refunds', 'debit', 'money given back'),
  ('tax', 'credit', 'tax collected'),
  ('stripe_clearing', 'debit', 'money at the payment provider'),
  ('cash', 'debit', 'money received past the payment provider, as the operator recorded it'),
  ('fees', 'debit', 'fees of the payment provider'),
  ('adjustments', 'debit', 'corrections by the operator'),
  ('overrun', 'debit', 'tokens delivered that no customer can be charged for'),
  ('bad_debt', 'debit', 'receivables given up'),
  ('rounding', 'debit', 'what rounding to cents left over');
GRANT SELECT ON ledger_accounts TO millrace_app, millrace_system;

CREATE TABLE ledger_txns (
  org_id     uuid NOT NULL REFERENCES orgs (org_id),
  day        date NOT NULL,
  id         uuid NOT NULL,           -- UUIDv7; day derives from it
  kind       text NOT NULL CHECK (kind IN ('usage', 'grant', 'topup', 'refund', 'expiry', 'adjustment', 'reversal', 'invoice')),
  memo       text NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, day, id)
) PARTITION BY RANGE (day);
CREATE INDEX ledger_txns_other ON ledger_txns (org_id, day, id) WHERE kind <> 'usage';
SELECT tenant_table('ledger_txns');
REVOKE UPDATE, DELETE ON ledger_txns FROM millrace_system;

CREATE TABLE ledger_entries (
  org_id      uuid NOT NULL,
  day         date NOT NULL,
  txn_id      uuid NOT NULL,
  account     text NOT NULL REFERENCES ledger_accounts (kind),
  amount_nano bigint NOT NULL CHECK (amount_nano <> 0),
  PRIMARY KEY (org_id, day, txn_id, account),
  FOREIGN KEY (org_id, day, txn_id) REFERENCES ledger_txns (org_id, day, id)
) PARTITION BY RANGE (day);
SELECT tenant_table('ledger_entries');
REVOKE UPDATE, DELETE ON ledger_entries FROM millrace_system;

-- +goose StatementBegin
CREATE FUNCTION ledger_txn_sums_to_zero() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE total numeric;
BEGIN
  SELECT sum(amount_nano) INTO total FROM ledger_entries
   WHERE org_id = NEW.org_id AND day = NEW.day AND txn_id = NEW.txn_id;
  IF total <> 0 THEN
    RAISE EXCEPTION 'ledger transaction % does not sum to zero (%)', NEW.txn_id, total USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER ledger_zero_sum AFTER INSERT ON ledger_entries
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_txn_sums_to_zero();

-- The caller's idempotency keys; usage needs none (events are unique themselves).
CREATE TABLE ledger_keys (
  org_id uuid NOT NULL REFERENCES orgs (org_id),
  key    text NOT NULL,
  txn_id uuid NOT NULL,
  PRIMARY KEY (org_id, key)
);
SELECT tenant_table('ledger_keys');

-- A projection: may be dropped and rebuilt from ledger_entries.
CREATE TABLE ledger_balances (
  org_id      uuid NOT NULL REFERENCES orgs (org_id),
  account     text NOT NULL REFERENCES ledger_accounts (kind),
  amount_nano bigint NOT NULL,
  PRIMARY KEY (org_id, account)
);
SELECT tenant_table('ledger_balances');

-- ---- usage -------------------------------------------------------------------------------------------------------
CREATE TABLE usage_events (
  org_id           uuid NOT NULL REFERENCES orgs (org_id),
  day              date NOT NULL,
  id               uuid NOT NULL,
  project_id       uuid NOT NULL,
  key_id           uuid NOT NULL,
  model_id         uuid NOT NULL,
  price_version_id uuid NOT NULL,
  epoch_id         uuid NOT NULL,
  txn_id           uuid,              -- the ledger transaction that charged it; NULL = nothing charged
  input_tokens     bigint NOT NULL,
  cached_tokens    bigint NOT NULL,
  cache_write_tokens bigint NOT NULL,
  output_tokens    bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  image_tokens     bigint NOT NULL,
  audio_tokens     bigint NOT NULL,
  requests         bigint NOT NULL,
  charged_nano     bigint NOT NULL CHECK (charged_nano >= 0), -- what the customer pays
  overrun_nano     bigint NOT NULL DEFAULT 0 CHECK (overrun_nano >= 0), -- what the operator bears
  saved_nano       bigint NOT NULL DEFAULT 0, -- what cached tokens saved against the input price
  ending           text NOT NULL,
  status           integer NOT NULL,
  estimated        boolean NOT NULL,
  repriced         boolean NOT NULL DEFAULT false,
  streamed         boolean NOT NULL,
  dialect          text NOT NULL,
  attempts         jsonb NOT NULL DEFAULT '[]',
  raw              jsonb,
  started_at       timestamptz NOT NULL,
  first_token_at   timestamptz,
  ended_at         timestamptz NOT NULL,
  PRIMARY KEY (org_id, day, id)
) PARTITION BY RANGE (day);
CREATE INDEX usage_events_overrun ON usage_events (day) WHERE overrun_nano > 0;
CREATE INDEX usage_events_by_key ON usage_events (org_id, key_id, id);
CREATE INDEX usage_events_failed ON usage_events (org_id, day, id) WHERE ending <> 'complete';
SELECT tenant_table('usage_events');
REVOKE UPDATE, DELETE ON usage_events FROM millrace_system;

-- Day partitions of the usage and ledger tables, made before they are needed (and by the rater when one is missing).
-- +goose StatementBegin
CREATE FUNCTION ensure_day(d date) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE parent text; child text;
BEGIN
  IF d < date '2020-01-01' OR d > current_date + 400 THEN RAISE EXCEPTION 'no partition for day %', d; END IF;
  FOREACH parent IN ARRAY ARRAY['usage_events', 'ledger_txns', 'ledger_entries'] LOOP
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
REVOKE ALL ON FUNCTION ensure_day(date) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ensure_day(date) TO millrace_system;
SELECT ensure_day(current_date - 1), ensure_day(current_date), ensure_day(current_date + 1);

-- Running streams: the last progress event, billed only when their gateway dies.
CREATE TABLE stream_progress (
  org_id   uuid NOT NULL REFERENCES orgs (org_id),
  event_id uuid NOT NULL,
  epoch_id uuid NOT NULL,
  progress bigint NOT NULL,
  event    jsonb NOT NULL,
  PRIMARY KEY (org_id, event_id)
);
CREATE INDEX stream_progress_by_epoch ON stream_progress (epoch_id);
SELECT tenant_table('stream_progress');

-- 15-minute UTC buckets: any day in any zone adds up exactly.
CREATE TABLE usage_rollups (
  org_id           uuid NOT NULL REFERENCES orgs (org_id),
  bucket           timestamptz NOT NULL,
  project_id       uuid NOT NULL,
  key_id           uuid NOT NULL,
  model_id         uuid NOT NULL,
  requests         bigint NOT NULL,
  errors           bigint NOT NULL,
  input_tokens     bigint NOT NULL,
  cached_tokens    bigint NOT NULL,
  cache_write_tokens bigint NOT NULL,
  output_tokens    bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  image_tokens     bigint NOT NULL,
  audio_tokens     bigint NOT NULL,
  charged_nano     bigint NOT NULL,
  overrun_nano     bigint NOT NULL,
  saved_nano       bigint NOT NULL,
  ttft_ms_sum      bigint NOT NULL,
  ttft_count       bigint NOT NULL,
  decode_ms_sum    bigint NOT NULL, -- first token to end, with the tokens in output+reasoning: speed per stream
  PRIMARY KEY (org_id, bucket, project_id, key_id, model_id)
);
CREATE INDEX usage_rollups_by_bucket ON usage_rollups (bucket);
SELECT tenant_table('usage_rollups');

-- How far the rater is, per shard of one incarnation of the log.
CREATE TABLE rater_offsets (
  shard       integer NOT NULL,
  incarnation text NOT NULL,
  seq         bigint NOT NULL,
  last_at     timestamptz,            -- when the log stored message seq: a log that was rolled back is noticed by it
  started_at  timestamptz NOT NULL DEFAULT now(),
  updated_at  timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (shard, incarnation)
);
-- Part of the log that is gone before it was rated: listed, because its answers can no longer be billed.
CREATE TABLE log_gaps (
  id          uuid PRIMARY KEY,
  shard       integer NOT NULL,
  incarnation text NOT NULL,
  from_seq    bigint NOT NULL,
  to_seq      bigint NOT NULL,
  noticed_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE quarantine (
  id          uuid PRIMARY KEY,
  org_id      uuid,
  shard       integer NOT NULL,
  incarnation text NOT NULL,
  seq         bigint NOT NULL,
  position    integer NOT NULL, -- which event of the message
  reason      text NOT NULL,
  payload     bytea NOT NULL,
  created_at  timestamptz NOT NULL DEFAULT now(),
  resolved_at timestamptz,
  resolution  text,
  UNIQUE (incarnation, shard, seq, position)
);
GRANT SELECT, INSERT, UPDATE ON rater_offsets, log_gaps, quarantine TO millrace_system;

CREATE TABLE reconcile_runs (
  id          uuid PRIMARY KEY,
  at          timestamptz NOT NULL DEFAULT now(),
  watermark   timestamptz NOT NULL,
  unexplained boolean NOT NULL,
  report      jsonb NOT NULL
);
GRANT SELECT, INSERT ON reconcile_runs TO millrace_system;
