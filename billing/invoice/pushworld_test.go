package invoice_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/inbox"
	"millrace/billing/invoice"
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
	stripeKey    = "sk_test_0123456789abcdef"
	stripeSecret = "whsec_0123456789abcdef"
)

// tb is what *testing.T and *rapid.T share.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// shop is invoices on a real database, and a payment provider that is not real.
type shop struct {
	t       tb
	url     string
	db      *db.DB
	clock   *clock.Manual
	fake    *stripefake.Server
	gateway *stripegw.Gateway
	topups  *topup.Service
	desk    *credit.Desk
	bills   *invoice.Service
	collect *invoice.Collector
	inbox   *inbox.Inbox
	org     ids.ID
	month   time.Time
	heard   int // events that are told already
}

type silent struct{}

func (silent) Publish(string, []byte) error { return nil }

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, url: dbtest.URL(t), clock: clock.NewManual(time.Now().UTC())}
	var err error
	if s.db, err = db.Open(t.Context(), s.url, db.Options{MaxConns: 10}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.db.Close)
	s.system(func(tx pgx.Tx) (err error) { s.month, err = q.New(tx).InvoicingStart(context.Background()); return err })
	s.clock.Advance(s.month.AddDate(0, 1, 3).Sub(s.clock.Now()))
	s.provider(t)
	s.newOrg()
	return s
}

func (s *shop) provider(t *testing.T) {
	t.Helper()
	var err error
	if s.fake, err = stripefake.New(stripefake.Config{Clock: s.clock, Key: stripeKey, Secret: stripeSecret, PageURL: "http://pay.example"}); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(s.fake.API())
	t.Cleanup(api.Close)
	if s.gateway, err = stripegw.New(stripegw.Config{Key: stripeKey, Webhooks: []stripegw.Secret{stripeSecret}, URL: api.URL, Pace: 100_000}); err != nil {
		t.Fatal(err)
	}
	s.topups = topup.New(topup.Config{DB: s.db, Clock: s.clock, Notify: silent{}, Gateway: s.gateway, PublicURL: "http://console.example"})
	s.desk = credit.NewDesk(s.db, s.clock, silent{})
	s.bills = invoice.New(invoice.Config{DB: s.db, Clock: s.clock, Notify: silent{}, Desk: s.desk, Seller: invoice.Seller{Name: "Millwright GmbH"}})
	s.collect = s.collector(s.gateway.Till())
	s.inbox = inbox.New(s.db, s.clock, inbox.Dispatch(s.topups, s.collect))
}

func (s *shop) collector(till invoice.Till) *invoice.Collector {
	return invoice.NewCollector(s.bills, invoice.CollectConfig{Till: till, Customers: s.topups, PublicURL: "http://console.example"})
}

// newOrg makes a customer with a credit limit of 1,000 USD; the shop goes on with it.
func (s *shop) newOrg() {
	s.t.Helper()
	org, user := ids.New(), ids.New()
	s.exec("insert into orgs (org_id, name) values ($1, 'Acme')", org)
	s.exec("insert into users (id, email) values ($1, $2)", user, "owner-"+user.String()+"@acme.example")
	s.exec("insert into members (org_id, user_id, role) values ($1, $2, 'owner')", org, user)
	s.org = org
	s.must(s.desk.SetCreditLimit(context.Background(), tenants.System(), org, 1000*money.NanoPerUSD))
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) system(fn func(tx pgx.Tx) error) {
	s.t.Helper()
	s.must(s.db.InTx(context.Background(), db.System(), fn))
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	s.system(func(tx pgx.Tx) error { _, err := tx.Exec(context.Background(), sql, args...); return err })
}

func (s *shop) number(sql string, args ...any) (n int64) {
	s.t.Helper()
	s.system(func(tx pgx.Tx) error { return tx.QueryRow(context.Background(), sql, args...).Scan(&n) })
	return n
}

