-- +goose Up
-- How far a gateway's part of the log reached at its last heartbeat, of every log it wrote to: {incarnation: sequence}. When
-- a log is replaced, the end of the old one is gone with it: this is what is left to know of it.
ALTER TABLE gateway_epochs ADD COLUMN log_seen jsonb NOT NULL DEFAULT '{}';
ALTER TABLE log_gaps ALTER COLUMN to_seq DROP NOT NULL; -- NULL = how far it went is not known, if there was anything
