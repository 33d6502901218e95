package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
	"millrace/internal/money"
)

func lots(t fatalT, d *db.DB, org ids.ID) map[ids.ID]money.Nano {
	t.Helper()
	left := make(map[ids.ID]money.Nano)
	system(t, d, func(tx pgx.Tx) error {
		list, err := ledger.Lots(context.Background(), tx, org)
		clear(left)
		for _, l := range list {
			left[l.ID] = l.Remaining
		}
		return err
	})
	return left
}

// spend charges as the rater does.
func spend(t fatalT, d *db.DB, org ids.ID, amount money.Nano) {
	t.Helper()
	system(t, d, func(tx pgx.Tx) error {
		l, err := ledger.Lock(context.Background(), tx, []ids.ID{org})
		if err != nil {
			return err
		}
		entries, err := l.Spend([]ledger.Charge{{Org: org, Amount: amount}})
		if err != nil {
			return err
		}
		_, err = l.Post(context.Background(), []ledger.Txn{{Org: org, Kind: ledger.Usage, Entries: entries[0]}})
		return err
	})
}

func give(t fatalT, d *db.DB, org ids.ID, kind ledger.Account, amount money.Nano, lot ledger.Lot) {
	t.Helper()
	txn := granted(org, kind, amount)
	txn.Lot = lot
	post(t, d, txn)
}

func TestCreditIsUsedUpByPriorityThenEndThenAge(t *testing.T) {
	d := dbtest.New(t)
	org := newOrg(t, d)
	at := time.Now().Add(24 * time.Hour)
	old, young, soon, first, promo := ids.New(), ids.New(), ids.New(), ids.New(), ids.New()
	give(t, d, org, ledger.PrepaidPaid, 10, ledger.Lot{ID: old})
	give(t, d, org, ledger.PrepaidPaid, 10, ledger.Lot{ID: young})
	give(t, d, org, ledger.PrepaidPaid, 10, ledger.Lot{ID: soon, ExpiresAt: at})
	give(t, d, org, ledger.PrepaidPaid, 10, ledger.Lot{ID: first, Priority: 5})
	give(t, d, org, ledger.PrepaidPromo, 10, ledger.Lot{ID: promo})
	for i, want := range []ids.ID{first, promo, soon, old, young} {
		spend(t, d, org, 10)
		left := lots(t, d, org)
		if _, ok := left[want]; ok || len(left) != 4-i {
			t.Errorf("charge %d did not use up the %dth lot: %v", i+1, i+1, left)
		}
	}
	spend(t, d, org, 3) // on the credit limit
	if b := balances(t, d, org); b[ledger.Receivable] != 3 || b[ledger.PrepaidPaid] != 0 {
		t.Errorf("%v", b)
	}
	mustBeSound(t, d)
}

// What is owed after a dispute is paid first by the next credit; only the rest is a lot.
func TestCreditPaysADebtFirst(t *testing.T) {
	d := dbtest.New(t)
	org := newOrg(t, d)
	lot := ids.New()
	give(t, d, org, ledger.PrepaidPaid, 10, ledger.Lot{ID: lot})
	post(t, d, ledger.Txn{Org: org, Kind: ledger.Refund, Entries: []ledger.Entry{ledger.Debit(ledger.PrepaidPaid, 14), ledger.Credit(ledger.StripeClearing, 14)}})
	if left := lots(t, d, org); len(left) != 0 {
		t.Errorf("lots while credit is owed: %v", left)
	}
	next := ids.New()
	give(t, d, org, ledger.PrepaidPaid, 6, ledger.Lot{ID: next})
	if left := lots(t, d, org); len(left) != 1 || left[next] != 2 {
		t.Errorf("%v", left)
	}
	mustBeSound(t, d)
}

// Whatever happens to an organization's credit, its lots are its credit, and the projection can be made anew from the book.
func TestLotsAreDisposable(t *testing.T) {
	d := dbtest.New(t)
	rapid.Check(t, func(t *rapid.T) {
		org := newOrg(t, d)
		var opened []ids.ID
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			amount := money.Nano(rapid.Int64Range(1, 100).Draw(t, "amount"))
			switch rapid.SampledFrom([]string{"give", "spend", "take back", "take a lot", "fail"}).Draw(t, "step") {
			case "give":
				lot := ledger.Lot{ID: ids.New(), Priority: rapid.Int16Range(0, 30).Draw(t, "priority")}
				if days := rapid.IntRange(0, 3).Draw(t, "days"); days > 0 {
					lot.ExpiresAt = time.Now().AddDate(0, 0, days)
				}
				opened = append(opened, lot.ID)
				give(t, d, org, rapid.SampledFrom([]ledger.Account{ledger.PrepaidPaid, ledger.PrepaidPromo}).Draw(t, "kind"), amount, lot)
			case "spend":
				spend(t, d, org, amount)
			case "take back":
				post(t, d, ledger.Txn{Org: org, Kind: ledger.Refund, Entries: []ledger.Entry{ledger.Debit(ledger.PrepaidPaid, amount), ledger.Credit(ledger.Cash, amount)}})
			case "take a lot":
				if len(opened) > 0 {
					post(t, d, ledger.Txn{Org: org, Kind: ledger.Expiry, Burn: rapid.SampledFrom(opened).Draw(t, "lot"),
						Entries: []ledger.Entry{ledger.Debit(ledger.PrepaidPaid, amount), ledger.Credit(ledger.Breakage, amount)}})
				}
			case "fail": // after everything was written, before the commit
				_ = d.InTx(context.Background(), db.System(), func(tx pgx.Tx) error {
					if _, _, err := ledger.Post(context.Background(), tx, granted(org, ledger.PrepaidPaid, amount)); err != nil {
						return err
					}
					return context.Canceled
				})
			}
		}
		mustBeSound(t, d)
		before := lots(t, d, org)
		system(t, d, func(tx pgx.Tx) error { return ledger.Rebuild(context.Background(), tx) })
		if after := lots(t, d, org); len(after) != len(before) {
			t.Fatalf("rebuilt %v, was %v", after, before)
		} else {
			for id, n := range before {
				if after[id] != n {
					t.Fatalf("lot %s: rebuilt %d, was %d", id, after[id], n)
				}
			}
		}
		mustBeSound(t, d)
	})
}
