-- Files and batches (serving/batch).

-- name: InsertFile :one
INSERT INTO files (org_id, id, project_id, purpose, filename, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING *;

-- name: AddToFileTotals :execrows
-- Nothing is changed where it would go above the limits.
INSERT INTO file_totals AS t (org_id, files, bytes) VALUES (@org_id, @files, @bytes)
ON CONFLICT (org_id) DO UPDATE SET files = t.files + excluded.files, bytes = t.bytes + excluded.bytes
WHERE t.files + excluded.files <= @max_files::bigint AND t.bytes + excluded.bytes <= @max_bytes::bigint;

-- name: InsertFileChunk :execrows
-- Nothing where the file is gone or already whole.
INSERT INTO file_chunks (org_id, file_id, n, body)
SELECT f.org_id, f.id, @n, @body::bytea FROM files f WHERE f.org_id = @org_id AND f.id = @file_id AND NOT f.ready;

-- name: FinishFile :one
UPDATE files SET ready = true, bytes = @bytes, expires_at = @expires_at WHERE org_id = @org_id AND id = @id AND NOT ready RETURNING *;

-- name: GetFile :one
SELECT * FROM files WHERE org_id = @org_id AND project_id = @project_id AND id = @id AND ready AND expires_at > sqlc.arg(now);

-- name: ListFiles :many
SELECT * FROM files
WHERE org_id = @org_id AND project_id = @project_id AND ready AND expires_at > sqlc.arg(now)
  AND (@purpose::text = '' OR purpose = @purpose)
  AND (sqlc.narg(after)::uuid IS NULL OR CASE WHEN @ascending::boolean THEN id > sqlc.narg(after) ELSE id < sqlc.narg(after) END)
ORDER BY CASE WHEN @ascending THEN id END, CASE WHEN NOT @ascending THEN id END DESC
LIMIT @max_rows;

-- name: ReadFileChunk :one
SELECT substring(body FROM sqlc.arg(from_byte)::integer FOR sqlc.arg(max_bytes)::integer)::bytea AS body FROM file_chunks
WHERE org_id = @org_id AND file_id = @file_id AND n = @n;

-- name: LockFile :one
-- A batch that is made of it holds it, too.
SELECT * FROM files WHERE org_id = @org_id AND id = @id FOR UPDATE;

-- name: FileInUse :one
SELECT EXISTS (SELECT FROM batches WHERE org_id = @org_id AND input_file_id = @file_id AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))::boolean;

-- name: FileBytes :one
-- What a file that may not be whole takes.
SELECT coalesce(sum(length(body)), 0)::bigint FROM file_chunks WHERE org_id = @org_id AND file_id = @file_id;

-- name: DeleteFile :execrows
DELETE FROM files WHERE org_id = @org_id AND id = @id;

-- name: FilesToSweep :many
-- Expired ones that no batch needs, and uploads that were given up.
SELECT f.org_id, f.id FROM files f
WHERE (f.expires_at <= sqlc.arg(now) OR NOT f.ready AND f.created_at <= sqlc.arg(given_up))
  AND NOT EXISTS (SELECT FROM batches b WHERE b.org_id = f.org_id AND b.input_file_id = f.id AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))
ORDER BY f.expires_at LIMIT @max_rows;

-- name: DeleteOldBatches :exec
DELETE FROM batches WHERE created_at < $1 AND status IN ('failed', 'completed', 'expired', 'cancelled');

-- ---- batches -----------------------------------------------------------------------------------------------------
-- name: LockOrgBatches :exec
-- Who makes batches of an organization counts them one after another.
SELECT pg_advisory_xact_lock(hashtextextended('batches/' || @org::text, 0));

-- name: CountOpenBatches :one
SELECT count(*) FROM batches WHERE org_id = $1 AND status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

-- name: InsertBatch :one
INSERT INTO batches (org_id, id, project_id, key_id, input_file_id, endpoint, completion_window, metadata, output_seconds, status, created_at, expires_at, next_at)
VALUES (@org_id, @id, @project_id, @key_id, @input_file_id, @endpoint, @completion_window, sqlc.narg(metadata), @output_seconds, 'validating', @created_at, @expires_at, @created_at)
RETURNING *;

-- name: GetBatch :one
SELECT * FROM batches WHERE org_id = @org_id AND project_id = @project_id AND id = @id;

-- name: ListBatches :many
SELECT * FROM batches
WHERE org_id = @org_id AND project_id = @project_id AND (sqlc.narg(after)::uuid IS NULL OR id < sqlc.narg(after))
ORDER BY id DESC LIMIT @max_rows;

-- name: CancelBatch :one
-- One that is being finalized ends as it was going to.
UPDATE batches SET status = 'cancelling', outcome = 'cancelled', cancelling_at = sqlc.arg(now)::timestamptz, next_at = sqlc.arg(now)
WHERE org_id = @org_id AND project_id = @project_id AND id = @id AND status IN ('validating', 'in_progress')
RETURNING *;

-- name: ClaimBatch :one
-- The oldest of the organization whose batches are worked on least, of those that nobody holds.
UPDATE batches c SET lease_term = c.lease_term + 1, lease_until = clock_timestamp() + sqlc.arg(lease_ms)::bigint * interval '1 millisecond'
WHERE (c.org_id, c.id) = (
  SELECT b.org_id, b.id FROM batches b
  WHERE b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling') AND b.next_at <= sqlc.arg(now)
    AND (b.lease_until IS NULL OR b.lease_until < clock_timestamp())
  ORDER BY (SELECT count(*) FROM batches o WHERE o.org_id = b.org_id AND o.lease_until >= clock_timestamp()
            AND o.status IN ('validating', 'in_progress', 'finalizing', 'cancelling')), b.created_at, b.id
  LIMIT 1 FOR UPDATE OF b SKIP LOCKED)
