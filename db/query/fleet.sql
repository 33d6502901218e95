-- Demands, plans and the units that they put on hosts. Times come from the database's clock.

-- name: TakeLease :one
-- Takes a lease that nobody holds, or keeps one's own. No row when another holds it.
INSERT INTO control_leases (name, holder, term, expires_at)
VALUES (sqlc.arg(name), sqlc.arg(holder), 1, clock_timestamp() + sqlc.arg(ms)::bigint * interval '1 millisecond')
ON CONFLICT (name) DO UPDATE SET
       term = control_leases.term + (CASE WHEN control_leases.holder = excluded.holder AND control_leases.expires_at > clock_timestamp() THEN 0 ELSE 1 END),
       since = CASE WHEN control_leases.holder = excluded.holder AND control_leases.expires_at > clock_timestamp() THEN control_leases.since ELSE clock_timestamp() END,
       holder = excluded.holder, expires_at = excluded.expires_at
WHERE control_leases.holder = excluded.holder OR control_leases.expires_at <= clock_timestamp()
RETURNING term, (extract(epoch FROM clock_timestamp() - since) * 1000)::bigint AS held_ms;

-- name: HoldLease :one
-- The proof that a term still holds; it goes first into the transaction that writes, and holds the term until its end. No row when it
-- does not.
SELECT term FROM control_leases WHERE name = sqlc.arg(name) AND holder = sqlc.arg(holder) AND term = sqlc.arg(term) AND expires_at > clock_timestamp() FOR SHARE;

-- name: DropLease :exec
UPDATE control_leases SET expires_at = clock_timestamp() WHERE name = sqlc.arg(name) AND holder = sqlc.arg(holder) AND term = sqlc.arg(term);

-- name: GetLease :one
SELECT holder, term, (expires_at > clock_timestamp())::boolean AS held, since FROM control_leases WHERE name = sqlc.arg(name);

-- name: HasFleet :one
-- Whether there is a plan, or anything left of one.
SELECT (EXISTS (SELECT FROM plans WHERE state = 'committed') OR EXISTS (SELECT FROM units WHERE plan_id IS NOT NULL AND removed_at IS NULL))::boolean AS there;

-- name: FleetSettings :one
SELECT auto_repair, spares, spares_from, max_lost, updated_by, updated_at FROM fleet_settings;

-- name: SetFleetSettings :exec
UPDATE fleet_settings SET auto_repair = sqlc.arg(auto_repair), spares = sqlc.arg(spares), spares_from = sqlc.arg(spares_from),
       max_lost = sqlc.arg(max_lost), updated_by = sqlc.arg(updated_by), updated_at = now();

-- name: FleetHosts :many
-- Every host as the fleet sees it. seen_ms is how long ago its agent was last heard of; -1 = never. away: a maintenance window is
-- open, or begins within the lead.
SELECT h.id, h.name, h.provider, h.region, h.domain, h.capacity_kind, h.gpu_hour_nano, h.network, h.failure_domain, h.cordoned, h.draining,
       h.cordon_reason, h.cordoned_by, h.cordoned_at, h.agent_version, h.joined_at, h.generation, h.observed, h.observed_generation,
       COALESCE(extract(epoch FROM now() - h.seen_at) * 1000, -1)::bigint AS seen_ms,
       EXISTS (SELECT FROM host_maintenance m WHERE m.host_id = h.id AND m.cancelled_at IS NULL AND m.ends_at > now()
                  AND m.starts_at <= now() + sqlc.arg(lead_seconds)::bigint * interval '1 second')::boolean AS away
FROM hosts h WHERE h.removed_at IS NULL ORDER BY h.name;

-- name: FleetUnits :many
-- Every placed row, of plans and others. state_ms is how long it is in its state.
SELECT u.id, u.name, u.model_id, u.release_id, u.engine, u.host_id, u.slot, u.upstream_model, u.wanted, u.generation, u.part_of, u.parts, u.role,
       u.replica, u.shard, u.expert, u.gpus, u.plan_id, u.state, u.state_text, u.tries, u.state_at, u.created_at,
       (extract(epoch FROM now() - u.state_at) * 1000)::bigint AS state_ms, COALESCE(u.spec, r.spec -> 'engine', '{}')::jsonb AS spec,
       m.name AS model_name
