-- +goose Up
CREATE TABLE models (
  id                uuid PRIMARY KEY,
  name              text NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$'),
  display_name      text NOT NULL DEFAULT '',
  context_tokens    bigint NOT NULL CHECK (context_tokens BETWEEN 1 AND 4194304),
  max_output_tokens bigint NOT NULL CHECK (max_output_tokens BETWEEN 1 AND 4194304),
  default_output    bigint NOT NULL DEFAULT 4096 CHECK (default_output > 0), -- held when a request names no maximum
  free              boolean NOT NULL DEFAULT false,
  created_at        timestamptz NOT NULL DEFAULT now(),
  retired_at        timestamptz
);
GRANT SELECT ON models TO millrace_app;
GRANT SELECT, INSERT, UPDATE ON models TO millrace_system;

-- Immutable: a correction is a new version. Only cancelled_at may be set, while effective_at lies ahead.
CREATE TABLE price_versions (
  id              uuid PRIMARY KEY,
  model_id        uuid NOT NULL REFERENCES models (id),
  book            text NOT NULL DEFAULT 'standard',
  effective_at    timestamptz NOT NULL,
  -- pico-USD per token; request is pico-USD per request
  input_pico      bigint NOT NULL CHECK (input_pico >= 0),
  cached_pico     bigint NOT NULL CHECK (cached_pico >= 0),
  cache_write_pico bigint NOT NULL CHECK (cache_write_pico >= 0),
  output_pico     bigint NOT NULL CHECK (output_pico >= 0),
  reasoning_pico  bigint NOT NULL CHECK (reasoning_pico >= 0),
  image_pico      bigint NOT NULL CHECK (image_pico >= 0),
  audio_pico      bigint NOT NULL CHECK (audio_pico >= 0),
  request_pico    bigint NOT NULL CHECK (request_pico >= 0),
  note            text NOT NULL DEFAULT '',
  created_by      text NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  cancelled_at    timestamptz
);
-- Of the versions that stand; a cancelled one may be replaced at the same moment.
CREATE UNIQUE INDEX price_versions_one_per_moment ON price_versions (model_id, book, effective_at) WHERE cancelled_at IS NULL;
-- +goose StatementBegin
CREATE FUNCTION price_version_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN RAISE EXCEPTION 'a price version is never deleted'; END IF;
  IF OLD.cancelled_at IS NULL AND NEW.cancelled_at IS NOT NULL AND OLD.effective_at > now()
     AND (to_jsonb(NEW) - 'cancelled_at') = (to_jsonb(OLD) - 'cancelled_at') THEN RETURN NEW; END IF;
  RAISE EXCEPTION 'a price version is immutable; it can only be cancelled before it takes effect';
END $$;
-- +goose StatementEnd
CREATE TRIGGER price_versions_immutable BEFORE UPDATE OR DELETE ON price_versions
  FOR EACH ROW EXECUTE FUNCTION price_version_is_immutable();
GRANT SELECT ON price_versions TO millrace_app;
GRANT SELECT, INSERT, UPDATE ON price_versions TO millrace_system;
