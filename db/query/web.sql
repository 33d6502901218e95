-- Lists for people that no room owns alone: the console's and the control API's. Rights are checked before they are run.

-- name: PageCustomers :many
-- By name; after is the last row of the page before. search is a part of a name or of a member's address, or (part of) a
-- key from its beginning on.
SELECT o.org_id, o.name, o.created_at,
       coalesce(b.cap_nano - b.settled_nano - b.outstanding_nano, o.credit_limit_nano)::bigint AS available_nano
  FROM orgs o
  LEFT JOIN budgets b ON b.org_id = o.org_id AND b.kind = 'balance'
 WHERE (@after_id::uuid = '00000000-0000-0000-0000-000000000000'
        OR (lower(o.name), o.org_id) > (SELECT lower(a.name), a.org_id FROM orgs a WHERE a.org_id = @after_id))
   AND (@search::text = '' OR position(lower(@search) IN lower(o.name)) > 0
        OR EXISTS (SELECT FROM members m JOIN users u ON u.id = m.user_id WHERE m.org_id = o.org_id AND position(lower(@search) IN u.email) > 0)
        OR EXISTS (SELECT FROM api_keys k WHERE k.org_id = o.org_id AND NOT k.hidden AND length(@search) >= @least_key::int
                      AND (starts_with(k.prefix, @search) OR starts_with(@search, k.prefix))))
 ORDER BY lower(o.name), o.org_id LIMIT @max_rows;

-- name: PageOrgNamed :many
SELECT org_id FROM orgs WHERE lower(name) = lower(@name::text) LIMIT 1;

-- name: PageOrgCount :one
SELECT count(*) FROM orgs;

-- name: PageHasKey :one
SELECT EXISTS (SELECT FROM api_keys WHERE org_id = @org AND NOT hidden) AS found;

-- name: PageMembersSeen :many
-- When members were last here. Sessions that ended long ago are gone.
SELECT m.user_id, max(s.seen_at)::timestamptz AS seen_at FROM members m JOIN sessions s ON s.user_id = m.user_id
 WHERE m.org_id = @org GROUP BY 1;

-- name: PageNames :many
-- How the things that an audit log names read.
SELECT id, email::text AS name FROM users WHERE id = ANY(@list::uuid[])
UNION ALL SELECT org_id, name FROM orgs WHERE org_id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM projects WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM api_keys WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM models WHERE id = ANY(@list::uuid[])
UNION ALL SELECT v.id, m.name FROM price_versions v JOIN models m ON m.id = v.model_id WHERE v.id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM units WHERE id = ANY(@list::uuid[])
UNION ALL SELECT id, name FROM hosts WHERE id = ANY(@list::uuid[]);

-- name: PageAudit :many
-- What was done anywhere, newest first.
SELECT a.*, coalesce(o.name, '')::text AS org_name FROM audit_log a LEFT JOIN orgs o ON o.org_id = a.org_id
 WHERE a.id < @before_id::uuid ORDER BY a.id DESC LIMIT @max_rows;

-- name: PageHosts :many
-- Every host that is not removed. seen_ms is how long ago its agent was last heard of; -1 = never.
SELECT id, name, provider, region, domain, capacity_kind, gpu_hour_nano, data_url, agent_version, observed, cordoned, joined_at,
       coalesce(extract(epoch FROM now() - seen_at) * 1000, -1)::bigint AS seen_ms
  FROM hosts WHERE removed_at IS NULL ORDER BY domain, region, name;

-- name: PageUnitReleases :many
-- What placed units run.
SELECT u.id, u.slot, r.number FROM units u JOIN releases r ON r.id = u.release_id WHERE u.removed_at IS NULL;
