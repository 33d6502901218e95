-- +goose Up
-- Rollups tell price versions and service tiers apart: sums of revenue and costs need not read every request. They are made
-- anew from the requests, as the rater would have.
ALTER TABLE usage_rollups ADD COLUMN price_version_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000';
ALTER TABLE usage_rollups ADD COLUMN service_tier text NOT NULL DEFAULT '';
ALTER TABLE usage_rollups ADD COLUMN billed_requests bigint NOT NULL DEFAULT 0; -- of requests, those that count for a price by the request
ALTER TABLE usage_rollups DROP CONSTRAINT usage_rollups_pkey;
SET LOCAL ROLE millrace_system;
DELETE FROM usage_rollups;
INSERT INTO usage_rollups (org_id, bucket, project_id, key_id, model_id, price_version_id, service_tier, requests, errors,
  input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, image_tokens, audio_tokens,
  charged_nano, overrun_nano, saved_nano, ttft_ms_sum, ttft_count, decode_ms_sum, billed_requests)
SELECT org_id, date_bin('15 minutes', started_at, 'epoch'), project_id, key_id, model_id, price_version_id, service_tier, count(*),
  count(*) FILTER (WHERE ending IN ('engine_failed', 'failed_unbilled', 'gateway_died') OR status >= 500),
  sum(input_tokens), sum(cached_tokens), sum(cache_write_tokens), sum(output_tokens), sum(reasoning_tokens), sum(image_tokens), sum(audio_tokens),
  sum(charged_nano), sum(overrun_nano), sum(saved_nano),
  coalesce(sum(round(extract(epoch FROM first_token_at - started_at) * 1000)), 0), count(first_token_at),
  coalesce(sum(round(extract(epoch FROM ended_at - first_token_at) * 1000)), 0), sum(requests)
FROM usage_events GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2;
RESET ROLE;
ALTER TABLE usage_rollups ADD PRIMARY KEY (org_id, bucket, project_id, key_id, model_id, price_version_id, service_tier);
