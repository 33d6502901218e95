-- +goose Up
-- A request that was set aside is found by its id, and who decided about it is told.
ALTER TABLE quarantine
  ADD COLUMN event_id   uuid, -- the request's; NULL = not even that can be read
  ADD COLUMN decision   text CHECK (decision IN ('booked', 'dismissed')),
  ADD COLUMN decided_by text;
UPDATE quarantine SET decision = CASE WHEN resolution LIKE 'booked by %' THEN 'booked' ELSE 'dismissed' END, decided_by = 'system' WHERE resolved_at IS NOT NULL;
ALTER TABLE quarantine ADD CHECK ((resolved_at IS NULL) = (decision IS NULL) AND (decision IS NULL) = (decided_by IS NULL));

-- +goose StatementBegin
DO $$
DECLARE r record;
BEGIN
  FOR r IN SELECT id, payload FROM quarantine LOOP
    BEGIN
      UPDATE quarantine SET event_id = (convert_from(r.payload, 'UTF8')::jsonb ->> 'id')::uuid WHERE id = r.id;
    EXCEPTION WHEN data_exception THEN
      NULL; -- not an event
    END;
  END LOOP;
END $$;
-- +goose StatementEnd
CREATE INDEX quarantine_by_request ON quarantine (org_id, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX quarantine_waiting ON quarantine (id) WHERE resolved_at IS NULL;
