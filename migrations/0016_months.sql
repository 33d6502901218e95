-- +goose Up
-- ---- accounting months: for operators only, so nothing of this is a tenant's -------------------------------------------------
-- The month that a transaction belongs to. Usage belongs to the month that its requests started in, unless that was frozen when
-- the usage was booked: two days after a month's end nothing joins it. Freezing falls on a day's beginning, so days decide.
-- +goose StatementBegin
CREATE FUNCTION accounting_month(usage_month date, day date) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE WHEN usage_month IS NULL THEN date_trunc('month', day::timestamp)::date
               WHEN day < (usage_month + interval '1 month 2 days')::date THEN usage_month
               ELSE date_trunc('month', (day - 2)::timestamp)::date END $$;
-- +goose StatementEnd

-- Closed months. Open and frozen are told by the clock.
CREATE TABLE accounting_months (
  month     date PRIMARY KEY CHECK (month = date_trunc('month', month::timestamp)::date),
  closed_at timestamptz NOT NULL,
  closed_by text NOT NULL,
  report    jsonb NOT NULL,           -- as it was when it was closed
  checksum  text NOT NULL             -- SHA-256 of the report, hexadecimal
);
GRANT SELECT, INSERT ON accounting_months TO millrace_system;
