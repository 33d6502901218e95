-- +goose Up
CREATE TABLE hosts (
  id             uuid PRIMARY KEY,
  name           text NOT NULL UNIQUE,
  provider       text NOT NULL DEFAULT 'own',
  region         text NOT NULL DEFAULT 'local',
  domain         text NOT NULL DEFAULT '',      -- scale-up domain; '' = the host itself
  capacity_kind  text NOT NULL DEFAULT 'reserved' CHECK (capacity_kind IN ('reserved', 'on_demand', 'spot')),
  gpu_hour_nano  bigint NOT NULL DEFAULT 0 CHECK (gpu_hour_nano >= 0),
  data_url       text NOT NULL DEFAULT '',      -- where gateways reach the agent's data plane
  agent_version  text NOT NULL DEFAULT '',
  generation     bigint NOT NULL DEFAULT 0,     -- of the desired state
  observed       jsonb NOT NULL DEFAULT '{}',   -- wire.Observed
  observed_generation bigint NOT NULL DEFAULT 0,
  cordoned       boolean NOT NULL DEFAULT false,
  joined_at      timestamptz NOT NULL DEFAULT now(),
  seen_at        timestamptz,
  removed_at     timestamptz
);
CREATE TABLE join_tokens (
  token_hash bytea PRIMARY KEY,
  host_name  text NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  used_at    timestamptz,
  host_id    uuid REFERENCES hosts (id)
);
CREATE TABLE recipes (
  id         uuid PRIMARY KEY,
  name       text NOT NULL UNIQUE,
  spec       jsonb NOT NULL,                    -- recipe.Spec: engine, version, model, flags, cost model
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE releases (
  id         uuid PRIMARY KEY,
  model_id   uuid NOT NULL REFERENCES models (id),
  recipe_id  uuid NOT NULL REFERENCES recipes (id),
  number     integer NOT NULL,
  state      text NOT NULL CHECK (state IN ('serving', 'retired')),
  created_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (model_id, number)
);
-- A unit is either placed on a host (an agent supervises its engine) or attached (an engine someone already runs).
CREATE TABLE units (
  id             uuid PRIMARY KEY,
  name           text NOT NULL UNIQUE,
  model_id       uuid NOT NULL REFERENCES models (id),
  release_id     uuid REFERENCES releases (id),
  engine         text NOT NULL,
  host_id        uuid REFERENCES hosts (id),
  slot           integer NOT NULL DEFAULT 0,    -- several engines a host
  upstream_model text NOT NULL,                 -- the name the engine knows
  base_url       text NOT NULL DEFAULT '',      -- attached only
  sealed_key     bytea,                         -- attached only: the upstream's key, sealed under the master key
  wanted         text NOT NULL DEFAULT 'serving' CHECK (wanted IN ('serving', 'draining', 'stopped')),
  generation     bigint NOT NULL DEFAULT 1,
  created_at     timestamptz NOT NULL DEFAULT now(),
  removed_at     timestamptz,
  CHECK ((host_id IS NULL) <> (base_url = ''))
);
-- A host's desired state is its units: whoever changes one moves the host's generation, so nobody can forget to.
-- +goose StatementBegin
CREATE FUNCTION host_desires_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE hosts SET generation = generation + 1 WHERE id IN (OLD.host_id, NEW.host_id);
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER units_move_generation AFTER INSERT OR UPDATE ON units
  FOR EACH ROW EXECUTE FUNCTION host_desires_changed();
-- One record per attempt, written by agents: the independent side of reconcile, never the source of a charge.
CREATE TABLE attempt_journal (
  attempt_id  uuid NOT NULL,
  host_id     uuid NOT NULL REFERENCES hosts (id),
  unit_id     uuid NOT NULL,
  kind        text NOT NULL CHECK (kind IN ('serve', 'probe', 'golden')),
  prompt      bigint NOT NULL,
  cached      bigint NOT NULL,
  generated   bigint NOT NULL,
  handed_over bigint NOT NULL,                  -- tokens written towards the gateway
  ending      text NOT NULL,                    -- complete, caller_left, engine_failed, agent_died, open
  started_at  timestamptz NOT NULL,
  ended_at    timestamptz,
  PRIMARY KEY (attempt_id, host_id)
);
CREATE INDEX attempt_journal_by_start ON attempt_journal (started_at);
GRANT SELECT, INSERT, UPDATE ON hosts, join_tokens, recipes, releases, units, attempt_journal TO millrace_system;
GRANT SELECT ON units TO millrace_app;
