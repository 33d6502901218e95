-- Hosts, their joining, what they should run and what they tell. Times come from the database's clock: hosts and hubs may
-- disagree about theirs.

-- name: InsertJoinToken :exec
INSERT INTO join_tokens (token_hash, host_name, created_by, expires_at)
VALUES ($1, $2, $3, now() + sqlc.arg(seconds)::bigint * interval '1 second');

-- name: LockJoinToken :one
SELECT host_name, (used_at IS NOT NULL)::boolean AS used, (expires_at <= now())::boolean AS expired FROM join_tokens WHERE token_hash = $1 FOR UPDATE;

-- name: UseJoinToken :exec
UPDATE join_tokens SET used_at = now(), host_id = sqlc.arg(host_id)::uuid WHERE token_hash = $1;

-- name: EnsureHost :one
-- The host of this name, made when there is none.
INSERT INTO hosts (id, name) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id;

-- name: HostJoins :exec
-- Identities from before joined_at end.
UPDATE hosts SET joined_at = sqlc.arg(joined_at) WHERE id = sqlc.arg(id);

-- name: GetHost :one
SELECT id, name, generation, joined_at, (removed_at IS NOT NULL)::boolean AS removed FROM hosts WHERE id = $1;

-- name: ListHosts :many
-- Every host that is not removed, for people. seen_ms is how long ago its agent was last heard of; -1 = never.
SELECT id, name, provider, region, data_url, agent_version, generation, observed, observed_generation, cordoned, joined_at,
       COALESCE(extract(epoch FROM now() - seen_at) * 1000, -1)::bigint AS seen_ms
FROM hosts WHERE removed_at IS NULL ORDER BY name;

-- name: ObserveHost :one
-- Keeps what an agent sees. Says whether gateways must look again: the data plane has moved.
UPDATE hosts h SET observed = sqlc.arg(observed), observed_generation = sqlc.arg(observed_generation),
       agent_version = sqlc.arg(agent_version), data_url = sqlc.arg(data_url), seen_at = now()
FROM (SELECT o.id, o.data_url FROM hosts o WHERE o.id = sqlc.arg(id) FOR UPDATE) before
WHERE h.id = before.id AND h.removed_at IS NULL
RETURNING (before.data_url <> h.data_url)::boolean AS moved;

-- name: SeeHosts :many
-- Linked hosts are alive. Gives what their hub must know of them: generations that moved, hosts that joined again or were removed.
UPDATE hosts SET seen_at = now() WHERE id = ANY(sqlc.arg(ids)::uuid[])
RETURNING id, generation, joined_at, (removed_at IS NOT NULL)::boolean AS removed;

-- name: HostGenerations :many
SELECT id, generation, joined_at, (removed_at IS NOT NULL)::boolean AS removed FROM hosts WHERE id = ANY(sqlc.arg(ids)::uuid[]);

-- name: HostUnits :many
-- What a host should run. A unit's engine spec is its own, else it comes from its release's recipe.
SELECT u.id, u.name, u.generation, u.engine, u.upstream_model, u.wanted, COALESCE(u.spec, r.spec -> 'engine', '{}')::jsonb AS spec
FROM units u
LEFT JOIN releases rel ON rel.id = u.release_id
LEFT JOIN recipes r ON r.id = rel.recipe_id
WHERE u.host_id = sqlc.arg(host_id)::uuid AND u.removed_at IS NULL
ORDER BY u.slot, u.id;

-- name: RemoveHost :execrows
-- The name becomes free for another host; the certificate is refused from now on.
UPDATE hosts SET removed_at = now(), name = name || '~' || id, data_url = '' WHERE id = $1 AND removed_at IS NULL;

-- name: RemoveHostUnits :exec
UPDATE units SET removed_at = now(), wanted = 'stopped', generation = generation + 1, name = name || '~' || id
WHERE host_id = sqlc.arg(host_id)::uuid AND removed_at IS NULL;

-- name: EnsureRecipe :one
INSERT INTO recipes (id, name, spec) VALUES ($1, $2, $3)
ON CONFLICT (name, digest) DO UPDATE SET name = excluded.name
RETURNING id;

