package alert_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/billing/hook"
	"millrace/billing/period"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/seal"
	"millrace/tenants"
)

const usd = money.NanoPerUSD

type nobody struct{}

func (nobody) Publish(string, []byte) error { return nil }

type world struct {
	t      *testing.T
	db     *db.DB
	clock  *clock.Manual
	desk   *credit.Desk
	teller *alert.Teller
	org    ids.ID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), clock: clock.NewManual(time.Now().UTC().Truncate(time.Second)), org: ids.New()}
	w.desk = credit.NewDesk(w.db, w.clock, nobody{})
	w.teller = alert.New(w.db, w.clock, "https://millrace.example")
	w.exec("insert into orgs (org_id, name, time_zone) values ($1, 'Acme', 'Asia/Kolkata')", w.org)
	for _, role := range []string{"owner", "developer"} {
		id := ids.New()
		w.exec("insert into users (id, email) values ($1, $2)", id, role+"@acme.example")
		w.exec("insert into members (org_id, user_id, role) values ($1, $2, $3)", w.org, id, role)
	}
	return w
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(w.t.Context(), sql, args...); return err })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) texts(sql string) (list []string) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		rows, err := tx.Query(w.t.Context(), sql)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// spend moves the cap's budgets as the rater does: the alert is noted in the same transaction.
func (w *world) spend(amount money.Nano, failure error) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		rows, err := tx.Query(w.t.Context(), "update budgets set settled_nano = settled_nano + $2 where org_id = $1 and kind = 'cap' returning id", w.org, int64(amount))
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[ids.ID])
		if err != nil {
			return err
		}
		orgs := make([]ids.ID, len(list))
		for i := range orgs {
			orgs[i] = w.org
		}
		if err := q.New(tx).NoteAlerts(w.t.Context(), q.NoteAlertsParams{Orgs: orgs, Ids: list}); err != nil {
			return err
		}
		return failure
	})
	if !errors.Is(err, failure) {
		w.t.Fatal(err)
	}
}

func (w *world) turn() {
	w.t.Helper()
	if _, err := w.teller.Turn(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) cap(alertOnly bool) {
	w.t.Helper()
	_, err := w.desk.SetCap(w.t.Context(), tenants.System(), w.org, credit.Cap{Scope: credit.OrgScope, ScopeID: w.org, Period: period.Month, Amount: 10 * usd, AlertOnly: alertOnly})
	if err != nil {
		w.t.Fatal(err)
	}
}

var errCrash = errors.New("a crash before the commit")

func TestEachThresholdIsToldOnce(t *testing.T) {
	w := newWorld(t)
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	hooks := hook.New(w.db, master, w.clock, false)
	if _, _, err := hooks.Add(t.Context(), tenants.System(), w.org, "https://acme.example/in"); err != nil {
		t.Fatal(err)
	}
	w.cap(false)
	w.spend(4*usd, nil)
	w.turn()
	w.spend(usd, errCrash)
	w.turn()
	if got := w.texts("select subject from outbox"); len(got) != 0 {
		t.Fatalf("told before anything happened: %q", got)
	}
	w.spend(usd, nil)
	// A teller that fails behind its work tells nothing, and the next one all.
	dying, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.teller.Turn(dying); err == nil {
		t.Error("a dead teller told something")
	}
	for range 2 {
		w.turn()
	}
	w.spend(4*usd, nil) // 80 and then, in one step more, 100: one mail each
	w.turn()
	w.spend(9*usd, nil)
	w.turn()
	want := []string{"100 % of the monthly cap of your organization Acme is used", "50 % of the monthly cap of your organization Acme is used", "80 % of the monthly cap of your organization Acme is used"}
	if got := w.texts("select subject from outbox order by subject"); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%q", got)
	}
	if got := w.texts("select distinct recipient from outbox"); len(got) != 1 || got[0] != "owner@acme.example" {
		t.Errorf("told %q", got)
	}
	if got := w.texts("select body from webhook_deliveries"); len(got) != 3 || !strings.Contains(strings.Join(got, ""), `"percent":80`) {
		t.Errorf("%q", got)
	}
	list, err := w.teller.Alerts(t.Context(), tenants.Actor{Org: w.org, Role: tenants.Viewer}, w.org)
	if err != nil || len(list) != 3 || list[0].Percent != 100 || list[0].ToldAt == nil {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestSeveralThresholdsAtOnceAreOneMail(t *testing.T) {
	w := newWorld(t)
	w.cap(true)
	w.spend(11*usd, nil)
	w.turn()
	got := w.texts("select subject || body from outbox")
	if len(got) != 1 || !strings.HasPrefix(got[0], "100 %") || !strings.Contains(got[0], "only alerts: requests go on") {
		t.Errorf("%q", got)
	}
}

func TestEndingCreditIsWarnedAboutOnceADistance(t *testing.T) {
	w := newWorld(t)
	_, _, err := w.desk.Grant(t.Context(), tenants.System(), credit.GrantInput{Org: w.org, Kind: credit.Promotional, Amount: 12 * usd, Reason: "r", IdempotencyKey: "k",
		ExpiresAt: w.clock.Now().AddDate(0, 0, 40)})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct{ days, mails int }{{0, 0}, {11, 1}, {1, 1}, {22, 2}, {1, 2}, {10, 2}} {
		w.clock.Advance(time.Duration(step.days) * 24 * time.Hour)
		w.turn()
		if got := w.texts("select subject from outbox"); len(got) != step.mails {
			t.Errorf("step %d: %q", i, got)
		}
	}
	if got := w.texts("select body from outbox"); !strings.Contains(got[0], "$12.00 of your promotional credit") {
		t.Errorf("%q", got)
	}
}
