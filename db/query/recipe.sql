-- Recipes: the texts that were uploaded and what was measured of them. Rows without a text were made by `up` or a placement by
-- hand: they are no recipes for people.

-- name: AddRecipe :one
-- No row when it is there already.
INSERT INTO recipes (id, name, spec, source, digest, created_by)
VALUES (@id, @name, @spec, @source, @digest, @created_by)
ON CONFLICT (name, digest) DO NOTHING
RETURNING id;

-- name: RecipeByDigest :one
SELECT id, retired_at FROM recipes WHERE name = @name AND digest = @digest;

-- name: UnretireRecipe :exec
UPDATE recipes SET retired_at = NULL WHERE id = @id;

-- name: ListRecipes :many
-- The newest of a name first. measured is the last measurement's cost.
SELECT r.id, r.name, r.source, r.created_by, r.created_at, r.retired_at,
       COALESCE(m.cost, 'null')::jsonb AS measured, COALESCE(m.hardware, '') AS hardware, COALESCE(m.created_at, 'epoch')::timestamptz AS measured_at,
       (SELECT count(*) FROM placement_policies p WHERE p.recipe_id = r.id) AS demands
FROM recipes r
LEFT JOIN LATERAL (SELECT cost, hardware, created_at FROM recipe_measurements WHERE recipe_id = r.id ORDER BY created_at DESC, id DESC LIMIT 1) m ON true
WHERE r.source <> '' AND (sqlc.narg(id)::uuid IS NULL OR r.id = sqlc.narg(id)::uuid)
ORDER BY r.name, r.created_at DESC, r.id DESC
LIMIT @most;

-- name: RetireRecipe :one
-- No row when a model still wants units of it, or there is none.
UPDATE recipes r SET retired_at = now()
WHERE r.id = @id AND r.source <> '' AND r.retired_at IS NULL AND NOT EXISTS (SELECT FROM placement_policies p WHERE p.recipe_id = r.id)
RETURNING r.name;

-- name: AddMeasurement :exec
INSERT INTO recipe_measurements (id, recipe_id, hardware, cost, report, created_by) VALUES (@id, @recipe_id, @hardware, @cost, @report, @created_by);

-- name: ListMeasurements :many
SELECT id, hardware, cost, report, created_by, created_at FROM recipe_measurements WHERE recipe_id = @recipe_id ORDER BY created_at DESC, id DESC LIMIT @most;
