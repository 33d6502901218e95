-- Start-up.

-- name: InstallationClaim :exec
INSERT INTO installation (id, key_fingerprint, ca_fingerprint) VALUES (@id, @key_fingerprint, @ca_fingerprint) ON CONFLICT DO NOTHING;

-- name: Installation :one
SELECT * FROM installation;
