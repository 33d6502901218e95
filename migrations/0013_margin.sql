-- +goose Up
-- ---- what serving costs: for operators only, so nothing of this is a tenant's -----------------------------------------------
-- The price of one GPU for an hour in a fleet (provider and region) at a kind of capacity, from a moment on. Never changed: a
-- correction is a newer price, and hours that were accrued keep theirs.
CREATE TABLE gpu_prices (
  id            uuid PRIMARY KEY,
  provider      text NOT NULL,
  region        text NOT NULL,
  capacity_kind text NOT NULL CHECK (capacity_kind IN ('reserved', 'on_demand', 'spot')),
  gpu_hour_nano bigint NOT NULL CHECK (gpu_hour_nano >= 0),
  effective_at  timestamptz NOT NULL,
  created_by    text NOT NULL,
  created_at    timestamptz NOT NULL,
  UNIQUE (provider, region, capacity_kind, effective_at)
);
GRANT SELECT, INSERT ON gpu_prices TO millrace_system;

-- Which hours are accrued, and up to when: the running hour is made anew until it is over and rated.
CREATE TABLE margin_hours (
  hour  timestamptz PRIMARY KEY,
  until timestamptz NOT NULL,
  final boolean NOT NULL
);
-- What a host's GPUs cost in an hour, by the unit on them. The nil unit is a host that serves nothing. cost NULL = nobody said
-- what its fleet costs.
CREATE TABLE margin_units (
  hour      timestamptz NOT NULL REFERENCES margin_hours (hour) ON DELETE CASCADE,
  host_id   uuid NOT NULL,
  unit_id   uuid NOT NULL,
  model_id  uuid,
  gpu_ms    bigint NOT NULL CHECK (gpu_ms >= 0),  -- GPU-milliseconds
  busy_ms   bigint NOT NULL CHECK (busy_ms >= 0), -- of them, while at least one request ran
  cost_nano bigint,
  idle_nano bigint,                                -- of the cost, while none ran
  simulated boolean NOT NULL,
  PRIMARY KEY (hour, host_id, unit_id)
);
-- The busy part of a unit's cost, by weighted tokens.
CREATE TABLE margin_orgs (
  hour      timestamptz NOT NULL REFERENCES margin_hours (hour) ON DELETE CASCADE,
  unit_id   uuid NOT NULL,
  org_id    uuid NOT NULL,
  model_id  uuid NOT NULL,
  weighted  bigint NOT NULL,
  tokens    bigint NOT NULL,
  cost_nano bigint,
  PRIMARY KEY (hour, unit_id, org_id, model_id)
);
SELECT tenant_table('margin_orgs');
REVOKE SELECT ON margin_orgs FROM millrace_app; -- what a customer costs is not his to know
GRANT SELECT, INSERT, UPDATE, DELETE ON margin_hours, margin_units TO millrace_system;