FROM units u
JOIN models m ON m.id = u.model_id
LEFT JOIN releases rel ON rel.id = u.release_id
LEFT JOIN recipes r ON r.id = rel.recipe_id
WHERE u.removed_at IS NULL AND (u.host_id IS NOT NULL OR u.parts > 0)
ORDER BY u.part_of NULLS FIRST, u.role, u.replica, u.shard, u.id;

-- name: InsertFleetUnit :execrows
-- A unit that was removed and is wanted again comes back under its id.
INSERT INTO units (id, name, model_id, release_id, engine, host_id, slot, upstream_model, wanted, part_of, parts, role, replica, shard, expert, gpus, plan_id, state, state_text)
VALUES (sqlc.arg(id), sqlc.arg(name), sqlc.arg(model_id), sqlc.arg(release_id)::uuid, sqlc.arg(engine), sqlc.narg(host_id)::uuid, sqlc.arg(slot),
        sqlc.arg(upstream_model), 'stopped', sqlc.narg(part_of)::uuid, sqlc.arg(parts), sqlc.arg(role), sqlc.arg(replica), sqlc.arg(shard),
        sqlc.arg(expert), sqlc.arg(gpus)::int[], sqlc.arg(plan_id)::uuid, 'planned', sqlc.arg(state_text))
ON CONFLICT (id) DO UPDATE SET name = excluded.name, model_id = excluded.model_id, release_id = excluded.release_id, engine = excluded.engine,
       host_id = excluded.host_id, slot = excluded.slot, upstream_model = excluded.upstream_model, wanted = 'stopped', parts = excluded.parts, role = excluded.role,
       expert = excluded.expert, gpus = excluded.gpus, spec = NULL, plan_id = excluded.plan_id, state = 'planned', state_text = excluded.state_text, state_at = now(), tries = 0,
       generation = units.generation + 1, removed_at = NULL
WHERE units.removed_at IS NOT NULL AND units.plan_id IS NOT NULL;

-- name: MoveFleetUnit :execrows
-- One state to the next; nothing when the row is not as it was read. The agent is told of another wish by the generation.
UPDATE units SET state = sqlc.arg(state), state_text = sqlc.arg(state_text), tries = sqlc.arg(tries), wanted = sqlc.arg(wanted),
       spec = COALESCE(sqlc.narg(spec)::jsonb, spec), state_at = CASE WHEN state = sqlc.arg(state) THEN state_at ELSE now() END,
       generation = generation + (CASE WHEN wanted <> sqlc.arg(wanted) OR spec IS DISTINCT FROM COALESCE(sqlc.narg(spec)::jsonb, spec) THEN 1 ELSE 0 END)
WHERE id = sqlc.arg(id) AND state = sqlc.arg(old_state) AND generation = sqlc.arg(old_generation) AND removed_at IS NULL;

-- name: ReshapeFleetUnit :execrows
-- Gives a row that runs nothing other GPUs, or another host.
UPDATE units SET host_id = sqlc.arg(host_id)::uuid, slot = sqlc.arg(slot), gpus = sqlc.arg(gpus)::int[], expert = sqlc.arg(expert), state = 'planned',
       state_text = sqlc.arg(state_text), state_at = now(), wanted = 'stopped', tries = 0, generation = generation + 1
WHERE id = sqlc.arg(id) AND state = sqlc.arg(old_state) AND generation = sqlc.arg(old_generation) AND removed_at IS NULL;

-- name: RemoveFleetUnit :execrows
-- The name becomes free for another unit.
UPDATE units SET removed_at = now(), wanted = 'stopped', state = 'stopped', generation = generation + 1, name = name || '~' || id
WHERE id = sqlc.arg(id) AND generation = sqlc.arg(old_generation) AND removed_at IS NULL;

-- name: InsertUnitEvent :exec
INSERT INTO unit_events (id, unit_id, state, text) VALUES (sqlc.arg(id), sqlc.arg(unit_id), sqlc.arg(state), sqlc.arg(text));