-- name: ReleaseOf :one
SELECT id FROM releases WHERE model_id = $1 AND recipe_id = $2 AND state = 'serving' ORDER BY number DESC LIMIT 1;

-- name: InsertRelease :one
INSERT INTO releases (id, model_id, recipe_id, number, state)
VALUES ($1, $2, $3, (SELECT COALESCE(max(number), 0) + 1 FROM releases WHERE model_id = $2), 'serving')
RETURNING id;

-- name: PlaceUnit :one
-- Makes or changes a placed unit by its name. No row when it already is as wanted, or is another kind of unit.
INSERT INTO units (id, name, model_id, release_id, engine, host_id, slot, upstream_model)
VALUES (sqlc.arg(id), sqlc.arg(name), sqlc.arg(model_id), sqlc.arg(release_id)::uuid, sqlc.arg(engine), sqlc.arg(host_id)::uuid, sqlc.arg(slot), sqlc.arg(upstream_model))
ON CONFLICT (name) DO UPDATE SET model_id = excluded.model_id, release_id = excluded.release_id, engine = excluded.engine,
       host_id = excluded.host_id, slot = excluded.slot, upstream_model = excluded.upstream_model, wanted = 'serving',
       generation = units.generation + 1
WHERE units.host_id IS NOT NULL AND units.plan_id IS NULL
  AND (units.model_id, units.release_id, units.engine, units.host_id, units.slot, units.upstream_model, units.wanted)
      IS DISTINCT FROM (excluded.model_id, excluded.release_id, excluded.engine, excluded.host_id, excluded.slot, excluded.upstream_model, 'serving')
RETURNING id;

-- name: PlacedUnitByName :one
SELECT id, host_id, plan_id FROM units WHERE name = $1 AND removed_at IS NULL;

-- name: StoreAttempts :exec
-- An ended record is never changed; a snapshot of a running attempt is replaced. Times are unix milliseconds, 0 = none.
INSERT INTO attempt_journal (attempt_id, host_id, unit_id, kind, prompt, cached, generated, handed_over, ending, started_at, ended_at)
SELECT a.id, sqlc.arg(host_id)::uuid, a.unit_id, a.kind, a.prompt, a.cached, a.generated, a.handed_over, a.ending,
       to_timestamp(a.started_ms / 1000.0), CASE WHEN a.ended_ms > 0 THEN to_timestamp(a.ended_ms / 1000.0) END
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(units)::uuid[]) AS unit_id, unnest(sqlc.arg(kinds)::text[]) AS kind,
             unnest(sqlc.arg(prompts)::bigint[]) AS prompt, unnest(sqlc.arg(cacheds)::bigint[]) AS cached,
             unnest(sqlc.arg(generateds)::bigint[]) AS generated, unnest(sqlc.arg(handed_overs)::bigint[]) AS handed_over,
             unnest(sqlc.arg(endings)::text[]) AS ending, unnest(sqlc.arg(started_ms)::bigint[]) AS started_ms,
             unnest(sqlc.arg(ended_ms)::bigint[]) AS ended_ms) a
ON CONFLICT (attempt_id, host_id) DO UPDATE SET
       prompt = excluded.prompt, cached = excluded.cached, generated = excluded.generated, handed_over = excluded.handed_over,
       ending = excluded.ending, ended_at = excluded.ended_at
WHERE attempt_journal.ending = 'open';

-- name: UnitsOfHost :many
-- Which of these units are the host's, or have been: ones that were removed or have moved away since included.
SELECT unit_id AS id FROM unit_places WHERE unit_id = ANY(sqlc.arg(ids)::uuid[]) AND host_id = sqlc.arg(host_id)::uuid;

-- name: IsHostUnit :one
-- Also of units that were removed a moment ago: their host still tells that they stop. A head, if there is one, must be of the
-- same replica.
SELECT EXISTS (
  SELECT FROM units u WHERE u.id = sqlc.arg(id) AND u.host_id = sqlc.arg(host_id)::uuid
  AND (sqlc.arg(head)::uuid IN (u.id, '00000000-0000-0000-0000-000000000000') OR EXISTS (
    SELECT FROM units h WHERE h.id = sqlc.arg(head)::uuid AND h.part_of = u.part_of AND h.role = u.role AND h.replica = u.replica))
)::boolean AS own;
