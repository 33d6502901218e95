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