-- name: ListUnitEvents :many
SELECT at, state, text FROM unit_events WHERE unit_id = sqlc.arg(unit_id) ORDER BY at DESC, id DESC LIMIT sqlc.arg(max_rows);

-- name: ForgetUnitEvents :exec
DELETE FROM unit_events WHERE at < now() - interval '30 days';

-- name: ListDemands :many
SELECT p.model_id, m.name AS model_name, p.recipe_id, r.name AS recipe_name, r.digest, r.source, p.release_id, p.units, p.kinds, p.regions, p.spread,
       p.weight, p.version, p.updated_by, p.updated_at
FROM placement_policies p JOIN models m ON m.id = p.model_id JOIN recipes r ON r.id = p.recipe_id
ORDER BY m.name, r.name, p.recipe_id;

-- name: ModelByID :one
SELECT * FROM models WHERE id = sqlc.arg(id) AND retired_at IS NULL;

-- name: GetDemand :one
SELECT units, kinds, regions, spread, weight, version FROM placement_policies WHERE model_id = sqlc.arg(model_id) AND recipe_id = sqlc.arg(recipe_id) FOR UPDATE;

-- name: PutDemand :one
INSERT INTO placement_policies (model_id, recipe_id, release_id, units, kinds, regions, spread, weight, updated_by)
VALUES (sqlc.arg(model_id), sqlc.arg(recipe_id), sqlc.arg(release_id), sqlc.arg(units), sqlc.arg(kinds)::text[], sqlc.arg(regions)::text[], sqlc.arg(spread),
        sqlc.arg(weight), sqlc.arg(updated_by))
ON CONFLICT (model_id, recipe_id) DO UPDATE SET units = excluded.units, kinds = excluded.kinds, regions = excluded.regions, spread = excluded.spread,
       weight = excluded.weight, updated_by = excluded.updated_by, updated_at = now(), version = placement_policies.version + 1
RETURNING version;

-- name: DeleteDemand :execrows
DELETE FROM placement_policies WHERE model_id = sqlc.arg(model_id) AND recipe_id = sqlc.arg(recipe_id);

-- name: RecipeSource :one
SELECT id, name, source, (retired_at IS NOT NULL)::boolean AS retired FROM recipes WHERE id = sqlc.arg(id);

-- name: RecipeSources :many
-- The recipes of releases.
SELECT rel.id AS release_id, r.id, r.name, r.source FROM releases rel JOIN recipes r ON r.id = rel.recipe_id WHERE rel.id = ANY(sqlc.arg(releases)::uuid[]);

-- name: CurrentPlan :one
SELECT id, number, parent_id, cause, body, demands, digest, note, created_by, created_at, committed_by, committed_at FROM plans WHERE state = 'committed';

-- name: HoldPlan :one
-- The proof that a plan is still the current one, until the transaction ends.
SELECT id FROM plans WHERE state = 'committed' FOR SHARE;

-- name: LockPlans :exec
SELECT pg_advisory_xact_lock(hashtext('plans'));

-- name: InsertPlan :one
INSERT INTO plans (id, parent_id, cause, body, demands, digest, note, state, created_by)
VALUES (sqlc.arg(id), sqlc.narg(parent_id)::uuid, sqlc.arg(cause), sqlc.arg(body), sqlc.arg(demands), sqlc.arg(digest), sqlc.arg(note), 'draft', sqlc.arg(created_by))
RETURNING number;

-- name: GetPlan :one
SELECT p.id, p.number, p.parent_id, p.cause, p.body, p.demands, p.digest, p.note, p.state, p.created_by, p.created_at, p.committed_by, p.committed_at,
       COALESCE(o.number, 0)::bigint AS parent_number, COALESCE(o.body, 'null')::jsonb AS parent_body
FROM plans p LEFT JOIN plans o ON o.id = p.parent_id WHERE p.id = sqlc.arg(id);

-- name: DraftLike :one
-- A draft that says the same.
SELECT id FROM plans WHERE state = 'draft' AND digest = sqlc.arg(digest) AND parent_id IS NOT DISTINCT FROM sqlc.narg(parent_id)::uuid ORDER BY number DESC LIMIT 1;

-- name: SupersedePlan :exec
UPDATE plans SET state = 'superseded' WHERE state = 'committed';

