-- Responses and conversations that customers asked to be kept. Every query of a request names the organization and the project.

-- name: ResponseInsert :exec
INSERT INTO responses (org_id, id, project_id, created_at, expires_at, status, previous_id, conversation_id, input, response, background, streamed, owner, bytes,
  alive_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, CASE WHEN $11::boolean THEN now() END);

-- name: ResponseByID :one
SELECT id, created_at, status, previous_id, conversation_id, input, response, background, streamed FROM responses
WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz;

-- name: ResponseChain :many
-- A response and those before it, oldest first; no more of them once they have more than so many bytes.
WITH RECURSIVE chain AS (
  SELECT r.id, r.previous_id, r.conversation_id, r.status, r.input, r.response, 1 AS depth,
    (octet_length(r.input) + octet_length(r.response))::bigint AS bytes FROM responses r
  WHERE r.org_id = sqlc.arg(org_id) AND r.project_id = sqlc.arg(project_id) AND r.id = sqlc.arg(id) AND r.expires_at > sqlc.arg(now)::timestamptz
  UNION ALL
  SELECT r.id, r.previous_id, r.conversation_id, r.status, r.input, r.response, c.depth + 1,
    c.bytes + octet_length(r.input) + octet_length(r.response) FROM chain c JOIN responses r ON r.id = c.previous_id
  WHERE r.org_id = sqlc.arg(org_id) AND r.project_id = sqlc.arg(project_id) AND r.expires_at > sqlc.arg(now)::timestamptz AND c.depth < sqlc.arg(max_depth)::int AND c.bytes <= sqlc.arg(max_bytes)::bigint
)
SELECT id, previous_id, status, input, response, bytes FROM chain ORDER BY depth DESC;

-- name: ResponseDelete :one
DELETE FROM responses WHERE org_id = $1 AND project_id = $2 AND id = $3 RETURNING bytes;

-- name: ResponseUpdate :one
-- Only what has not ended changes: whoever ended it first has the last word. By how many bytes it grew is told.
WITH old AS (
  SELECT octet_length(o.response) AS length FROM responses o WHERE o.org_id = $1 AND o.id = $2 AND o.status IN ('queued', 'in_progress') FOR UPDATE
)
UPDATE responses r SET status = sqlc.arg(status), response = sqlc.arg(response), alive_at = now(), bytes = r.bytes + octet_length(sqlc.arg(response)) - old.length
FROM old WHERE r.org_id = $1 AND r.id = $2 AND r.status IN ('queued', 'in_progress') RETURNING (octet_length(r.response) - old.length)::bigint AS more;

-- name: ResponsesAlive :many
-- What a process still makes, of what it names: what it began and could not end is given up for dead like that of others. What it
-- misses here was cancelled, deleted or given up for dead. The database's clock counts: those of processes differ.
UPDATE responses SET alive_at = now() WHERE owner = sqlc.arg(owner) AND id = ANY(sqlc.arg(running)::uuid[]) AND status IN ('queued', 'in_progress') RETURNING id;

-- name: ResponsesOrphaned :many
SELECT org_id, id, response, streamed FROM responses
WHERE status IN ('queued', 'in_progress') AND alive_at < now() - sqlc.arg(silent_ms)::bigint * interval '1 millisecond'
ORDER BY alive_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED;

-- name: ResponsesExpire :many
DELETE FROM responses WHERE (org_id, id) IN
  (SELECT r.org_id, r.id FROM responses r WHERE r.expires_at <= sqlc.arg(now)::timestamptz ORDER BY r.expires_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED)
RETURNING org_id, bytes;

-- name: ResponseEventsAppend :one
-- A run that is there already is left as it is: the reply to the commit that wrote it was lost. How many bytes were written is told.
WITH run AS (
  INSERT INTO response_events (org_id, response_id, first_seq, events) VALUES ($1, $2, $3, $4)
  ON CONFLICT (org_id, response_id, first_seq) DO NOTHING RETURNING octet_length(events)::bigint AS length
), counted AS (
  UPDATE responses r SET bytes = r.bytes + run.length FROM run WHERE r.org_id = $1 AND r.id = $2
)
SELECT coalesce(sum(run.length), 0)::bigint AS more FROM run;

-- name: ResponseEventsFrom :many
-- Runs from the one that holds an event on.
SELECT first_seq, events FROM response_events e
WHERE e.org_id = $1 AND e.response_id = $2 AND e.first_seq >= coalesce(
  (SELECT max(f.first_seq) FROM response_events f WHERE f.org_id = $1 AND f.response_id = $2 AND f.first_seq <= sqlc.arg(from_seq)::bigint), 0)
