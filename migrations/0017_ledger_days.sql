-- +goose Up
-- What a day moved, by customer and account: pages and reports over months would read every entry otherwise. A projection as
-- ledger_balances is: moved with them, may be dropped and rebuilt from ledger_entries.
CREATE TABLE ledger_days (
  org_id      uuid NOT NULL REFERENCES orgs (org_id),
  day         date NOT NULL,
  kind        text NOT NULL,
  usage_month date NOT NULL, -- of the usage; for other kinds the month of the day
  account     text NOT NULL,
  amount_nano bigint NOT NULL,
  PRIMARY KEY (org_id, day, kind, usage_month, account)
) WITH (fillfactor = 70);
CREATE INDEX ledger_days_of_month ON ledger_days (usage_month, day);
SELECT tenant_table('ledger_days');

-- Whoever posts waits, so that nothing falls between the entries that are read here and those that are posted with their days.
LOCK TABLE ledger_balances IN EXCLUSIVE MODE;
SET LOCAL ROLE millrace_system;
INSERT INTO ledger_days (org_id, day, kind, usage_month, account, amount_nano)
SELECT t.org_id, t.day, t.kind, coalesce(t.usage_month, date_trunc('month', t.day)::date), e.account, sum(e.amount_nano)
FROM ledger_txns t JOIN ledger_entries e ON e.org_id = t.org_id AND e.day = t.day AND e.txn_id = t.id
GROUP BY 1, 2, 3, 4, 5;
RESET ROLE;
