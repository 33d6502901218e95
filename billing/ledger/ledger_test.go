package ledger_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"millrace/billing/ledger"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/ids"
	"millrace/internal/money"
)

// fatalT is what *testing.T and *rapid.T share.
type fatalT interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func system(t fatalT, d *db.DB, fn func(tx pgx.Tx) error) {
	t.Helper()
	if err := d.InTx(context.Background(), db.System(), fn); err != nil {
		t.Fatal(err)
	}
}

func newOrg(t fatalT, d *db.DB) ids.ID {
	t.Helper()
	id := ids.New()
	system(t, d, func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "insert into orgs (org_id, name) values ($1, 'Test')", id)
		return err
	})
	return id
}

func post(t fatalT, d *db.DB, txn ledger.Txn) (id ids.ID, fresh bool) {
	t.Helper()
	system(t, d, func(tx pgx.Tx) (err error) {
		id, fresh, err = ledger.Post(context.Background(), tx, txn)
		return err
	})
	return id, fresh
}

func balances(t fatalT, d *db.DB, org ids.ID) (b map[ledger.Account]money.Nano) {
	t.Helper()
	system(t, d, func(tx pgx.Tx) (err error) {
		b, err = ledger.Balances(context.Background(), tx, org)
		return err
	})
	return b
}

func mustBeSound(t fatalT, d *db.DB) {
	t.Helper()
	err := d.InTx(context.Background(), db.System().Snapshot(), func(tx pgx.Tx) error {
		r, err := ledger.Verify(context.Background(), tx)
		if err == nil && !r.Sound() {
			t.Fatalf("%+v", r)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func granted(org ids.ID, kind ledger.Account, amount money.Nano) ledger.Txn {
	return ledger.Txn{Org: org, Kind: ledger.Grant, Entries: []ledger.Entry{ledger.Debit(ledger.Cash, amount), ledger.Credit(kind, amount)}}
}

func TestPostRefusesWhatDoesNotBalance(t *testing.T) {
	d := dbtest.New(t)
	org := newOrg(t, d)
	const most = money.Nano(1<<63 - 1)
	for name, txn := range map[string]ledger.Txn{
		"off by one": {Org: org, Kind: ledger.Grant, Entries: []ledger.Entry{{ledger.Cash, 5}, {ledger.Revenue, -4}}},
		"one side":   {Org: org, Kind: ledger.Grant, Entries: []ledger.Entry{{ledger.Cash, 5}}},
		"nothing":    {Org: org, Kind: ledger.Grant, Entries: []ledger.Entry{{ledger.Cash, 5}, {ledger.Cash, -5}}},
		"no entries": {Org: org, Kind: ledger.Grant},
		"no org":     {Kind: ledger.Grant, Entries: []ledger.Entry{{ledger.Cash, 5}, {ledger.Revenue, -5}}},
		"overflow":   {Org: org, Kind: ledger.Grant, Entries: []ledger.Entry{{ledger.Cash, most}, {ledger.Fees, most}, {ledger.Tax, 1}, {ledger.Revenue, 1}}},
		"old id": {ID: ids.ID{6: 0x40, 8: 0x80}, Org: org, Kind: ledger.Grant,
			Entries: []ledger.Entry{{ledger.Cash, 5}, {ledger.Revenue, -5}}},
	} {
		err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
			_, _, err := ledger.Post(t.Context(), tx, txn)
			return err
		})
		if err == nil {
			t.Errorf("%s was posted", name)
		}
	}
	if b := balances(t, d, org); len(b) != 0 {
		t.Errorf("balances moved: %v", b)
	}
}

// The database refuses on its own, at commit, whoever wrote the rows.
func TestTheDatabaseRefusesWhatDoesNotBalance(t *testing.T) {
	d := dbtest.New(t)
	org := newOrg(t, d)
	id, day := ids.New(), time.Now().UTC().Truncate(24*time.Hour)
	err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "insert into ledger_txns (org_id, day, id, kind) values ($1, $2, $3, 'grant')", org, day, id); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "insert into ledger_entries values ($1, $2, $3, 'cash', 5), ($1, $2, $3, 'revenue', -4)", org, day, id)
		return err
	})
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "23514" {
		t.Fatalf("got %v", err)
	}
	post(t, d, granted(org, ledger.PrepaidPaid, 5))
	for _, change := range []string{"update ledger_entries set amount_nano = 1", "delete from ledger_txns", "delete from ledger_entries"} {
		if err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), change); return err }); err == nil {
			t.Errorf("%s was allowed", change)
		}
	}
}

