-- +goose Up
-- What an organization keeps of responses and conversations has a limit, in bytes. A row says how much of it is counted, so that
-- deleting it gives back just that; every response, conversation and item counts 256 bytes more than it says.
ALTER TABLE responses ADD COLUMN bytes bigint NOT NULL DEFAULT 0;     -- its input, itself and its events
ALTER TABLE conversations ADD COLUMN bytes bigint NOT NULL DEFAULT 0; -- its metadata and its items

CREATE TABLE kept_totals (
  org_id uuid PRIMARY KEY REFERENCES orgs (org_id),
  bytes  bigint NOT NULL
);
SELECT tenant_table('kept_totals');
GRANT INSERT, UPDATE ON kept_totals TO millrace_app;

UPDATE responses r SET bytes = 256 + octet_length(r.input) + octet_length(r.response) +
  coalesce((SELECT sum(octet_length(e.events)) FROM response_events e WHERE e.org_id = r.org_id AND e.response_id = r.id), 0);
UPDATE conversations c SET bytes = 256 + octet_length(c.metadata) +
  coalesce((SELECT sum(256 + octet_length(i.item)) FROM conversation_items i WHERE i.org_id = c.org_id AND i.conversation_id = c.id), 0);
INSERT INTO kept_totals (org_id, bytes)
SELECT org_id, sum(bytes) FROM (SELECT org_id, bytes FROM responses UNION ALL SELECT org_id, bytes FROM conversations) kept GROUP BY org_id;
