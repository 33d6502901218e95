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

-- ---- contracts -----------------------------------------------------------------------------------------------------------
-- name: InsertPriceContract :one
INSERT INTO price_contracts (org_id, id, book, starts_at, ends_at, note, created_by, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING *;

-- name: LockPriceContract :one
-- Also tells the database's time, which decides about notice.
SELECT c.*, now()::timestamptz AS now FROM price_contracts c WHERE c.org_id = $1 AND c.id = $2 FOR UPDATE;

-- name: EndPriceContract :one
UPDATE price_contracts SET ends_at = sqlc.arg(ends_at)::timestamptz WHERE org_id = $1 AND id = $2 RETURNING *;

-- name: PriceContractsOfOrg :many
SELECT * FROM price_contracts WHERE org_id = $1 ORDER BY starts_at DESC, id DESC;

-- name: PriceContractsOfOrgs :many
SELECT * FROM price_contracts WHERE org_id = ANY(sqlc.arg(orgs)::uuid[]) AND (ends_at IS NULL OR ends_at > starts_at);

-- name: PriceContractSchedule :many
-- Everything a gateway may need: the contracts that are in effect or ahead, and those that requests which now begin to be
-- counted may have started under.
SELECT * FROM price_contracts WHERE ends_at IS NULL OR ends_at > greatest(starts_at, now() - interval '1 hour');

-- name: PriceBookOfOrg :one
-- The book in effect: of the contract at that moment, else the organization's own.
SELECT coalesce((SELECT c.book FROM price_contracts c
                  WHERE c.org_id = o.org_id AND c.starts_at <= sqlc.arg(at) AND (c.ends_at IS NULL OR c.ends_at > sqlc.arg(at))), o.price_book)::text AS book
  FROM orgs o WHERE o.org_id = sqlc.arg(org);

-- name: PriceBookKnown :one
SELECT EXISTS (SELECT FROM price_versions WHERE book = $1 AND cancelled_at IS NULL) AS known;