-- name: CommitPlan :execrows
UPDATE plans SET state = 'committed', committed_by = sqlc.arg(committed_by), committed_at = now() WHERE id = sqlc.arg(id) AND state = 'draft';

-- name: SupersedeDrafts :exec
-- Drafts whose parent is no longer the current plan can never be committed.
UPDATE plans SET state = 'superseded' WHERE state = 'draft' AND parent_id IS DISTINCT FROM sqlc.arg(current)::uuid;

-- name: ListPlans :many
SELECT p.id, p.number, p.cause, p.note, p.state, p.created_by, p.created_at, p.committed_by, p.committed_at, COALESCE(o.number, 0)::bigint AS parent_number,
       jsonb_array_length(CASE WHEN jsonb_typeof(p.body -> 'units') = 'array' THEN p.body -> 'units' ELSE '[]' END)::bigint AS units,
       jsonb_array_length(CASE WHEN jsonb_typeof(p.body -> 'moves') = 'array' THEN p.body -> 'moves' ELSE '[]' END)::bigint AS moves,
       jsonb_array_length(CASE WHEN jsonb_typeof(p.body -> 'unmet') = 'array' THEN p.body -> 'unmet' ELSE '[]' END)::bigint AS unmet
FROM plans p LEFT JOIN plans o ON o.id = p.parent_id
WHERE p.number < sqlc.arg(before)::bigint ORDER BY p.number DESC LIMIT sqlc.arg(max_rows);

-- name: AdoptUnits :exec
-- The rows of a new plan's units belong to it.
UPDATE units SET plan_id = sqlc.arg(plan)::uuid WHERE removed_at IS NULL AND plan_id IS NOT NULL AND (id = ANY(sqlc.arg(ids)::uuid[]) OR part_of = ANY(sqlc.arg(ids)::uuid[]));

-- name: LockHost :one
SELECT id, name, provider, region, capacity_kind, gpu_hour_nano, network, failure_domain, cordoned, draining, cordon_reason FROM hosts
WHERE id = sqlc.arg(id) AND removed_at IS NULL FOR UPDATE;

-- name: CordonHost :exec
UPDATE hosts SET cordoned = sqlc.arg(cordoned), draining = sqlc.arg(draining), cordon_reason = sqlc.arg(reason), cordoned_by = sqlc.arg(by),
       cordoned_at = CASE WHEN sqlc.arg(cordoned) THEN now() END
WHERE id = sqlc.arg(id);

-- name: SetHostFacts :exec
UPDATE hosts SET provider = sqlc.arg(provider), region = sqlc.arg(region), capacity_kind = sqlc.arg(capacity_kind), gpu_hour_nano = sqlc.arg(gpu_hour_nano),
       network = sqlc.arg(network), failure_domain = sqlc.arg(failure_domain)
WHERE id = sqlc.arg(id);

-- name: InsertMaintenance :one
INSERT INTO host_maintenance (id, host_id, starts_at, ends_at, reason, created_by)
SELECT sqlc.arg(id), sqlc.arg(host_id), sqlc.arg(starts_at), sqlc.arg(ends_at), sqlc.arg(reason), sqlc.arg(created_by)
WHERE (SELECT count(*) FROM host_maintenance m WHERE m.host_id = sqlc.arg(host_id) AND m.cancelled_at IS NULL AND m.ends_at > now()) < sqlc.arg(most)::bigint
RETURNING id;

-- name: CancelMaintenance :one
UPDATE host_maintenance SET cancelled_at = now() WHERE id = sqlc.arg(id) AND host_id = sqlc.arg(host_id) AND cancelled_at IS NULL AND ends_at > now()
RETURNING starts_at, ends_at, reason;

-- name: ListMaintenance :many
-- Windows that are open or ahead.
SELECT m.id, m.host_id, h.name AS host_name, m.starts_at, m.ends_at, m.reason, m.created_by, m.created_at
FROM host_maintenance m JOIN hosts h ON h.id = m.host_id
WHERE m.cancelled_at IS NULL AND m.ends_at > now() AND h.removed_at IS NULL ORDER BY m.starts_at, m.id;
