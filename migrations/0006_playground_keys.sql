-- +goose Up
-- Signing out ends a person's hidden keys: they are found without reading every key.
CREATE INDEX api_keys_hidden_of ON api_keys (created_by) WHERE hidden AND revoked_at IS NULL;
