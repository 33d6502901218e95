-- +goose Up
-- What an organization's credit must not fall below without people being told. One row each; none = nobody is told.
CREATE TABLE balance_alerts (
  org_id     uuid PRIMARY KEY REFERENCES orgs (org_id),
  below_nano bigint NOT NULL CHECK (below_nano > 0),
  low_since  timestamptz,             -- when it was told that the credit is below; NULL = it is not, or was not noticed yet
  updated_by text NOT NULL,
  updated_at timestamptz NOT NULL
);
SELECT tenant_table('balance_alerts');
