-- +goose Up
-- ---- what serves, in parts: a unit of several engines is a parent row with one row per shard (docs/fleet.md) ------------------
-- A parent has parts > 0, no host and no address; its shards name it in part_of. A unit that is one engine is one row as before.
-- Rows that no plan owns (attached ones, and those of `up`) have no plan and stay in the state "serving".
ALTER TABLE units DROP CONSTRAINT units_check;
ALTER TABLE units
  ADD COLUMN part_of    uuid REFERENCES units (id),
  ADD COLUMN parts      integer NOT NULL DEFAULT 0 CHECK (parts >= 0),
  ADD COLUMN role       text NOT NULL DEFAULT 'whole' CHECK (role IN ('whole', 'prefill', 'decode', 'encoder')),
  ADD COLUMN replica    integer NOT NULL DEFAULT 0 CHECK (replica >= 0), -- number of the engine in its role's pool
  ADD COLUMN shard      integer NOT NULL DEFAULT 0 CHECK (shard >= 0),   -- rank of the host in a replica; only 0 answers HTTP
  ADD COLUMN expert     integer NOT NULL DEFAULT 0 CHECK (expert >= 0),  -- EP size; 0 = the recipe's
  ADD COLUMN gpus       integer[] NOT NULL DEFAULT '{}',                 -- indexes on the host
  ADD COLUMN spec       jsonb,                                           -- engine.Spec of this row; NULL = its release's recipe
  ADD COLUMN plan_id    uuid,                                            -- the committed plan that last wanted this row
  ADD COLUMN state      text NOT NULL DEFAULT 'serving'
    CHECK (state IN ('planned', 'starting', 'ready', 'serving', 'draining', 'stopped', 'faulted')),
  ADD COLUMN state_at   timestamptz NOT NULL DEFAULT now(),
  ADD COLUMN state_text text NOT NULL DEFAULT '',                        -- why, for people
  ADD COLUMN tries      integer NOT NULL DEFAULT 0,                      -- starts that came to nothing
  ADD CHECK (CASE WHEN parts > 0 THEN host_id IS NULL AND base_url = '' AND part_of IS NULL AND plan_id IS NOT NULL
                  ELSE (host_id IS NULL) <> (base_url = '') END),
  ADD CHECK (part_of IS NULL OR host_id IS NOT NULL);
CREATE UNIQUE INDEX units_shard ON units (part_of, role, replica, shard) WHERE part_of IS NOT NULL AND removed_at IS NULL;
CREATE INDEX units_by_host ON units (host_id) WHERE removed_at IS NULL;

-- An agent is woken by what it acts on; a state that the fleet keeps for itself is not.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION host_desires_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND (OLD.host_id, OLD.name, OLD.generation, OLD.engine, OLD.upstream_model, OLD.wanted, OLD.spec, OLD.slot, OLD.release_id, OLD.removed_at)
      IS NOT DISTINCT FROM (NEW.host_id, NEW.name, NEW.generation, NEW.engine, NEW.upstream_model, NEW.wanted, NEW.spec, NEW.slot, NEW.release_id, NEW.removed_at) THEN
    RETURN NULL;
  END IF;
  UPDATE hosts SET generation = generation + 1 WHERE id IN (OLD.host_id, NEW.host_id);
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- Where a row has ever been: repairs move rows to other hosts, and what the earlier host's journal says of it is still true.
CREATE TABLE unit_places (
  unit_id uuid NOT NULL REFERENCES units (id),
  host_id uuid NOT NULL REFERENCES hosts (id),
  PRIMARY KEY (host_id, unit_id)
);
INSERT INTO unit_places (unit_id, host_id) SELECT id, host_id FROM units WHERE host_id IS NOT NULL;
-- +goose StatementBegin
CREATE FUNCTION unit_is_placed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO unit_places (unit_id, host_id) VALUES (NEW.id, NEW.host_id) ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER units_are_placed AFTER INSERT OR UPDATE OF host_id ON units
  FOR EACH ROW WHEN (NEW.host_id IS NOT NULL) EXECUTE FUNCTION unit_is_placed();
