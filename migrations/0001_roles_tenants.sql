-- +goose Up
-- Two group roles without login. A transaction takes one of them (db.InTx): millrace_app sees one organization,
-- millrace_system sees all. The login role owns the schema and is subject to row-level security too (FORCE).
-- +goose StatementBegin
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'millrace_app') THEN CREATE ROLE millrace_app NOLOGIN; END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'millrace_system') THEN CREATE ROLE millrace_system NOLOGIN; END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
-- +goose StatementEnd
GRANT millrace_app, millrace_system TO CURRENT_USER;
GRANT USAGE ON SCHEMA public TO millrace_app, millrace_system;

-- The organization of this transaction; NULL (so: no rows) when none is set.
-- +goose StatementBegin
CREATE FUNCTION current_org() RETURNS uuid LANGUAGE sql STABLE AS
$$ SELECT NULLIF(current_setting('millrace.org', true), '')::uuid $$;
-- +goose StatementEnd

-- Called once per tenant table: forced row-level security, one policy per role.
-- +goose StatementBegin
CREATE FUNCTION tenant_table(t regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
  EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', t);
  EXECUTE format('CREATE POLICY tenant ON %s TO millrace_app USING (org_id = current_org()) WITH CHECK (org_id = current_org())', t);
  EXECUTE format('CREATE POLICY everything ON %s TO millrace_system USING (true) WITH CHECK (true)', t);
  EXECUTE format('GRANT SELECT ON %s TO millrace_app', t);
  EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO millrace_system', t);
END $$;
-- +goose StatementEnd

-- The database's own identity: which master key and CA its processes must hold.
CREATE TABLE installation (
  only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  id                uuid NOT NULL,
  key_fingerprint   text NOT NULL,
  ca_fingerprint    text NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT now()
);
GRANT SELECT, INSERT, UPDATE ON installation TO millrace_system;

CREATE TABLE orgs (
  org_id            uuid PRIMARY KEY,
  name              text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
  time_zone         text NOT NULL DEFAULT 'UTC',
  failure_policy    text NOT NULL DEFAULT 'delivered' CHECK (failure_policy IN ('delivered', 'nothing')),
  price_book        text NOT NULL DEFAULT 'standard',
  credit_limit_nano bigint NOT NULL DEFAULT 0 CHECK (credit_limit_nano >= 0),
  created_at        timestamptz NOT NULL DEFAULT now(),
  suspended_at      timestamptz
);
SELECT tenant_table('orgs');

CREATE TABLE projects (
  org_id      uuid NOT NULL REFERENCES orgs (org_id),
  id          uuid NOT NULL,
  name        text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  created_at  timestamptz NOT NULL DEFAULT now(),
  archived_at timestamptz,
  PRIMARY KEY (org_id, id),
  UNIQUE (org_id, name)
);
SELECT tenant_table('projects');
GRANT INSERT, UPDATE ON projects TO millrace_app;

-- People are global: one person may belong to several organizations.
CREATE TABLE users (
  id          uuid PRIMARY KEY,
  email       text NOT NULL UNIQUE CHECK (email = lower(email) AND email LIKE '%_@_%'),
  name        text NOT NULL DEFAULT '',
  is_operator boolean NOT NULL DEFAULT false,
  created_at  timestamptz NOT NULL DEFAULT now(),
  disabled_at timestamptz
);
GRANT SELECT, INSERT, UPDATE ON users TO millrace_system;

CREATE TABLE members (
  org_id     uuid NOT NULL REFERENCES orgs (org_id),
  user_id    uuid NOT NULL REFERENCES users (id),
  role       text NOT NULL CHECK (role IN ('owner', 'admin', 'billing', 'developer', 'viewer')),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, user_id)
);
SELECT tenant_table('members');
GRANT INSERT, UPDATE, DELETE ON members TO millrace_app;

-- One-time sign-in links and sessions: only hashes are kept.
CREATE TABLE login_links (
  token_hash bytea PRIMARY KEY,
  user_id    uuid NOT NULL REFERENCES users (id),
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  used_at    timestamptz
);
CREATE TABLE sessions (
  token_hash bytea PRIMARY KEY,
  user_id    uuid NOT NULL REFERENCES users (id),
  created_at timestamptz NOT NULL DEFAULT now(),
  seen_at    timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  ended_at   timestamptz
);
-- Sign-in links that wait for a mail server; the operator's outbox page shows them.
CREATE TABLE outbox (
  id         uuid PRIMARY KEY,
  recipient  text NOT NULL,
  subject    text NOT NULL,
  body       text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  sent_at    timestamptz
);
-- Bearers of the control API: operators' programs.
CREATE TABLE control_tokens (
  token_hash bytea PRIMARY KEY,
  name       text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  revoked_at timestamptz
);
CREATE UNIQUE INDEX control_tokens_one_live_name ON control_tokens (name) WHERE revoked_at IS NULL;
GRANT SELECT, INSERT, UPDATE, DELETE ON login_links, sessions, outbox, control_tokens TO millrace_system;

-- What a repeated request of the control API made the first time (where nothing else is unique about it).
CREATE TABLE idempotency_keys (
  key          text PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 400),
  request_hash bytea NOT NULL,
  resource     uuid NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now()
);
GRANT SELECT, INSERT, UPDATE ON idempotency_keys TO millrace_system;

-- hash = HMAC-SHA-256 of the key under the installation's pepper; the key itself is never stored.
CREATE TABLE api_keys (
  org_id       uuid NOT NULL,
  id           uuid NOT NULL,
  project_id   uuid NOT NULL,
  name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  hash         bytea NOT NULL UNIQUE,
  prefix       text NOT NULL,
  last4        text NOT NULL,
  created_by   uuid REFERENCES users (id),
  created_at   timestamptz NOT NULL DEFAULT now(),
  expires_at   timestamptz,
  revoked_at   timestamptz,
  hidden       boolean NOT NULL DEFAULT false, -- short-lived keys of the playground: not listed
  last_used_at timestamptz,
  rpm          integer CHECK (rpm > 0),   -- requests per minute; NULL = no limit
  tpm          bigint CHECK (tpm > 0),    -- tokens per minute; NULL = no limit
  concurrency  integer CHECK (concurrency > 0),
  PRIMARY KEY (org_id, id),
  FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id)
);
SELECT tenant_table('api_keys');
GRANT INSERT, UPDATE ON api_keys TO millrace_app;

CREATE TABLE audit_log (
  org_id     uuid NOT NULL, -- the operator's own acts use the nil uuid
  id         uuid NOT NULL,
  at         timestamptz NOT NULL DEFAULT now(),
  actor      text NOT NULL, -- user_…, token:name, or system
  acting_as  text,
  action     text NOT NULL,
  target     text NOT NULL,
  before     jsonb,
  after      jsonb,
  request_id text,
  ip         text,
  PRIMARY KEY (org_id, id)
);
CREATE INDEX audit_log_newest ON audit_log (id); -- of all organizations, for operators
SELECT tenant_table('audit_log');
GRANT INSERT ON audit_log TO millrace_app;
REVOKE UPDATE, DELETE ON audit_log FROM millrace_system;
