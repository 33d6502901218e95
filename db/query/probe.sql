-- Ways between hosts, which agents measure.

-- name: ProbeAddresses :many
-- Hosts of one network reach each other; a host that names none is in that of its provider and region.
SELECT id, COALESCE(NULLIF(network, ''), provider || '/' || region)::text AS network, (observed ->> 'probe_address')::text AS address
FROM hosts WHERE removed_at IS NULL AND COALESCE(observed ->> 'probe_address', '') <> '' AND seen_at > now() - interval '1 minute'
ORDER BY id;
