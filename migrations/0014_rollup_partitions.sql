-- +goose Up
-- Rows of all customers come interleaved. In one heap a page over a customer's month would read nearly all of it.
-- +goose StatementBegin
DO $$
BEGIN
  IF (SELECT relkind FROM pg_class WHERE oid = 'usage_rollups'::regclass) = 'p' THEN RETURN; END IF;
  ALTER TABLE usage_rollups RENAME TO usage_rollups_whole;
  ALTER TABLE usage_rollups_whole NO FORCE ROW LEVEL SECURITY; -- the owner copies all of it, below
  ALTER INDEX usage_rollups_pkey RENAME TO usage_rollups_whole_pkey;
  ALTER INDEX usage_rollups_by_bucket RENAME TO usage_rollups_whole_by_bucket;
  CREATE TABLE usage_rollups (LIKE usage_rollups_whole, FOREIGN KEY (org_id) REFERENCES orgs (org_id),
    PRIMARY KEY (org_id, bucket, project_id, key_id, model_id)) PARTITION BY HASH (org_id);
  FOR i IN 0..15 LOOP
    EXECUTE format('CREATE TABLE usage_rollups_%s PARTITION OF usage_rollups FOR VALUES WITH (MODULUS 16, REMAINDER %s)', i, i);
  END LOOP;
  INSERT INTO usage_rollups SELECT * FROM usage_rollups_whole;
  DROP TABLE usage_rollups_whole;
  CREATE INDEX usage_rollups_by_bucket ON usage_rollups (bucket);
  PERFORM tenant_table('usage_rollups');
  FOR i IN 0..15 LOOP
    EXECUTE format('ALTER TABLE usage_rollups_%s ENABLE ROW LEVEL SECURITY', i);
    EXECUTE format('ALTER TABLE usage_rollups_%s FORCE ROW LEVEL SECURITY', i);
  END LOOP;
END $$;
-- +goose StatementEnd