ORDER BY e.first_seq LIMIT sqlc.arg(max_rows);

-- ---- conversations -------------------------------------------------------------------------------------------------
-- name: ConversationInsert :exec
INSERT INTO conversations (org_id, id, project_id, created_at, expires_at, metadata, bytes) VALUES ($1, $2, $3, $4, $5, $6, $7);

-- name: ConversationByID :one
SELECT id, created_at, metadata FROM conversations WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz;

-- name: ConversationUpdate :execrows
UPDATE conversations SET metadata = sqlc.arg(metadata), expires_at = sqlc.arg(expires_at)
WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz;

-- name: ConversationExtend :one
-- Takes positions for more items; the row stays locked until they are written, so that turns never mix.
UPDATE conversations SET last_item = last_item + sqlc.arg(items)::bigint, expires_at = sqlc.arg(expires_at)
WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz RETURNING last_item;

-- name: ConversationDelete :one
DELETE FROM conversations WHERE org_id = $1 AND project_id = $2 AND id = $3 RETURNING bytes;

-- name: ConversationsExpire :many
DELETE FROM conversations WHERE (org_id, id) IN
  (SELECT c.org_id, c.id FROM conversations c WHERE c.expires_at <= sqlc.arg(now)::timestamptz ORDER BY c.expires_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED)
RETURNING org_id, bytes;

-- name: ConversationItemsInsert :one
-- An item that is there stays as it is. How many bytes were added is told.
WITH added AS (
  INSERT INTO conversation_items (org_id, conversation_id, position, item_id, item)
  SELECT sqlc.arg(org_id), sqlc.arg(conversation_id), unnest(sqlc.arg(positions)::bigint[]), unnest(sqlc.arg(item_ids)::text[]), unnest(sqlc.arg(items)::text[])
  ON CONFLICT (org_id, conversation_id, item_id) DO NOTHING RETURNING octet_length(item) + sqlc.arg(row_bytes)::bigint AS length
), counted AS (
  UPDATE conversations c SET bytes = c.bytes + (SELECT coalesce(sum(a.length), 0) FROM added a) WHERE c.org_id = sqlc.arg(org_id) AND c.id = sqlc.arg(conversation_id)
)
SELECT coalesce(sum(added.length), 0)::bigint AS more FROM added;

-- name: ConversationItems :many
-- No more of them once they have more than so many bytes.
SELECT item, bytes FROM (
  SELECT position, item, sum(octet_length(item)) OVER (ORDER BY position)::bigint AS bytes FROM conversation_items WHERE org_id = $1 AND conversation_id = $2
) counted WHERE bytes - octet_length(item) <= sqlc.arg(max_bytes)::bigint ORDER BY position LIMIT sqlc.arg(max_rows);

-- name: ConversationItemPosition :one
SELECT position, item FROM conversation_items WHERE org_id = $1 AND conversation_id = $2 AND item_id = $3;

-- name: ConversationItemsAfter :many
SELECT position, item FROM conversation_items WHERE org_id = $1 AND conversation_id = $2 AND position > sqlc.arg(after)::bigint
ORDER BY position LIMIT sqlc.arg(max_rows);

-- name: ConversationItemsBefore :many
SELECT position, item FROM conversation_items WHERE org_id = $1 AND conversation_id = $2 AND position < sqlc.arg(before)::bigint
ORDER BY position DESC LIMIT sqlc.arg(max_rows);

-- name: ConversationItemDelete :one
WITH gone AS (
  DELETE FROM conversation_items i WHERE i.org_id = sqlc.arg(org_id) AND i.conversation_id = sqlc.arg(conversation_id) AND i.item_id = sqlc.arg(item_id)
  RETURNING octet_length(i.item) + sqlc.arg(row_bytes)::bigint AS length
)
UPDATE conversations c SET bytes = c.bytes - gone.length FROM gone WHERE c.org_id = sqlc.arg(org_id) AND c.id = sqlc.arg(conversation_id)
RETURNING gone.length::bigint AS bytes;

-- ---- what is kept ----------------------------------------------------------------------------------------------------
-- name: KeptAdd :one
-- Nothing is changed where it would go above the limit. It comes last in a transaction: who waits for this row must hold nothing
-- that who has it waits for.
INSERT INTO kept_totals AS t (org_id, bytes) VALUES (sqlc.arg(org_id), sqlc.arg(more))
ON CONFLICT (org_id) DO UPDATE SET bytes = t.bytes + excluded.bytes WHERE t.bytes + excluded.bytes <= sqlc.arg(most)::bigint RETURNING bytes;

-- name: KeptBytes :one
SELECT bytes FROM kept_totals WHERE org_id = $1;
