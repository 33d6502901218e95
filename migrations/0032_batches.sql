-- +goose Up
-- Files that customers upload for batches, and those that batches write. A file's bytes are rows of 1 MiB each, the last one
-- shorter. Until it is ready, nobody but its writer sees it.
CREATE TABLE files (
  org_id     uuid NOT NULL REFERENCES orgs (org_id),
  id         uuid NOT NULL,
  project_id uuid NOT NULL,
  purpose    text NOT NULL CHECK (purpose IN ('batch', 'batch_output')),
  filename   text NOT NULL CHECK (length(filename) BETWEEN 1 AND 255),
  bytes      bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
  ready      boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (org_id, id),
  FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id)
);
CREATE INDEX files_end ON files (expires_at);
CREATE INDEX files_unready ON files (created_at) WHERE NOT ready;
SELECT tenant_table('files');
GRANT INSERT, UPDATE, DELETE ON files TO millrace_app;

CREATE TABLE file_chunks (
  org_id  uuid NOT NULL,
  file_id uuid NOT NULL,
  n       integer NOT NULL CHECK (n >= 0),
  body    bytea NOT NULL,
  PRIMARY KEY (org_id, file_id, n),
  FOREIGN KEY (org_id, file_id) REFERENCES files (org_id, id) ON DELETE CASCADE
);
ALTER TABLE file_chunks ALTER COLUMN body SET STORAGE EXTERNAL; -- parts of a chunk are read
SELECT tenant_table('file_chunks');
GRANT INSERT, DELETE ON file_chunks TO millrace_app;

-- What an organization stores, kept with every change of its files: the limit is one conditional update.
CREATE TABLE file_totals (
  org_id uuid PRIMARY KEY REFERENCES orgs (org_id),
  files  bigint NOT NULL DEFAULT 0,
  bytes  bigint NOT NULL DEFAULT 0
);
SELECT tenant_table('file_totals');
GRANT INSERT, UPDATE ON file_totals TO millrace_app;

CREATE TABLE batches (
  org_id            uuid NOT NULL REFERENCES orgs (org_id),
  id                uuid NOT NULL,
  project_id        uuid NOT NULL,
  key_id            uuid NOT NULL, -- whose principal its lines run with
  input_file_id     uuid NOT NULL,
  endpoint          text NOT NULL,
  model             text NOT NULL DEFAULT '', -- of every line; '' until validated
  completion_window text NOT NULL,
  metadata          text, -- JSON, as it is shown
  output_seconds    bigint NOT NULL, -- until its output files expire
  status            text NOT NULL CHECK (status IN ('validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled')),
  outcome           text NOT NULL DEFAULT 'completed' CHECK (outcome IN ('completed', 'expired', 'cancelled')), -- what it becomes once finalized
  errors            text, -- JSON, as it is shown
  total             integer NOT NULL DEFAULT 0,
  completed         integer NOT NULL DEFAULT 0,
  failed            integer NOT NULL DEFAULT 0,
  output_file_id    uuid,
  error_file_id     uuid,
  created_at        timestamptz NOT NULL,
  expires_at        timestamptz NOT NULL,
  in_progress_at    timestamptz,
  finalizing_at     timestamptz,
  completed_at      timestamptz,
  failed_at         timestamptz,
  expired_at        timestamptz,
  cancelling_at     timestamptz,
  cancelled_at      timestamptz,
  pause_code        text NOT NULL DEFAULT '', -- why nothing of it runs just now; '' = nothing holds it
  pause_message     text NOT NULL DEFAULT '',
  next_at           timestamptz NOT NULL, -- not worked on before
  -- The gateway that works on it. A term is one gateway's hold; every write names it, so that who lost it changes nothing.
  -- Its times are the database's.
  lease_term        bigint NOT NULL DEFAULT 0,
  lease_until       timestamptz,
  PRIMARY KEY (org_id, id),
  FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id),
  FOREIGN KEY (org_id, key_id) REFERENCES api_keys (org_id, id)
);
CREATE INDEX batches_open ON batches (next_at) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
SELECT tenant_table('batches');
GRANT INSERT, UPDATE ON batches TO millrace_app;

-- The requests of batches that have not ended; results are here until the output files are written.
CREATE TABLE batch_lines (
  org_id     uuid NOT NULL,
  batch_id   uuid NOT NULL,
  n          integer NOT NULL, -- the line of the input file, from 1
  custom_id  text NOT NULL,    -- as JSON, as it was sent
  start      bigint NOT NULL,  -- where the line begins in the input file
  size       integer NOT NULL,
  attempt    integer NOT NULL DEFAULT 0, -- requests of it that left an event and came to nothing
  started_at timestamptz, -- of this attempt; with the attempt it makes the request's id
  state      text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'completed', 'failed')),
  result     bytea, -- a line of an output file
  PRIMARY KEY (org_id, batch_id, n),
  FOREIGN KEY (org_id, batch_id) REFERENCES batches (org_id, id) ON DELETE CASCADE,
  CHECK ((state = 'waiting') = (result IS NULL))
);
SELECT tenant_table('batch_lines');
GRANT INSERT, UPDATE, DELETE ON batch_lines TO millrace_app;