GRANT SELECT, INSERT ON unit_places TO millrace_system;

-- What became of a unit, for people.
CREATE TABLE unit_events (
  id      uuid PRIMARY KEY,
  unit_id uuid NOT NULL REFERENCES units (id), -- the parent, or the single row
  at      timestamptz NOT NULL DEFAULT now(),
  state   text NOT NULL,
  text    text NOT NULL
);
CREATE INDEX unit_events_by_unit ON unit_events (unit_id, at);
GRANT SELECT, INSERT, DELETE ON unit_events TO millrace_system;

-- ---- hosts: where they are, and whether new work may go there ------------------------------------------------------------------
ALTER TABLE hosts
  ADD COLUMN network        text NOT NULL DEFAULT '',        -- hosts of one reach each other's fabric addresses; '' = provider and region
  ADD COLUMN failure_domain text NOT NULL DEFAULT '',        -- a rack, a power feed; '' = the host itself
  ADD COLUMN draining       boolean NOT NULL DEFAULT false,  -- what is there moves away
  ADD COLUMN cordon_reason  text NOT NULL DEFAULT '',
  ADD COLUMN cordoned_by    text NOT NULL DEFAULT '',
  ADD COLUMN cordoned_at    timestamptz,
  ADD CHECK (cordoned OR NOT draining);
CREATE TABLE host_maintenance (
  id           uuid PRIMARY KEY,
  host_id      uuid NOT NULL REFERENCES hosts (id),
  starts_at    timestamptz NOT NULL,
  ends_at      timestamptz NOT NULL,
  reason       text NOT NULL,
  created_by   text NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now(),
  cancelled_at timestamptz,
  CHECK (starts_at < ends_at)
);
CREATE INDEX host_maintenance_ahead ON host_maintenance (ends_at) WHERE cancelled_at IS NULL;
GRANT SELECT, INSERT, UPDATE ON host_maintenance TO millrace_system;

-- ---- recipes: the text that was uploaded, and what was measured of it -----------------------------------------------------------
-- Another text is another recipe, also under the same name. '' = made by `up` or an operator's placement, without a text.
ALTER TABLE recipes DROP CONSTRAINT recipes_name_key;
ALTER TABLE recipes
  ADD COLUMN source     text NOT NULL DEFAULT '', -- YAML
  ADD COLUMN digest     text NOT NULL DEFAULT '', -- recipe.Digest
  ADD COLUMN created_by text NOT NULL DEFAULT '',
  ADD COLUMN retired_at timestamptz,
  ADD CONSTRAINT recipes_name_digest_key UNIQUE (name, digest);
