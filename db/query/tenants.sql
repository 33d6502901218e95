-- Organizations, projects, people, sign-in, API keys, audit. Times come from the caller's clock, so that tests can hold
-- it. Every query on a tenant table names org_id even where row-level security would do.

-- name: InsertOrg :one
INSERT INTO orgs (org_id, name, time_zone, failure_policy, price_book, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING *;

-- name: GetOrg :one
SELECT * FROM orgs WHERE org_id = $1;

-- name: LockOrg :one
SELECT * FROM orgs WHERE org_id = $1 FOR UPDATE;

-- name: ListOrgs :many
-- Newest first. before = the nil uuid starts at the newest; an empty search finds all.
SELECT * FROM orgs
WHERE (sqlc.arg(before)::uuid = '00000000-0000-0000-0000-000000000000' OR org_id < sqlc.arg(before))
  AND (sqlc.arg(search)::text = '' OR position(lower(sqlc.arg(search)) IN lower(name)) > 0)
ORDER BY org_id DESC
LIMIT sqlc.arg(max_rows);

-- name: UpdateOrg :one
UPDATE orgs SET name = $2, time_zone = $3, failure_policy = $4, price_book = $5 WHERE org_id = $1 RETURNING *;

-- name: SetOrgSuspended :one
UPDATE orgs SET suspended_at = $2 WHERE org_id = $1 RETURNING *;

-- name: ClaimIdempotencyKey :one
-- Remembers what a repeated request made. Gives the first request's row, whoever inserted it.
INSERT INTO idempotency_keys (key, request_hash, resource, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (key) DO UPDATE SET key = excluded.key
RETURNING *;

-- name: InsertProject :one
INSERT INTO projects (org_id, id, name, created_at) VALUES ($1, $2, $3, $4) RETURNING *;

-- name: GetProject :one
SELECT * FROM projects WHERE org_id = $1 AND id = $2;

-- name: ListProjects :many
SELECT * FROM projects WHERE org_id = $1 ORDER BY id;

-- name: LockProjects :many
SELECT * FROM projects WHERE org_id = $1 ORDER BY id FOR UPDATE;

-- name: CountProjects :one
SELECT count(*) FROM projects WHERE org_id = $1 AND archived_at IS NULL;

-- name: RenameProject :one
UPDATE projects SET name = $3 WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: ArchiveProject :one
UPDATE projects SET archived_at = $3 WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: EnsureUser :one
-- The user of this address; made when there is none.
INSERT INTO users (id, email, name, created_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (email) DO UPDATE SET email = excluded.email
RETURNING *;

-- name: GetUser :one
SELECT * FROM users WHERE id = $1;

-- name: GetUserByEmail :one
SELECT * FROM users WHERE email = $1;

-- name: SetUserOperator :one
UPDATE users SET is_operator = $2 WHERE id = $1 RETURNING *;

-- name: SetUserDisabled :one
UPDATE users SET disabled_at = $2 WHERE id = $1 RETURNING *;

-- name: InsertMember :exec
INSERT INTO members (org_id, user_id, role, created_at) VALUES ($1, $2, $3, $4);

-- name: GetMember :one
SELECT * FROM members WHERE org_id = $1 AND user_id = $2;

-- name: LockOwners :many
-- In one order, so that two demotions of the last two owners meet instead of passing.
SELECT user_id FROM members WHERE org_id = $1 AND role = 'owner' ORDER BY user_id FOR UPDATE;

-- name: SetMemberRole :exec
UPDATE members SET role = $3 WHERE org_id = $1 AND user_id = $2;

-- name: DeleteMember :exec
DELETE FROM members WHERE org_id = $1 AND user_id = $2;

-- name: ListMembers :many
SELECT m.user_id, u.email, u.name, m.role, m.created_at, u.disabled_at
FROM members m JOIN users u ON u.id = m.user_id
WHERE m.org_id = $1 ORDER BY m.created_at, m.user_id;

-- name: ListMemberships :many
SELECT m.org_id, o.name AS org_name, o.time_zone, m.role, o.suspended_at
FROM members m JOIN orgs o ON o.org_id = m.org_id
WHERE m.user_id = $1 ORDER BY o.name, m.org_id;

-- name: InsertLoginLink :exec
INSERT INTO login_links (token_hash, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4);

-- name: CountLoginLinksSince :one
SELECT count(*) FROM login_links WHERE user_id = $1 AND created_at > $2;

-- name: UseLoginLink :one
-- Exactly once: the row lock makes the second exchange see used_at.
UPDATE login_links l SET used_at = sqlc.arg(now)::timestamptz
FROM users u
WHERE l.token_hash = sqlc.arg(token_hash) AND l.used_at IS NULL AND l.expires_at > sqlc.arg(now)::timestamptz
  AND u.id = l.user_id AND u.disabled_at IS NULL
RETURNING u.*;

-- name: LoginLinks :many
SELECT * FROM login_links WHERE token_hash = ANY (sqlc.arg(hashes)::bytea[]);

-- name: DeleteOldLoginLinks :exec
DELETE FROM login_links WHERE expires_at < $1;

-- name: InsertSession :exec
INSERT INTO sessions (token_hash, user_id, created_at, seen_at, expires_at) VALUES ($1, $2, $3, $3, $4);

-- name: GetSession :one
SELECT sqlc.embed(s), sqlc.embed(u) FROM sessions s JOIN users u ON u.id = s.user_id
WHERE s.token_hash = $1 AND s.ended_at IS NULL AND s.expires_at > sqlc.arg(now)::timestamptz AND u.disabled_at IS NULL;

-- name: TouchSession :exec
UPDATE sessions SET seen_at = $2, expires_at = $3 WHERE token_hash = $1 AND ended_at IS NULL;

-- name: EndSession :one
UPDATE sessions SET ended_at = $3 WHERE token_hash = $1 AND user_id = $2 AND ended_at IS NULL RETURNING *;

-- name: EndSessionsOfUser :exec
UPDATE sessions SET ended_at = $2 WHERE user_id = $1 AND ended_at IS NULL;

-- name: ListSessions :many
SELECT * FROM sessions WHERE user_id = $1 AND ended_at IS NULL AND expires_at > sqlc.arg(now)::timestamptz ORDER BY seen_at DESC;

-- name: DeleteOldSessions :exec
DELETE FROM sessions WHERE expires_at < $1;

-- name: InsertOutbox :exec
INSERT INTO outbox (id, recipient, subject, body, created_at) VALUES ($1, $2, $3, $4, $5);

-- name: ListOutbox :many
SELECT * FROM outbox
WHERE sqlc.arg(before)::uuid = '00000000-0000-0000-0000-000000000000' OR id < sqlc.arg(before)
ORDER BY id DESC LIMIT sqlc.arg(max_rows);

-- name: OtherOperators :many
SELECT email FROM users WHERE is_operator AND id <> sqlc.arg(viewer)::uuid;

-- name: ClaimMail :many
-- Takes mail that is due; no other process takes it before until.
UPDATE outbox o SET attempts = o.attempts + 1, next_at = sqlc.arg(until)::timestamptz
FROM (SELECT u.id FROM outbox u WHERE u.sent_at IS NULL AND u.next_at <= sqlc.arg(now)::timestamptz AND u.created_at > sqlc.arg(not_before)::timestamptz AND u.attempts < sqlc.arg(max_attempts)::int
      ORDER BY u.next_at LIMIT sqlc.arg(max_rows) FOR UPDATE OF u SKIP LOCKED) due
WHERE o.id = due.id RETURNING o.*;

-- name: MailSent :exec
UPDATE outbox SET sent_at = $2, problem = '' WHERE id = $1;

-- name: MailFailed :exec
UPDATE outbox SET next_at = $2, problem = $3 WHERE id = $1 AND sent_at IS NULL;

-- name: DeleteOldOutbox :exec
DELETE FROM outbox WHERE created_at < $1;

-- name: InsertControlToken :exec
INSERT INTO control_tokens (token_hash, name, created_at, created_by) VALUES ($1, $2, $3, $4);

-- name: ControlTokenHolder :one
-- Who is behind the token that had this name last: it may have been revoked since its bearer was asked.
SELECT created_by FROM control_tokens WHERE name = $1 ORDER BY created_at DESC LIMIT 1;

-- name: AdoptControlToken :execrows
-- No row: there is no such live token, or somebody is behind it.
UPDATE control_tokens SET created_by = sqlc.arg(holder)::text WHERE name = sqlc.arg(name) AND revoked_at IS NULL AND created_by = '';

-- name: GetControlToken :one
SELECT * FROM control_tokens WHERE token_hash = $1;

-- name: RevokeControlToken :one
UPDATE control_tokens SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL RETURNING *;

-- name: ListControlTokens :many
SELECT name, created_at, revoked_at, created_by FROM control_tokens ORDER BY created_at DESC, name;

-- name: InsertKey :one
INSERT INTO api_keys (org_id, id, project_id, name, hash, prefix, last4, created_by, created_at, expires_at, hidden, rpm, tpm, concurrency)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
RETURNING *;

-- name: GetKey :one
SELECT * FROM api_keys WHERE org_id = $1 AND id = $2;

-- name: LockKey :one
SELECT * FROM api_keys WHERE org_id = $1 AND id = $2 FOR NO KEY UPDATE;

-- name: ListKeys :many
-- Newest first, revoked and expired ones too: their usage is still shown. Hidden ones never.
SELECT * FROM api_keys
WHERE org_id = sqlc.arg(org_id) AND NOT hidden
  AND (sqlc.arg(before)::uuid = '00000000-0000-0000-0000-000000000000' OR id < sqlc.arg(before))
  AND (sqlc.arg(project_id)::uuid = '00000000-0000-0000-0000-000000000000' OR project_id = sqlc.arg(project_id))
ORDER BY id DESC
LIMIT sqlc.arg(max_rows);

-- name: CountLiveKeys :one
SELECT count(*) FROM api_keys
WHERE org_id = sqlc.arg(org_id) AND hidden = sqlc.arg(hidden) AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > sqlc.arg(now)::timestamptz);

-- name: SetKeyRevoked :one
UPDATE api_keys SET revoked_at = $3 WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: RevokeHiddenKeys :many
-- Ends the hidden keys that a person made, in one organization or (org_id nil) in all.
UPDATE api_keys SET revoked_at = sqlc.arg(now)::timestamptz
WHERE created_by = sqlc.arg(user_id)::uuid AND hidden AND revoked_at IS NULL AND expires_at > sqlc.arg(now)::timestamptz
  AND (sqlc.arg(org_id)::uuid = '00000000-0000-0000-0000-000000000000' OR org_id = sqlc.arg(org_id)::uuid)
RETURNING hash;

-- name: UpdateKey :one
UPDATE api_keys SET name = $3, expires_at = $4, rpm = $5, tpm = $6, concurrency = $7 WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: LookupKeys :many
-- What a gateway needs to know about keys it was shown.
SELECT k.hash, k.org_id, k.project_id, k.id, k.expires_at, k.revoked_at, k.last_used_at, k.rpm, k.tpm, k.concurrency,
       p.archived_at, o.time_zone, o.failure_policy, o.price_book, o.suspended_at
FROM api_keys k
JOIN projects p ON p.org_id = k.org_id AND p.id = k.project_id
JOIN orgs o ON o.org_id = k.org_id
WHERE k.hash = ANY (sqlc.arg(hashes)::bytea[]);

-- name: TouchKeys :exec
-- Several gateways report the same key: the newest use wins, and a key is written at most once per gap.
UPDATE api_keys k SET last_used_at = u.used_at
FROM (SELECT unnest(sqlc.arg(orgs)::uuid[]) AS org_id, unnest(sqlc.arg(keys)::uuid[]) AS id,
             unnest(sqlc.arg(used)::timestamptz[]) AS used_at) u
WHERE k.org_id = u.org_id AND k.id = u.id
  AND (k.last_used_at IS NULL OR k.last_used_at <= u.used_at - sqlc.arg(min_gap_seconds)::bigint * interval '1 second');

-- name: InsertAudit :exec
INSERT INTO audit_log (org_id, id, at, actor, acting_as, action, target, before, after, request_id, ip)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: LastAudit :one
SELECT * FROM audit_log WHERE org_id = $1 AND action = $2 ORDER BY id DESC LIMIT 1;

-- name: ListAudit :many
SELECT * FROM audit_log
WHERE org_id = sqlc.arg(org_id)
  AND (sqlc.arg(before)::uuid = '00000000-0000-0000-0000-000000000000' OR id < sqlc.arg(before))
ORDER BY id DESC
LIMIT sqlc.arg(max_rows);
