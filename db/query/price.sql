-- Price versions are inserted and, before they take effect, cancelled. Nothing else ever happens to one (a trigger sees to it).

-- name: InsertPriceVersion :one
INSERT INTO price_versions (id, model_id, book, effective_at, input_pico, cached_pico, cache_write_pico, output_pico,
                            reasoning_pico, image_pico, audio_pico, request_pico, note, created_by, created_at, terms)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
RETURNING *;

-- name: CancelPriceVersion :one
-- notice_seconds before it takes effect is the last moment. The database's clock decides.
UPDATE price_versions SET cancelled_at = now()
WHERE id = $1 AND cancelled_at IS NULL AND effective_at > now() + sqlc.arg(notice_seconds)::bigint * interval '1 second'
RETURNING *;

-- name: PriceVersion :one
SELECT * FROM price_versions WHERE id = $1;

-- name: PriceSchedule :many
-- Everything a gateway may need: the versions that stand, past and future.
SELECT * FROM price_versions WHERE cancelled_at IS NULL ORDER BY model_id, book, effective_at;

-- name: PriceTimeline :many
-- A model's versions in all books, cancelled ones too, newest first.
SELECT * FROM price_versions WHERE model_id = $1 ORDER BY effective_at DESC, id DESC;

-- name: PriceAt :one
-- The version in effect: the customer's book before the standard one.
SELECT * FROM price_versions
WHERE model_id = $1 AND book IN (sqlc.arg(book), 'standard') AND effective_at <= sqlc.arg(at) AND cancelled_at IS NULL
ORDER BY (book = sqlc.arg(book)) DESC, effective_at DESC
LIMIT 1;

-- name: PricedModel :one
SELECT id, name, free FROM models WHERE id = $1;
