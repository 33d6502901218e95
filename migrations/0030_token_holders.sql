-- +goose Up
-- Who is behind a control token: user_…, who made it, or who is behind the token that made it. '' = nobody is known: the server
-- made it, or it is from before this was kept.
ALTER TABLE control_tokens ADD COLUMN created_by text NOT NULL DEFAULT '';
