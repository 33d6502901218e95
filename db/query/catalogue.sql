-- Models, and the units that serve them. Gateways read all of it into memory and look again on a notice.

-- name: CatalogueModels :many
SELECT * FROM models WHERE retired_at IS NULL ORDER BY name;

-- name: CatalogueUnits :many
-- Units that may get requests: attached ones, and placed ones whose host says where its agent is. A unit of several engines
-- comes as its parent and one row for each engine: of hosts that share one, the first, which alone answers.
SELECT u.id, u.name, u.model_id, u.engine, u.host_id, u.upstream_model, u.base_url, u.sealed_key, u.created_at,
       u.part_of, u.parts, u.role, u.replica, COALESCE(u.spec, '{}')::jsonb AS spec, COALESCE(r.spec -> 'transfer', '{}')::jsonb AS transfer,
       COALESCE(h.data_url, '') AS data_url, COALESCE(h.joined_at, 'epoch')::timestamptz AS joined_at
FROM units u
LEFT JOIN units p ON p.id = u.part_of
LEFT JOIN hosts h ON h.id = u.host_id
LEFT JOIN releases rel ON rel.id = u.release_id AND u.parts > 0
LEFT JOIN recipes r ON r.id = rel.recipe_id
WHERE u.removed_at IS NULL AND u.shard = 0 AND (u.host_id IS NULL OR h.removed_at IS NULL AND h.data_url <> '')
  AND CASE WHEN u.parts > 0 THEN u.state = 'serving'
           WHEN p.id IS NOT NULL THEN u.wanted = 'serving' AND p.removed_at IS NULL AND p.state = 'serving'
           ELSE u.wanted = 'serving' AND u.state = 'serving' END
ORDER BY u.id;

-- name: ListUnits :many
-- Every unit that is not gone, for people. Engines that are parts of a unit are not units.
SELECT u.id, u.name, u.model_id, u.engine, u.host_id, u.upstream_model, u.base_url, u.wanted, u.created_at, u.parts, u.state, u.state_text,
       (u.plan_id IS NOT NULL)::boolean AS planned,
       (u.sealed_key IS NOT NULL)::boolean AS has_key, m.name AS model_name, COALESCE(h.name, '') AS host_name
FROM units u
JOIN models m ON m.id = u.model_id
LEFT JOIN hosts h ON h.id = u.host_id
WHERE u.removed_at IS NULL AND u.part_of IS NULL
ORDER BY m.name, u.name;

-- name: InsertModel :one
INSERT INTO models (id, name, display_name, context_tokens, max_output_tokens, default_output, free, engine_extras, created_at)
VALUES (@id, @name, @display_name, @context_tokens, @max_output_tokens, @default_output, @free, sqlc.narg(engine_extras)::text[], @created_at)
RETURNING *;

-- name: SetEngineExtras :one
-- Gives what was set before.
UPDATE models m SET engine_extras = sqlc.narg(engine_extras)::text[]
FROM (SELECT o.id, o.engine_extras FROM models o WHERE o.id = @id AND o.retired_at IS NULL FOR UPDATE) old
WHERE m.id = old.id
RETURNING old.engine_extras AS before;

-- name: ModelByName :one
SELECT * FROM models WHERE name = $1 AND retired_at IS NULL;

-- name: UnitByName :one
SELECT * FROM units WHERE name = $1 AND removed_at IS NULL FOR UPDATE;

-- name: UnitByID :one
SELECT * FROM units WHERE id = $1 AND removed_at IS NULL FOR UPDATE;

-- name: InsertAttachedUnit :one
INSERT INTO units (id, name, model_id, engine, upstream_model, base_url, sealed_key, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING *;

-- name: UpdateAttachedUnit :one
UPDATE units SET model_id = $2, engine = $3, upstream_model = $4, base_url = $5, sealed_key = $6,
                 wanted = 'serving', generation = generation + 1
WHERE id = $1
RETURNING *;

-- name: RemoveUnit :exec
-- The name becomes free for another unit.
UPDATE units SET removed_at = $2, wanted = 'stopped', generation = generation + 1, name = name || '~' || id
WHERE id = $1;
