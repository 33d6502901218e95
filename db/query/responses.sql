-- Responses and conversations that customers asked to be kept. Every query of a request names the organization and the project.

-- name: ResponseInsert :exec
INSERT INTO responses (org_id, id, project_id, created_at, expires_at, status, previous_id, conversation_id, input, response, background, streamed, owner, alive_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

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

-- name: ResponseDelete :execrows
DELETE FROM responses WHERE org_id = $1 AND project_id = $2 AND id = $3;

-- name: ResponseUpdate :execrows
-- Only what has not ended changes: whoever ended it first has the last word.
UPDATE responses SET status = sqlc.arg(status), response = sqlc.arg(response), alive_at = sqlc.arg(alive_at)::timestamptz
WHERE org_id = $1 AND id = $2 AND status IN ('queued', 'in_progress');

-- name: ResponsesAlive :many
-- What a process still makes. What it misses here was cancelled, deleted or given up for dead.
UPDATE responses SET alive_at = sqlc.arg(now)::timestamptz WHERE owner = sqlc.arg(owner) AND status IN ('queued', 'in_progress') RETURNING id;

-- name: ResponsesOrphaned :many
SELECT org_id, id, response, streamed FROM responses
WHERE status IN ('queued', 'in_progress') AND alive_at < sqlc.arg(silent_since)::timestamptz ORDER BY alive_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED;

-- name: ResponsesExpire :execrows
DELETE FROM responses WHERE (org_id, id) IN
  (SELECT r.org_id, r.id FROM responses r WHERE r.expires_at <= sqlc.arg(now)::timestamptz ORDER BY r.expires_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED);

-- name: ResponseEventsAppend :exec
INSERT INTO response_events (org_id, response_id, first_seq, events) VALUES ($1, $2, $3, $4);

-- name: ResponseEventsFrom :many
-- Runs from the one that holds an event on.
SELECT first_seq, events FROM response_events e
WHERE e.org_id = $1 AND e.response_id = $2 AND e.first_seq >= coalesce(
  (SELECT max(f.first_seq) FROM response_events f WHERE f.org_id = $1 AND f.response_id = $2 AND f.first_seq <= sqlc.arg(from_seq)::bigint), 0)
ORDER BY e.first_seq LIMIT sqlc.arg(max_rows);

-- ---- conversations -------------------------------------------------------------------------------------------------
-- name: ConversationInsert :exec
INSERT INTO conversations (org_id, id, project_id, created_at, expires_at, metadata) VALUES ($1, $2, $3, $4, $5, $6);

-- name: ConversationByID :one
SELECT id, created_at, metadata FROM conversations WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz;

-- name: ConversationUpdate :execrows
UPDATE conversations SET metadata = sqlc.arg(metadata), expires_at = sqlc.arg(expires_at)
WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz;

-- name: ConversationExtend :one
-- Takes positions for more items; the row stays locked until they are written, so that turns never mix.
UPDATE conversations SET last_item = last_item + sqlc.arg(items)::bigint, expires_at = sqlc.arg(expires_at)
WHERE org_id = $1 AND project_id = $2 AND id = $3 AND expires_at > sqlc.arg(now)::timestamptz RETURNING last_item;

-- name: ConversationDelete :execrows
DELETE FROM conversations WHERE org_id = $1 AND project_id = $2 AND id = $3;

-- name: ConversationsExpire :execrows
DELETE FROM conversations WHERE (org_id, id) IN
  (SELECT c.org_id, c.id FROM conversations c WHERE c.expires_at <= sqlc.arg(now)::timestamptz ORDER BY c.expires_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED);

-- name: ConversationItemsInsert :exec
INSERT INTO conversation_items (org_id, conversation_id, position, item_id, item)
SELECT sqlc.arg(org_id), sqlc.arg(conversation_id), unnest(sqlc.arg(positions)::bigint[]), unnest(sqlc.arg(item_ids)::text[]), unnest(sqlc.arg(items)::text[]);

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

-- name: ConversationItemDelete :execrows
DELETE FROM conversation_items WHERE org_id = $1 AND conversation_id = $2 AND item_id = $3;
