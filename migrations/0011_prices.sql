-- +goose Up
-- ---- prices that depend on the prompt's length, the time of day and the service tier --------------------------------------
-- Strictly decoded by billing/price, and as immutable as the rest of a version; '{}' = the eight prices are all there is.
ALTER TABLE price_versions ADD COLUMN terms jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(terms) = 'object' AND octet_length(terms::text) <= 16384);

-- '' = the ordinary tier.
ALTER TABLE usage_events ADD COLUMN service_tier text NOT NULL DEFAULT '' CHECK (service_tier IN ('', 'priority', 'batch'));

-- Which price book an organization has for a while, instead of its own. ends_at is exclusive; NULL = until it is ended. One
-- that was taken back before it began ends where it starts. The range type lets the exclusion do without an extension.
CREATE TYPE uuidrange AS RANGE (subtype = uuid);
CREATE TABLE price_contracts (
  org_id     uuid NOT NULL REFERENCES orgs (org_id),
  id         uuid NOT NULL,
  book       text NOT NULL,
  starts_at  timestamptz NOT NULL,
  ends_at    timestamptz CHECK (ends_at >= starts_at),
  note       text NOT NULL DEFAULT '',
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, id),
  CONSTRAINT price_contracts_one_at_a_time EXCLUDE USING gist (uuidrange(org_id, org_id, '[]') WITH &&, tstzrange(starts_at, ends_at) WITH &&)
);
SELECT tenant_table('price_contracts');
REVOKE DELETE ON price_contracts FROM millrace_system;
-- +goose StatementBegin
CREATE FUNCTION price_contract_only_ends() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (to_jsonb(NEW) - 'ends_at') = (to_jsonb(OLD) - 'ends_at') AND coalesce(OLD.ends_at > now(), true)
     AND (NEW.ends_at > now() OR NEW.ends_at = NEW.starts_at AND NEW.starts_at > now()) THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'of a price contract only the end can change, while it and the new one lie ahead';
END $$;
-- +goose StatementEnd
CREATE TRIGGER price_contracts_only_end BEFORE UPDATE ON price_contracts FOR EACH ROW EXECUTE FUNCTION price_contract_only_ends();