func TestAKeyPostsOnce(t *testing.T) {
	d := dbtest.New(t)
	org, other := newOrg(t, d), newOrg(t, d)
	txn := granted(org, ledger.PrepaidPaid, 7*money.NanoPerUSD)
	txn.Key = "topup:1"
	var wg sync.WaitGroup
	made := make([]ids.ID, 16)
	news := make([]bool, len(made))
	for i := range made {
		wg.Go(func() { made[i], news[i] = post(t, d, txn) })
	}
	wg.Wait()
	fresh := 0
	for i := range made {
		if made[i] != made[0] {
			t.Errorf("two transactions for one key: %s, %s", made[i], made[0])
		}
		if news[i] {
			fresh++
		}
	}
	if b := balances(t, d, org); fresh != 1 || b[ledger.PrepaidPaid] != -7*money.NanoPerUSD {
		t.Errorf("%d were fresh, balance %s", fresh, b[ledger.PrepaidPaid])
	}
	txn.Org = other
	if _, fresh := post(t, d, txn); !fresh {
		t.Error("another organization's key is taken")
	}
	mustBeSound(t, d)
}

func TestSpendBurnsPromotionalCreditFirst(t *testing.T) {
	d := dbtest.New(t)
	org, poor := newOrg(t, d), newOrg(t, d)
	post(t, d, granted(org, ledger.PrepaidPromo, 100))
	post(t, d, granted(org, ledger.PrepaidPaid, 50))
	system(t, d, func(tx pgx.Tx) error {
		l, err := ledger.Lock(t.Context(), tx, []ids.ID{poor, org, poor})
		if err != nil {
			return err
		}
		split, err := l.Spend([]ledger.Charge{{org, 70}, {poor, 9}, {org, 0}, {org, 60}, {org, 40}})
		if err != nil {
			return err
		}
		want := [][]ledger.Entry{
			{{ledger.Revenue, -70}, {ledger.PrepaidPromo, 70}},
			{{ledger.Revenue, -9}, {ledger.Receivable, 9}},
			nil,
			{{ledger.Revenue, -60}, {ledger.PrepaidPromo, 30}, {ledger.PrepaidPaid, 30}},
			{{ledger.Revenue, -40}, {ledger.PrepaidPaid, 20}, {ledger.Receivable, 20}},
		}
		var txns []ledger.Txn
		for i, entries := range split {
			if !slices.Equal(entries, want[i]) {
				t.Errorf("charge %d: %v, want %v", i, entries, want[i])
			}
			if i != 1 && len(entries) > 0 {
				txns = append(txns, ledger.Txn{Org: org, Kind: ledger.Usage, Entries: entries})
			}
		}
		_, err = l.Post(t.Context(), txns)
		return err
	})
	b := balances(t, d, org)
	if b[ledger.PrepaidPromo] != 0 || b[ledger.PrepaidPaid] != 0 || b[ledger.Receivable] != 20 || b[ledger.Revenue] != -170 {
		t.Errorf("%v", b)
	}
	system(t, d, func(tx pgx.Tx) error {
		l, err := ledger.Lock(t.Context(), tx, []ids.ID{org})
		if err != nil {
			return err
		}
		if split, err := l.Spend([]ledger.Charge{{org, -1}}); err == nil {
			t.Errorf("a negative charge is split: %v", split)
		}
		if split, err := l.Spend([]ledger.Charge{{poor, 1}}); err == nil {
			t.Errorf("what is not locked is spent: %v", split)
		}
		if _, err := l.Post(t.Context(), []ledger.Txn{granted(poor, ledger.PrepaidPaid, 1)}); err == nil {
			t.Error("what is not locked is posted")
		}
		return nil
	})
	mustBeSound(t, d)
}

