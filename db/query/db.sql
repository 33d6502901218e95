-- name: ServerNow :one
-- The database's clock: leases and terms are taken from it, never from a process's own.
SELECT clock_timestamp()::timestamptz AS now;