// bill makes a final invoice of the shop's month with lines of these cents. What they come to is receivable.
func (s *shop) bill(cents ...int64) ids.ID {
	s.t.Helper()
	ctx, id, total := context.Background(), ids.New(), int64(0)
	for _, c := range cents {
		total += c
	}
	owed := money.Nano(total) * invoice.NanoPerCent
	s.system(func(tx pgx.Tx) error {
		if err := q.New(tx).EnsureBalanceBudget(ctx, q.EnsureBalanceBudgetParams{OrgID: s.org, ID: ids.New(), PeriodStart: time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update budgets set settled_nano = settled_nano + $2 where org_id = $1 and kind = 'balance'", s.org, int64(owed)); err != nil {
			return err
		}
		_, err := ledger.PostMany(ctx, tx, []ledger.Txn{{ID: ids.At(s.month.Add(time.Hour)), Org: s.org, Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, owed), ledger.Credit(ledger.Revenue, owed)}}})
		return err
	})
	s.exec(`insert into invoices (org_id, id, month, state, covered_from, covered_to, charged_nano, promo_nano, prepaid_nano, receivable_nano, overrun_nano, subtotal_cents, total_cents, drafted_at)
		values ($1, $2, $3, 'ready', $4, $5, $6, 0, 0, $6, 0, $7, $7, $8)`, s.org, id, s.month, s.month, invoice.FreezeOf(s.month), int64(owed), total, s.clock.Now())
	for i, c := range cents {
		s.exec(`insert into invoice_lines (org_id, invoice_id, position, kind, usage_month, model, class, quantity, amount_nano, cents)
			values ($1, $2, $3, 'usage', $4, 'tiny', 'output', 1000, $5, $6)`, s.org, id, i+1, s.month, c*int64(invoice.NanoPerCent), c)
	}
	_, err := s.bills.Finalize(ctx, tenants.System(), s.org, id)
	s.must(err)
	return id
}

// keepCard gives the customer a card that invoices may be charged to.
func (s *shop) keepCard(number string) {
	s.t.Helper()
	by := tenants.Actor{User: ids.New(), Org: s.org, Role: tenants.Owner}
	s.giveCard(by, number)
	s.agree(by)
}

// turn lets the worker do what is due.
func (s *shop) turn() {
	s.t.Helper()
	s.must(s.collect.Turn(context.Background()))
}

// hear brings the payment provider's new events in, in their order.
func (s *shop) hear() {
	s.t.Helper()
	all := s.fake.Messages()
	for _, m := range all[s.heard:] {
		e, err := s.gateway.Parse(m.Body, m.Signature)
		s.must(err)
		_, err = s.inbox.Store(context.Background(), inbox.Webhook, e)
		s.must(err)
	}
	s.heard = len(all)
	s.work()
}

// work works the inbox off.
func (s *shop) work() {
	s.t.Helper()
	for {
		worked, err := s.inbox.One(context.Background())
		s.must(err)
		if !worked {
			return
		}
	}
}

func (s *shop) get(id ids.ID) invoice.Invoice {
	s.t.Helper()
	i, err := s.bills.Get(context.Background(), tenants.System(), s.org, id)
	s.must(err)
	return i
}

func (s *shop) how(id ids.ID) invoice.Collection {
	s.t.Helper()
	c, err := s.collect.Collection(context.Background(), tenants.System(), s.org, id)
	s.must(err)
	return c
}

// accounts are the organization's books.
func (s *shop) accounts() (a map[ledger.Account]money.Nano) {
	s.t.Helper()
	s.system(func(tx pgx.Tx) (err error) { a, err = ledger.Balances(context.Background(), tx, s.org); return err })
	return a
}

// sound checks that the books balance, and that what may be spent agrees with them.
func (s *shop) sound() {
	s.t.Helper()
	s.must(s.db.InTx(context.Background(), db.System().Snapshot(), func(tx pgx.Tx) error {
		r, err := ledger.Verify(context.Background(), tx)
		if err == nil && !r.Sound() {
			s.t.Errorf("the books are not sound: %+v", r)
		}
		return err
	}))
	a, b := s.accounts(), q.BalanceBudgetRow{}
	var limit int64
	s.system(func(tx pgx.Tx) (err error) {
		if b, err = q.New(tx).BalanceBudget(context.Background(), s.org); err == nil {
			err = tx.QueryRow(context.Background(), "select credit_limit_nano from orgs where org_id = $1", s.org).Scan(&limit)
		}
		return err
	})
	if got, want := money.Nano(b.CapNano-b.SettledNano), money.Nano(limit)-a[ledger.Receivable]-a[ledger.PrepaidPaid]-a[ledger.PrepaidPromo]; got != want {
		s.t.Errorf("the balance is %s by its budget and %s by the books", got, want)
	}
}

func usd(cents int64) money.Nano { return money.Nano(cents) * invoice.NanoPerCent }
