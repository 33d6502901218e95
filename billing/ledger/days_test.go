package ledger_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/money"
)

// A statement of UTC days is read from the sums of days, any other from the entries: both say the same.
func TestSumsOfDaysAreWhatTheEntriesSay(t *testing.T) {
	d := dbtest.New(t)
	entries, err := time.LoadLocation("Etc/UTC") // UTC by another name
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(rt *rapid.T) {
		org := newOrg(t, d)
		for range rapid.IntRange(1, 12).Draw(rt, "postings") {
			var txns []ledger.Txn
			for range rapid.IntRange(1, 3).Draw(rt, "transactions") {
				at := first.Add(time.Duration(rapid.Int64Range(0, int64(8*24*time.Hour)-1).Draw(rt, "at")))
				n := money.Nano(rapid.Int64Range(1, 1000).Draw(rt, "amount"))
				txn := ledger.Txn{ID: idAt(at), Org: org, Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, n), ledger.Credit(ledger.Revenue, n)}}
				switch rapid.IntRange(0, 3).Draw(rt, "kind") {
				case 0:
					txn.Kind, txn.Entries = ledger.Adjustment, []ledger.Entry{ledger.Debit(ledger.Adjustments, n), ledger.Credit(ledger.Receivable, n)}
				case 1:
					txn.Month = ledger.MonthOf(first)
				}
				txns = append(txns, txn)
			}
			system(t, d, func(tx pgx.Tx) error { _, err := ledger.PostMany(context.Background(), tx, txns); return err })
		}
		from := rapid.IntRange(0, 7).Draw(rt, "from")
		to := rapid.IntRange(from+1, 9).Draw(rt, "to")
		var sums, raw *ledger.AccountStatement
		err := d.InTx(context.Background(), db.Org(org).Snapshot().ReadOnly(), func(tx pgx.Tx) (err error) {
			if sums, err = ledger.Statement(context.Background(), tx, org, first.AddDate(0, 0, from), first.AddDate(0, 0, to)); err != nil {
				return err
			}
			raw, err = ledger.Statement(context.Background(), tx, org, first.AddDate(0, 0, from).In(entries), first.AddDate(0, 0, to).In(entries))
			return err
		})
		if err != nil {
			rt.Fatal(err)
		}
		for i := range raw.Lines {
			raw.Lines[i].At = raw.Lines[i].At.UTC()
		}
		if !reflect.DeepEqual(sums.Opening, raw.Opening) || !reflect.DeepEqual(sums.Closing, raw.Closing) || !reflect.DeepEqual(sums.Lines, raw.Lines) {
			rt.Fatalf("by days %+v\nby entries %+v", sums, raw)
		}
	})
	mustBeSound(t, d)
}

func TestADriftedDayIsFoundAndRebuilt(t *testing.T) {
	d := dbtest.New(t)
	org := newOrg(t, d)
	post(t, d, granted(org, ledger.PrepaidPaid, 1000))
	for _, damage := range []string{"update ledger_days set amount_nano = amount_nano + 1 where account = 'cash'", "delete from ledger_days where account = 'cash'",
		"update ledger_days set day = day - 1 where account = 'cash'"} {
		system(t, d, func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), damage); return err })
		system(t, d, func(tx pgx.Tx) error {
			r, err := ledger.Verify(t.Context(), tx)
			if err == nil && (r.Sound() || len(r.Days) == 0 || r.Days[0].Org != org || r.Days[0].Account != ledger.Cash) {
				t.Errorf("%s: %+v", damage, r)
			}
			return err
		})
		system(t, d, func(tx pgx.Tx) error { return ledger.Rebuild(t.Context(), tx) })
		mustBeSound(t, d)
	}
}
