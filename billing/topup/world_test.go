package topup_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/inbox"
	"millrace/billing/ledger"
	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/tenants"
)

const (
	testKey    = "sk_test_0123456789abcdef"
	testSecret = "whsec_0123456789abcdef"
	consoleURL = "http://console.example"
)

// tb is what *testing.T and *rapid.T share.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// world is top-ups on a real database and a payment provider that is not real.
type world struct {
	t       tb
	db      *db.DB
	clock   *clock.Manual
	fake    *stripefake.Server
	gateway *stripegw.Gateway
	topups  *topup.Service
	inbox   *inbox.Inbox
	org     ids.ID
	owner   tenants.Actor
	heard   int // events of the payment provider that are another customer's
}

type silent struct{}

func (silent) Publish(string, []byte) error { return nil }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), clock: clock.NewManual(time.Now().UTC())}
	w.provider(t)
	w.newOrg()
	return w
}

// provider starts the payment provider and what talks to it.
func (w *world) provider(t *testing.T) {
	t.Helper()
	var err error
	if w.fake, err = stripefake.New(stripefake.Config{Clock: w.clock, Key: testKey, Secret: testSecret, PageURL: "http://pay.example"}); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(w.fake.API())
	t.Cleanup(api.Close)
	if w.gateway, err = stripegw.New(stripegw.Config{Key: testKey, Webhooks: []stripegw.Secret{testSecret}, URL: api.URL, Pace: 10_000}); err != nil {
		t.Fatal(err)
	}
	w.listen(w.gateway)
}

// listen makes top-ups of what a gateway tells.
func (w *world) listen(g topup.Gateway) {
	w.topups = topup.New(topup.Config{DB: w.db, Clock: w.clock, Notify: silent{}, Gateway: g, PublicURL: consoleURL})
	w.inbox = inbox.New(w.db, w.clock, w.topups)
}

// newOrg makes a customer with an owner; the world goes on with it.
func (w *world) newOrg() {
	w.t.Helper()
	org, user := ids.New(), ids.New()
	w.system(func(tx pgx.Tx) error {
		for _, x := range []struct {
			sql  string
			args []any
		}{
			{"insert into orgs (org_id, name, time_zone) values ($1, 'Acme', 'Europe/Berlin')", []any{org}},
			{"insert into users (id, email) values ($1, $2)", []any{user, "owner-" + user.String() + "@acme.example"}},
			{"insert into members (org_id, user_id, role) values ($1, $2, 'owner')", []any{org, user}},
		} {
			if _, err := tx.Exec(context.Background(), x.sql, x.args...); err != nil {
				return err
			}
		}
		return nil
	})
	w.org, w.owner = org, tenants.Actor{User: user, Org: org, Role: tenants.Owner}
}

func (w *world) system(fn func(tx pgx.Tx) error) {
	w.t.Helper()
	w.must(w.db.InTx(context.Background(), db.System(), fn))
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// start begins a top-up and gives it with its page.
func (w *world) start(usd int64, keep bool) (topup.Topup, string) {
	w.t.Helper()
	t, err := w.topups.Start(context.Background(), w.owner, topup.NewTopup{Org: w.org, ID: ids.New(), Cents: usd * 100, KeepCard: keep})
	w.must(err)
	return t, w.row(t.ID).session
}

// pay is the customer's click on the page.
func (w *world) pay(session string, way stripefake.Way) {
	w.t.Helper()
	if problem := w.fake.Pay(session, way); problem != "" {
		w.t.Fatal(problem)
	}
}

// funded is a top-up that is paid and credited.
func (w *world) funded(usd int64, keep bool, number string) topup.Topup {
	w.t.Helper()
	t, session := w.start(usd, keep)
	w.pay(session, stripefake.Way{Number: number, Confirmed: true})
	return w.fulfil(t.ID)
}

func (w *world) fulfil(id ids.ID) topup.Topup {
	w.t.Helper()
	t, err := w.topups.Fulfil(context.Background(), w.org, id)
	w.must(err)
	return t
}

type row struct{ session, payment string }

func (w *world) row(id ids.ID) (r row) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) error {
		return tx.QueryRow(context.Background(), "select coalesce(session_id, ''), coalesce(payment_id, '') from topups where id = $1", id).Scan(&r.session, &r.payment)
	})
	return r
}

// books are the organization's accounts and its balance.
type books struct {
	accounts  map[ledger.Account]money.Nano
	cap       money.Nano
	available money.Nano
}

func (w *world) books() (b books) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) (err error) {
		if b.accounts, err = ledger.Balances(context.Background(), tx, w.org); err != nil {
			return err
		}
		row, err := q.New(tx).BalanceBudget(context.Background(), w.org)
		if err == pgx.ErrNoRows {
			return nil
		}
		b.cap, b.available = money.Nano(row.CapNano), money.Nano(row.CapNano-row.SettledNano-row.OutstandingNano)
		return err
	})
	return b
}

// sound checks that the whole book sums to zero and that its projection holds.
func (w *world) sound() {
	w.t.Helper()
	w.must(w.db.InTx(context.Background(), db.System().Snapshot(), func(tx pgx.Tx) error {
		r, err := ledger.Verify(context.Background(), tx)
		if err == nil && !r.Sound() {
			w.t.Errorf("the books are not sound: %+v", r)
		}
		if err != nil {
			return err
		}
		p, err := q.New(tx).TopupsAgainstLedger(context.Background())
		if p.Difference != 0 {
			w.t.Errorf("the payment provider has %s by the top-ups, %s by the ledger", money.Nano(p.Topups), money.Nano(p.Ledger))
		}
		return err
	}))
}

// spend charges the organization for tokens.
func (w *world) spend(usd int64) {
	w.t.Helper()
	n := money.Nano(usd) * money.NanoPerUSD
	w.system(func(tx pgx.Tx) error {
		l, err := ledger.Lock(context.Background(), tx, []ids.ID{w.org})
		if err != nil {
			return err
		}
		split, err := l.Spend([]ledger.Charge{{Org: w.org, Amount: n}})
		if err != nil {
			return err
		}
		if _, err := l.Post(context.Background(), []ledger.Txn{{Org: w.org, Kind: ledger.Usage, Entries: split[0]}}); err != nil {
			return err
		}
		_, err = tx.Exec(context.Background(), "update budgets set settled_nano = settled_nano + $2 where org_id = $1 and kind = 'balance'", w.org, int64(n))
		return err
	})
}

// mails are the subjects of what was written to a person, oldest first.
func (w *world) mails() (subjects []string) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) error {
		rows, err := tx.Query(context.Background(), "select subject from outbox where recipient = $1 order by id", "owner-"+w.owner.User.String()+"@acme.example")
		if err != nil {
			return err
		}
		subjects, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return subjects
}

func usd(n int64) money.Nano { return money.Nano(n) * money.NanoPerUSD }

func newID() ids.ID { return ids.New() }

// operator is who looks at the inbox.
var operator = tenants.System()

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.system(func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), sql, args...)
		return err
	})
}

// paymentOf is the payment that was made on a page.
func (w *world) paymentOf(session string) string {
	w.t.Helper()
	x, err := w.gateway.Session(context.Background(), session)
	w.must(err)
	return x.Payment
}