RETURNING *;

-- name: RenewBatch :one
-- What holds it must know, too: somebody may have cancelled it meanwhile.
UPDATE batches SET lease_until = clock_timestamp() + sqlc.arg(lease_ms)::bigint * interval '1 millisecond'
WHERE org_id = @org_id AND id = @id AND lease_term = @lease_term AND lease_until IS NOT NULL RETURNING status;

-- name: ReleaseBatch :exec
-- A cancellation that came meanwhile is not put off.
UPDATE batches SET lease_until = NULL, pause_code = @pause_code, pause_message = @pause_message,
       next_at = CASE WHEN status = 'cancelling' THEN next_at ELSE @next_at END
WHERE org_id = @org_id AND id = @id AND lease_term = @lease_term;

-- name: HoldBatch :one
-- Every write of who works on a batch begins so: no row says that it is another's by now.
SELECT * FROM batches WHERE org_id = @org_id AND id = @id AND lease_term = @lease_term FOR NO KEY UPDATE;

-- name: KeyHashOf :one
SELECT hash FROM api_keys WHERE org_id = @org_id AND id = @id;

-- name: FailBatch :exec
UPDATE batches SET status = 'failed', errors = sqlc.narg(errors), failed_at = sqlc.arg(now)::timestamptz, lease_until = NULL WHERE org_id = @org_id AND id = @id;

-- name: BeginBatch :exec
UPDATE batches SET status = 'in_progress', model = @model, total = @total, in_progress_at = sqlc.arg(now)::timestamptz WHERE org_id = @org_id AND id = @id;

-- name: SetBatchFinalizing :one
UPDATE batches SET status = 'finalizing', outcome = @outcome, finalizing_at = sqlc.arg(now)::timestamptz, pause_code = '', pause_message = '' WHERE org_id = @org_id AND id = @id RETURNING *;

-- name: EndBatch :exec
UPDATE batches SET status = outcome, lease_until = NULL, output_file_id = sqlc.narg(output_file_id), error_file_id = sqlc.narg(error_file_id),
       completed_at = CASE WHEN outcome = 'completed' THEN sqlc.arg(now)::timestamptz END,
       expired_at = CASE WHEN outcome = 'expired' THEN sqlc.arg(now)::timestamptz END,
       cancelled_at = CASE WHEN outcome = 'cancelled' THEN sqlc.arg(now)::timestamptz END
WHERE org_id = @org_id AND id = @id;

-- ---- lines -------------------------------------------------------------------------------------------------------
-- name: DeleteBatchLines :exec
DELETE FROM batch_lines WHERE org_id = @org_id AND batch_id = @batch_id;

-- name: DeleteSomeBatchLines :execrows
DELETE FROM batch_lines l WHERE l.org_id = @org_id AND l.batch_id = @batch_id
  AND l.n IN (SELECT s.n FROM batch_lines s WHERE s.org_id = @org_id AND s.batch_id = @batch_id ORDER BY s.n LIMIT @max_rows);

-- name: EndedBatchesWithLines :many
-- Whose gateway died before it had removed them.
SELECT b.org_id, b.id FROM batches b
WHERE b.status IN ('failed', 'completed', 'expired', 'cancelled') AND EXISTS (SELECT FROM batch_lines l WHERE l.org_id = b.org_id AND l.batch_id = b.id)
LIMIT @max_rows;

-- name: InsertBatchLines :exec
INSERT INTO batch_lines (org_id, batch_id, n, custom_id, start, size)
SELECT @org_id, @batch_id, unnest(@numbers::integer[]), unnest(@custom_ids::text[]), unnest(@starts::bigint[]), unnest(@sizes::integer[]);

-- name: WaitingLines :many
-- All, or those only that were in flight when their gateway died.
SELECT n, custom_id, start, size, attempt, started_at FROM batch_lines
WHERE org_id = @org_id AND batch_id = @batch_id AND state = 'waiting' AND n > sqlc.arg(after) AND (started_at IS NOT NULL OR NOT @started::boolean)
ORDER BY n LIMIT @max_rows;

-- name: StartLine :one
-- The start is kept from the first time on, and with it the request's id: a line that was in flight when its gateway died
-- runs again under the same id, and the rater books an id once.
UPDATE batch_lines SET started_at = coalesce(started_at, sqlc.arg(now)::timestamptz)
WHERE org_id = @org_id AND batch_id = @batch_id AND n = @n AND state = 'waiting' RETURNING attempt, started_at::timestamptz;

-- name: PutLineBack :execrows
-- Its next start is another; so is its attempt, where the log has this one.
UPDATE batch_lines SET attempt = attempt + @logged::integer, started_at = NULL
WHERE org_id = @org_id AND batch_id = @batch_id AND n = @n AND state = 'waiting' AND attempt = @attempt;

-- name: FinishLine :execrows
UPDATE batch_lines SET state = @state, result = @result WHERE org_id = @org_id AND batch_id = @batch_id AND n = @n AND state = 'waiting';

-- name: CountLine :exec
UPDATE batches SET completed = completed + @completed, failed = failed + @failed, pause_code = '', pause_message = '' WHERE org_id = @org_id AND id = @id;

-- name: LineResults :many
-- Those that completed, or all others: failed ones, and ones that never ran.
SELECT n, custom_id, result, attempt, started_at FROM batch_lines
WHERE org_id = @org_id AND batch_id = @batch_id AND (state = 'completed') = @completed::boolean AND n > sqlc.arg(after) ORDER BY n LIMIT @max_rows;