CREATE TABLE recipe_measurements (
  id         uuid PRIMARY KEY,
  recipe_id  uuid NOT NULL REFERENCES recipes (id),
  hardware   text NOT NULL,
  cost       jsonb NOT NULL, -- recipe.Cost
  report     jsonb NOT NULL,
  created_by text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX recipe_measurements_by_recipe ON recipe_measurements (recipe_id, created_at);
GRANT SELECT, INSERT ON recipe_measurements TO millrace_system;

-- ---- demands and plans ----------------------------------------------------------------------------------------------------------
-- How many units of a recipe a model wants, and where they may be. A model may want several recipes beside each other.
CREATE TABLE placement_policies (
  model_id   uuid NOT NULL REFERENCES models (id),
  recipe_id  uuid NOT NULL REFERENCES recipes (id),
  release_id uuid NOT NULL REFERENCES releases (id),
  units      integer NOT NULL CHECK (units >= 0),
  kinds      text[] NOT NULL DEFAULT '{}', -- of capacity; empty = all
  regions    text[] NOT NULL DEFAULT '{}', -- empty = all
  spread     boolean NOT NULL DEFAULT true,
  weight     integer NOT NULL DEFAULT 1 CHECK (weight > 0),
  version    bigint NOT NULL DEFAULT 1,
  updated_by text NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (model_id, recipe_id)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON placement_policies TO millrace_system;

-- A plan is what units there shall be. The demands it was made for are kept with it: a repair restores these, whatever was asked
-- for since.
CREATE TABLE plans (
  id           uuid PRIMARY KEY,
  number       bigint NOT NULL GENERATED ALWAYS AS IDENTITY UNIQUE,
  parent_id    uuid REFERENCES plans (id), -- NULL = the first one
  cause        text NOT NULL CHECK (cause IN ('operator', 'repair')),
  body         jsonb NOT NULL,             -- plan.Plan
  demands      jsonb NOT NULL,             -- of the plan: fleet's stored form
  digest       text NOT NULL,              -- of body and demands
  note         text NOT NULL DEFAULT '',
  state        text NOT NULL CHECK (state IN ('draft', 'committed', 'superseded')),
  created_by   text NOT NULL,
  created_at   timestamptz NOT NULL DEFAULT now(),
  committed_by text,
  committed_at timestamptz,
  CHECK ((state = 'draft') <= (committed_at IS NULL)),
  CHECK ((state = 'committed') <= (committed_at IS NOT NULL)),
  CHECK ((committed_at IS NULL) = (committed_by IS NULL))
);
CREATE UNIQUE INDEX plans_current ON plans (state) WHERE state = 'committed';
-- +goose StatementBegin
CREATE FUNCTION plan_stays() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  life text[] := ARRAY['state', 'committed_by', 'committed_at'];
BEGIN
  IF (to_jsonb(NEW) - life) = (to_jsonb(OLD) - life)
      AND (OLD.state = 'draft' AND NEW.state IN ('committed', 'superseded')
           OR OLD.state = 'committed' AND NEW.state = 'superseded' AND NEW.committed_at = OLD.committed_at AND NEW.committed_by = OLD.committed_by) THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'plan % is immutable', OLD.number;
END $$;
-- +goose StatementEnd
CREATE TRIGGER plans_stay BEFORE UPDATE ON plans FOR EACH ROW EXECUTE FUNCTION plan_stays();
GRANT SELECT, INSERT, UPDATE ON plans TO millrace_system;
ALTER TABLE units ADD FOREIGN KEY (plan_id) REFERENCES plans (id);

-- What the fleet may do by itself, and how much it keeps free.
CREATE TABLE fleet_settings (
  only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  auto_repair boolean NOT NULL DEFAULT true,  -- repairs of lost capacity inside the demand are committed without asking
  spares      integer NOT NULL DEFAULT 8 CHECK (spares >= 0),       -- GPUs kept free in every domain …
  spares_from integer NOT NULL DEFAULT 72 CHECK (spares_from > 0),  -- … of at least this many
  max_lost    integer NOT NULL DEFAULT 25 CHECK (max_lost BETWEEN 1 AND 100), -- percent of hosts lost at once above which nothing moves
  updated_by  text NOT NULL DEFAULT '',
  updated_at  timestamptz NOT NULL DEFAULT now()
);
INSERT INTO fleet_settings DEFAULT VALUES;
GRANT SELECT, UPDATE ON fleet_settings TO millrace_system;

-- Who does what only one process may do. A term is one holder's hold: every write of it checks its term in the same transaction,
-- so that a holder that was paused changes nothing. Times are the database's.
CREATE TABLE control_leases (
  name       text PRIMARY KEY,
  holder     text NOT NULL,
  term       bigint NOT NULL,
  expires_at timestamptz NOT NULL,
  since      timestamptz NOT NULL DEFAULT now() -- of the term
);
GRANT SELECT, INSERT, UPDATE ON control_leases TO millrace_system;