// Raters and grants work on the same organizations at once, each in an order of its own: no deadlock, nothing lost.
func TestConcurrentPostingLosesNothing(t *testing.T) {
	d := dbtest.New(t)
	orgs := make([]ids.ID, 4)
	for i := range orgs {
		orgs[i] = newOrg(t, d)
	}
	const workers, rounds = 8, 15
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for r := range rounds {
				if w%2 == 0 {
					post(t, d, granted(orgs[(w+r)%len(orgs)], ledger.PrepaidPaid, 100))
					continue
				}
				system(t, d, func(tx pgx.Tx) error {
					charges := make([]ledger.Charge, len(orgs))
					for i := range orgs {
						charges[i] = ledger.Charge{Org: orgs[(i+w+r)%len(orgs)], Amount: 10}
					}
					l, err := ledger.Lock(t.Context(), tx, orgs)
					if err != nil {
						return err
					}
					split, err := l.Spend(charges)
					if err != nil {
						return err
					}
					txns := make([]ledger.Txn, len(orgs))
					for i, entries := range split {
						entries = append(entries, ledger.Debit(ledger.Overrun, 1), ledger.Credit(ledger.Revenue, 1))
						txns[i] = ledger.Txn{Org: charges[i].Org, Kind: ledger.Usage, Entries: entries}
					}
					_, err = l.Post(t.Context(), txns)
					return err
				})
			}
		})
	}
	wg.Wait()
	var cash, revenue money.Nano
	for _, org := range orgs {
		b := balances(t, d, org)
		cash, revenue = cash+b[ledger.Cash], revenue+b[ledger.Revenue]
	}
	if cash != workers/2*rounds*100 || revenue != -workers/2*rounds*11*money.Nano(len(orgs)) {
		t.Errorf("cash %d, revenue %d", cash, revenue)
	}
	mustBeSound(t, d)
}

// Any transactions: the book sums to zero, the projection is the entries' sums, a rebuild changes nothing, and a damaged
// projection is found and mended.
func TestTheProjectionIsDisposable(t *testing.T) {
	d := dbtest.New(t)
	accounts := []ledger.Account{ledger.PrepaidPaid, ledger.PrepaidPromo, ledger.Receivable, ledger.Revenue, ledger.Fees, ledger.Tax}
	rapid.Check(t, func(t *rapid.T) {
		org := newOrg(t, d)
		want := make(map[ledger.Account]money.Nano)
		var txns []ledger.Txn
		for range rapid.IntRange(1, 12).Draw(t, "transactions") {
			amount := money.Nano(rapid.Int64Range(1, 1e15).Draw(t, "amount"))
			pair := rapid.Permutation(accounts).Draw(t, "accounts")
			txns = append(txns, ledger.Txn{Org: org, Kind: ledger.Adjustment, Entries: []ledger.Entry{
				ledger.Debit(pair[0], amount), ledger.Credit(pair[1], amount/2), ledger.Credit(pair[2], amount-amount/2)}})
			want[pair[0]] += amount
			want[pair[1]] -= amount / 2
			want[pair[2]] -= amount - amount/2
		}
		system(t, d, func(tx pgx.Tx) error { _, err := ledger.PostMany(context.Background(), tx, txns); return err })
		got := balances(t, d, org)
		for _, a := range accounts {
			if got[a] != want[a] {
				t.Fatalf("%s is %s, want %s", a, got[a], want[a])
			}
		}
	})
	mustBeSound(t, d)
	system(t, d, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "update ledger_balances set amount_nano = amount_nano + 1 where ctid = (select ctid from ledger_balances limit 1)")
		return err
	})
	system(t, d, func(tx pgx.Tx) error {
		r, err := ledger.Verify(t.Context(), tx)
		if err == nil && (r.Sound() || len(r.Drifted) != 1) {
			t.Errorf("damage was not found: %+v", r)
		}
		return err
	})
	system(t, d, func(tx pgx.Tx) error { return ledger.Rebuild(t.Context(), tx) })
	mustBeSound(t, d)
}
