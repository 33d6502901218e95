-- +goose Up
-- Under whom a top-up was asked for at the payment provider: an organization may be made known there anew meanwhile, and what
-- an earlier attempt brought is found under its customer. Top-ups of before know the present one alone.
ALTER TABLE topups ADD COLUMN customer_ids text[] NOT NULL DEFAULT '{}';
