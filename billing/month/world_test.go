package month_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/ledger"
	"millrace/billing/month"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

// The tests' months: three that are frozen, and the one that runs.
var (
	september = time.Date(2026, time.September, 1, 0, 0, 0, 0, time.UTC)
	october   = september.AddDate(0, 1, 0)
	november  = september.AddDate(0, 2, 0)
	december  = september.AddDate(0, 3, 0)
	now       = time.Date(2026, time.December, 10, 13, 0, 0, 0, time.UTC)
	months    = []time.Time{september, october, november, december}
)

type world struct {
	*month.Service
	t     *testing.T
	url   string
	db    *db.DB
	clock *clock.Manual
	root  tenants.Actor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: dbtest.URL(t), clock: clock.NewManual(now), root: tenants.System()}
	var err error
	if w.db, err = db.Open(t.Context(), w.url, db.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.db.Close)
	w.Service = month.New(w.db, w.clock)
	return w
}

func (w *world) in(fn func(tx pgx.Tx) error) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), db.System(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.in(func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql, args...)
		return err
	})
}

// superuser runs what no role of the program may do.
func (w *world) superuser(sql string, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), dbtest.Superuser(w.t, w.url))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

// customer makes an organization that came on the first of September.
func (w *world) customer(name string) ids.ID {
	w.t.Helper()
	id := ids.New()
	w.exec("INSERT INTO orgs (org_id, name, created_at) VALUES ($1, $2, $3)", id, name, september)
	return id
}

// post books entries at a moment.
func (w *world) post(org ids.ID, at time.Time, kind ledger.Kind, entries ...ledger.Entry) {
	w.t.Helper()
	w.in(func(tx pgx.Tx) error {
		_, _, err := ledger.Post(w.t.Context(), tx, ledger.Txn{ID: ids.At(at), Org: org, Kind: kind, Entries: entries})
		return err
	})
}

// use books usage as the rater does: out of credit, and what that does not cover on account.
func (w *world) use(org ids.ID, at, of time.Time, charged, overrun money.Nano) (paid, promo, account money.Nano) {
	w.t.Helper()
	w.in(func(tx pgx.Tx) error {
		locked, err := ledger.Lock(w.t.Context(), tx, []ids.ID{org})
		if err != nil {
			return err
		}
		split, err := locked.Spend([]ledger.Charge{{Org: org, Amount: charged}})
		if err != nil {
			return err
		}
		paid, promo, account = 0, 0, 0
		for _, e := range split[0] {
			switch e.Account {
			case ledger.PrepaidPaid:
				paid += e.Amount
			case ledger.PrepaidPromo:
				promo += e.Amount
			case ledger.Receivable:
				account += e.Amount
			}
		}
		list := append(split[0], ledger.Debit(ledger.Overrun, overrun), ledger.Credit(ledger.Revenue, overrun))
		_, err = locked.Post(w.t.Context(), []ledger.Txn{{ID: ids.At(at), Org: org, Kind: ledger.Usage, Month: ledger.MonthOf(of), Entries: list}})
		return err
	})
	return paid, promo, account
}

func (w *world) report(of time.Time) month.Report {
	w.t.Helper()
	r, err := w.Report(w.t.Context(), w.root, of)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// compared notes a comparison of the books, as the worker does.
func (w *world) compared(watermark time.Time, unexplained bool) {
	w.t.Helper()
	w.exec("INSERT INTO reconcile_runs (id, at, watermark, unexplained, report) VALUES ($1, $2, $3, $4, '{}')", ids.New(), w.clock.Now(), watermark, unexplained)
}

// invoiced notes that a month's invoices are made.
func (w *world) invoiced(of time.Time) {
	w.t.Helper()
	w.exec("INSERT INTO invoice_months (month, drafted_at) VALUES ($1, $2)", of, w.clock.Now())
}
