-- +goose Up
-- Members of a request that only some engines know and that customers of this model may send. NULL = the usual ones.
ALTER TABLE models ADD COLUMN engine_extras text[];
