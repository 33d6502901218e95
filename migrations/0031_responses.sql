-- +goose Up
-- Responses that customers asked to be kept, with the input of each: what a later request continues from. JSON is kept as
-- text, byte for byte: jsonb knows no \u0000 and writes numbers anew.
CREATE TABLE responses (
  org_id          uuid NOT NULL REFERENCES orgs (org_id),
  id              uuid NOT NULL, -- of the request
  project_id      uuid NOT NULL, -- a key of another project does not find it
  created_at      timestamptz NOT NULL,
  expires_at      timestamptz NOT NULL,
  status          text NOT NULL CHECK (status IN ('queued', 'in_progress', 'completed', 'incomplete', 'failed', 'cancelled')),
  previous_id     uuid, -- without a reference: an earlier response may be deleted or expire
  conversation_id uuid,
  input           text NOT NULL, -- array of items
  response        text NOT NULL, -- the response object
  background      boolean NOT NULL DEFAULT false,
  streamed        boolean NOT NULL DEFAULT false, -- in the background with events that can be read again
  owner           uuid,          -- the process that makes it in the background
  alive_at        timestamptz,   -- when that process last said that it still does
  PRIMARY KEY (org_id, id)
);
CREATE INDEX responses_expiring ON responses (expires_at);
CREATE INDEX responses_running ON responses (owner, alive_at) WHERE status IN ('queued', 'in_progress');
SELECT tenant_table('responses');
GRANT INSERT, UPDATE, DELETE ON responses TO millrace_app;

-- The events of responses that are made in the background, in runs as they were written.
CREATE TABLE response_events (
  org_id      uuid NOT NULL,
  response_id uuid NOT NULL,
  first_seq   bigint NOT NULL,
  events      text NOT NULL, -- as the stream carries them
  PRIMARY KEY (org_id, response_id, first_seq),
  FOREIGN KEY (org_id, response_id) REFERENCES responses (org_id, id) ON DELETE CASCADE
);
SELECT tenant_table('response_events');
GRANT INSERT, DELETE ON response_events TO millrace_app;

CREATE TABLE conversations (
  org_id     uuid NOT NULL REFERENCES orgs (org_id),
  id         uuid NOT NULL,
  project_id uuid NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL, -- moves with every use
  metadata   text NOT NULL,
  last_item  bigint NOT NULL DEFAULT 0, -- the highest position that was given
  PRIMARY KEY (org_id, id)
);
CREATE INDEX conversations_expiring ON conversations (expires_at);
SELECT tenant_table('conversations');
GRANT INSERT, UPDATE, DELETE ON conversations TO millrace_app;

CREATE TABLE conversation_items (
  org_id          uuid NOT NULL,
  conversation_id uuid NOT NULL,
  position        bigint NOT NULL,
  item_id         text NOT NULL,
  item            text NOT NULL,
  PRIMARY KEY (org_id, conversation_id, position),
  UNIQUE (org_id, conversation_id, item_id),
  FOREIGN KEY (org_id, conversation_id) REFERENCES conversations (org_id, id) ON DELETE CASCADE
);
SELECT tenant_table('conversation_items');
GRANT INSERT, DELETE ON conversation_items TO millrace_app;
