package export_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/parquet-go/parquet-go"

	"millrace/billing/export"
	"millrace/billing/ledger"
	"millrace/billing/month"
	"millrace/db"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
)

func TestMonthsAreExportedAsTheyAreReported(t *testing.T) {
	w := newWorld(t)
	october := monthStart.AddDate(0, -1, 0)
	months := month.New(w.db, clock.NewManual(now))
	for i, name := range []string{"=evil()", "b", "c"} {
		c := w.customer(name)
		w.exec("UPDATE orgs SET created_at = $2 WHERE org_id = $1", c.id, october)
		for at, n := range map[ids.ID]money.Nano{ids.At(october.AddDate(0, 0, 3)): 1_000_000_001, ids.At(monthStart.AddDate(0, 0, i)): 7} {
			err := w.db.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
				_, _, err := ledger.Post(t.Context(), tx, ledger.Txn{ID: at, Org: c.id, Kind: ledger.Grant, Entries: []ledger.Entry{
					ledger.Debit(ledger.Cash, n), ledger.Credit(ledger.PrepaidPaid, n)}})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	w.exec("INSERT INTO invoice_months (month, drafted_at) VALUES ($1, $2)", october, now)
	w.exec("INSERT INTO reconcile_runs (id, at, watermark, unexplained, report) VALUES ($1, $2, $2, false, '{}')", ids.New(), now)
	if _, err := months.Close(t.Context(), w.root, october, "2026-10"); err != nil {
		t.Fatal(err)
	}

	in := export.Query{Kind: export.Months, From: october, To: now}
	plain, m := w.write(in, export.CSV)
	rows := table(t, plain)
	if len(rows) != 6 || m.Total.Rows != 6 || m.Total.Sums["deferred_added_usd"] != "3.000000024" {
		t.Fatalf("%d rows, manifest %+v", len(rows), m.Total)
	}
	if _, added := m.Total.Sums["deferred_closing_usd"]; added {
		t.Error("closing balances of several months are added up")
	}
	for i, row := range rows {
		want := map[string]string{"month": "2026-11", "state": "open", "currency": "USD", "cash_received_by_hand_usd": "0.000000007", "deferred_opening_usd": "1.000000001", "deferred_closing_usd": "1.000000008"}
		if i < 3 {
			want = map[string]string{"month": "2026-10", "state": "closed", "cash_received_by_hand_usd": "1.000000001", "deferred_opening_usd": "0", "deferred_closing_usd": "1.000000001"}
		}
		for name, value := range want {
			if row[name] != value {
				t.Errorf("row %d: %s is %q, want %q", i, name, row[name], value)
			}
		}
	}
	lines, _ := w.write(in, export.JSONL)
	n := 0
	for dec := json.NewDecoder(bytes.NewReader(lines)); dec.More(); n++ {
		var row map[string]string
		if err := dec.Decode(&row); err != nil {
			t.Fatal(err)
		}
		if row["org_id"] != rows[n]["org_id"] || row["deferred_closing_usd"] != rows[n]["deferred_closing_usd"] {
			t.Errorf("JSON Lines: row %d reads %v", n, row)
		}
	}
	b, _ := w.write(in, export.Parquet)
	if f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b))); err != nil || f.NumRows() != 6 || n != 6 {
		t.Errorf("%d JSON Lines, Parquet: %v", n, err)
	}
	in.After = m.Parts[0].Next
	if _, again := w.write(in, export.CSV); again.Total.Rows != 0 {
		t.Errorf("behind the last row: %d rows", again.Total.Rows)
	}
	in.After = export.Cursor{Day: october, Org: idOf(t, rows[1]["org_id"])}
	if rest, _ := w.write(in, export.CSV); len(table(t, rest)) != 4 {
		t.Errorf("behind the second row: %d rows", len(table(t, rest)))
	}
}

func idOf(t *testing.T, s string) ids.ID {
	t.Helper()
	id, err := ids.Parse(ids.Org, s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestMonthsAreTheOperators(t *testing.T) {
	w := newWorld(t)
	c := w.customer("a")
	in := export.Query{Kind: export.Months, From: monthStart, To: now}
	if err := w.Check(c.member, in); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a member: %v", err)
	}
	in.Org = c.id
	if err := w.Check(c.member, in); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a member of his own: %v", err)
	}
	if err := w.Check(w.root, in); !fault.Is(err, fault.Invalid) {
		t.Errorf("of one customer: %v", err)
	}
}
