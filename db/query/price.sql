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
SELECT id, name, free, context_tokens FROM models WHERE id = $1;

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

-- ---- what a draft would have charged -------------------------------------------------------------------------------------
-- name: PreviewRollups :many
-- A model's usage by organization over whole quarter-hours, and what it cost (what the operator bore included).
SELECT r.org_id, o.name, sum(r.requests)::bigint AS requests, sum(r.input_tokens)::bigint AS input, sum(r.cached_tokens)::bigint AS cached,
       sum(r.cache_write_tokens)::bigint AS cache_write, sum(r.output_tokens)::bigint AS output, sum(r.reasoning_tokens)::bigint AS reasoning,
       sum(r.image_tokens)::bigint AS image, sum(r.audio_tokens)::bigint AS audio, sum(r.charged_nano + r.overrun_nano)::bigint AS before_nano
  FROM usage_rollups r JOIN orgs o ON o.org_id = r.org_id
 WHERE r.model_id = @model AND r.bucket >= @start AND r.bucket < @stop
 GROUP BY r.org_id, o.name;

-- name: PreviewBooks :many
-- The book that each organization has at a moment, and whether it has a price of the model.
SELECT b.org_id, b.book, EXISTS (SELECT FROM price_versions v WHERE v.model_id = @model AND v.book = b.book AND v.cancelled_at IS NULL AND v.effective_at <= @at) AS priced
  FROM (SELECT o.org_id, coalesce((SELECT c.book FROM price_contracts c WHERE c.org_id = o.org_id AND c.starts_at <= @at AND (c.ends_at IS NULL OR c.ends_at > @at)),
               o.price_book)::text AS book FROM orgs o WHERE o.org_id = ANY(@orgs::uuid[])) b;

-- name: PreviewStart :one
-- The earliest quarter-hour since which the model has had at most so many requests.
SELECT coalesce(max(c.bucket) + interval '15 minutes', @start)::timestamptz AS start
  FROM (SELECT b.bucket, sum(b.n) OVER (ORDER BY b.bucket DESC) AS running
          FROM (SELECT r.bucket, sum(r.requests) AS n FROM usage_rollups r
                 WHERE r.model_id = @model AND r.bucket >= @start AND r.bucket < @stop GROUP BY 1) b) c
 WHERE c.running > @max_requests::bigint;

-- name: PreviewEvents :many
-- A model's usage by organization, service tier, step of the prompt's length and window of the week. Steps are the number of
-- thresholds that the prompt is above; windows count from 1, 0 = none.
SELECT e.org_id, e.service_tier, e.step::int AS step, e.win::int AS win, count(*)::bigint AS requests, sum(e.requests)::bigint AS fees,
       sum(e.input_tokens)::bigint AS input, sum(e.cached_tokens)::bigint AS cached, sum(e.cache_write_tokens)::bigint AS cache_write,
       sum(e.output_tokens)::bigint AS output, sum(e.reasoning_tokens)::bigint AS reasoning, sum(e.image_tokens)::bigint AS image,
       sum(e.audio_tokens)::bigint AS audio, sum(e.charged_nano + e.overrun_nano)::bigint AS before_nano
  FROM (SELECT u.*,
               (SELECT count(*) FROM unnest(@above::bigint[]) t
                 WHERE u.input_tokens + u.cached_tokens + u.cache_write_tokens + u.image_tokens + u.audio_tokens > t) AS step,
               coalesce((SELECT w.n FROM (SELECT unnest(@numbers::int[]) AS n, unnest(@from_minutes::int[]) AS f, unnest(@to_minutes::int[]) AS t) w
                          WHERE m.minute >= w.f AND m.minute < w.t LIMIT 1), 0) AS win
          FROM usage_events u
         CROSS JOIN LATERAL (SELECT (extract(dow FROM u.started_at AT TIME ZONE 'UTC') * 1440 + extract(hour FROM u.started_at AT TIME ZONE 'UTC') * 60
                                     + extract(minute FROM u.started_at AT TIME ZONE 'UTC'))::int AS minute) m
         WHERE u.org_id = ANY(@orgs::uuid[]) AND u.model_id = @model AND u.day >= @from_day::date AND u.started_at >= @start AND u.started_at < @stop
           AND u.ending <> 'failed_unbilled') e
 GROUP BY 1, 2, 3, 4;
