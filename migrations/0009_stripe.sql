-- +goose Up
-- ---- money that customers send (docs/money-path.md): the payment provider is the till, the ledger the truth --------------
-- An organization at the payment provider, and the card that it may be charged with while nobody is there.
CREATE TABLE payment_customers (
  org_id      uuid PRIMARY KEY REFERENCES orgs (org_id),
  customer_id text NOT NULL UNIQUE,
  method_id   text,                 -- NULL = no card is kept
  card_brand  text NOT NULL DEFAULT '',
  card_last4  text NOT NULL DEFAULT '',
  card_expiry date,                 -- its last day
  setup_id    text UNIQUE,          -- the page that is open for giving a card
  created_at  timestamptz NOT NULL,
  updated_at  timestamptz NOT NULL
);
SELECT tenant_table('payment_customers');

-- One top-up is one sum of money that becomes credit at most once. version grows with every change: who looked at the
-- payment provider before somebody else's change looks again.
CREATE TABLE topups (
  org_id          uuid NOT NULL REFERENCES orgs (org_id),
  id              uuid NOT NULL UNIQUE,   -- chosen by a form, so another organization's is refused
  kind            text NOT NULL CHECK (kind IN ('manual', 'auto')),
  state           text NOT NULL CHECK (state IN ('created', 'open', 'processing', 'retrying', 'succeeded', 'failed', 'expired')),
  cents           bigint NOT NULL CHECK (cents > 0),  -- US cents
  keep_card       boolean NOT NULL DEFAULT false,
  session_id      text UNIQUE,
  session_url     text NOT NULL DEFAULT '',
  payment_id      text UNIQUE,
  attempt         integer NOT NULL DEFAULT 1,         -- part of the idempotency key at the payment provider
  declines        integer NOT NULL DEFAULT 0,
  failure         text NOT NULL DEFAULT '',           -- the payment provider's code of the last decline
  clawed_cents    bigint NOT NULL DEFAULT 0 CHECK (clawed_cents BETWEEN 0 AND cents), -- taken back by refunds and disputes
  clawbacks       integer NOT NULL DEFAULT 0,         -- movements of clawed_cents: part of their ledger keys
  refunded_cents  bigint NOT NULL DEFAULT 0,
  disputed_cents  bigint NOT NULL DEFAULT 0,
  fee_cents       bigint NOT NULL DEFAULT 0,
  version         bigint NOT NULL DEFAULT 0,
  created_by      text NOT NULL,
  created_at      timestamptz NOT NULL,
  updated_at      timestamptz NOT NULL,
  next_at         timestamptz,                        -- when the worker looks at it next; NULL = never by itself
  paid_at         timestamptz,
  PRIMARY KEY (org_id, id),
  CHECK (clawed_cents = 0 OR state = 'succeeded')
);
CREATE UNIQUE INDEX topups_one_open_auto ON topups (org_id) WHERE kind = 'auto' AND state IN ('created', 'processing', 'retrying');
CREATE INDEX topups_due ON topups (next_at) WHERE next_at IS NOT NULL;
SELECT tenant_table('topups');

-- What a customer allowed to be charged while nobody is there.
CREATE TABLE auto_recharges (
  org_id            uuid PRIMARY KEY REFERENCES orgs (org_id),
  enabled           boolean NOT NULL,
  below_nano        bigint NOT NULL CHECK (below_nano > 0),
  to_nano           bigint NOT NULL CHECK (to_nano > below_nano),
  monthly_max_nano  bigint NOT NULL CHECK (monthly_max_nano > 0),
  consent           text NOT NULL,        -- the sentence that was agreed to, word for word
  consented_by      text NOT NULL,
  consented_at      timestamptz NOT NULL,
  paused            text NOT NULL DEFAULT '', -- why nothing is charged; '' = not paused
  paused_at         timestamptz,
  month_full_at     timestamptz,          -- when people were last told that the month's maximum is used up
  updated_at        timestamptz NOT NULL
);
SELECT tenant_table('auto_recharges');

-- The payment provider's events, stored as they came and before anything is done about them.
CREATE TABLE stripe_events (
  id          text PRIMARY KEY CHECK (length(id) <= 255),
  type        text NOT NULL,
  object_id   text NOT NULL,
  created_at  timestamptz NOT NULL,       -- by the payment provider's clock
  received_at timestamptz NOT NULL,
  source      text NOT NULL CHECK (source IN ('webhook', 'list')), -- list = the reconciler found that it never arrived
  payload     text NOT NULL CHECK (octet_length(payload) <= 524288),
  state       text NOT NULL CHECK (state IN ('new', 'done', 'ignored', 'dead', 'dismissed')),
  attempts    integer NOT NULL DEFAULT 0,
  next_at     timestamptz NOT NULL,
  problem     text NOT NULL DEFAULT '',   -- of the last attempt
  decided_at  timestamptz,
  decided_by  text,
  reason      text NOT NULL DEFAULT ''
);
CREATE INDEX stripe_events_due ON stripe_events (next_at, created_at) WHERE state = 'new';
CREATE INDEX stripe_events_newest ON stripe_events (received_at DESC, id);
CREATE INDEX stripe_events_dead ON stripe_events (created_at) WHERE state = 'dead';
GRANT SELECT, INSERT, UPDATE ON stripe_events TO millrace_system;

-- What comparing with the payment provider's own lists found.
CREATE TABLE stripe_checks (
  id          uuid PRIMARY KEY,
  at          timestamptz NOT NULL,
  payments    bigint NOT NULL,            -- looked at
  missed      bigint NOT NULL,            -- events that had not arrived
  differences jsonb NOT NULL,
  problem     text NOT NULL DEFAULT ''    -- why it could not be finished
);
GRANT SELECT, INSERT ON stripe_checks TO millrace_system;
