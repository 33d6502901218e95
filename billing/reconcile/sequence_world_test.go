package reconcile_test

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/credit"
	"millrace/billing/export"
	"millrace/billing/inbox"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/price"
	"millrace/billing/rate"
	"millrace/billing/stripefake"
	"millrace/billing/stripegw"
	"millrace/billing/topup"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/tenants"
)

const (
	payKey     = "sk_test_0123456789abcdef"
	paySecret  = "whsec_0123456789abcdef"
	pageLife   = 31 * time.Minute // of a payment page, and a little
	recallWait = 20 * time.Millisecond
	creditLife = 2 * time.Hour // of credit that ends within a sequence
)

// house is every real part of the money path on one database, with a payment provider that is not real. It outlives a
// sequence. One that failed leaves it behind, so that smaller ones are looked for on sound books.
type house struct {
	db       *db.DB
	bus      *bus.Bus
	log      *usagelog.Log
	far      ahead         // the clock of invoices: what can be booked during the test is frozen
	last     time.Time     // the last month in which the test can book anything
	pay      *clock.Manual // of the payment provider, and of who talks to it
	desk     *credit.Desk
	prices   *price.Service
	fake     *stripefake.Server
	gateway  *stripegw.Gateway
	topups   *topup.Service
	inbox    *inbox.Inbox
	exports  *export.Service
	fencer   *rate.Fencer
	locks    string
	unit     ids.ID
	stop     func() // ends the rater
	unusable bool
	lives    int // that began in it
}

// ahead is a clock that is so much ahead of the machine's.
type ahead time.Duration

func (a ahead) Now() time.Time { return time.Now().Add(time.Duration(a)) }

func openHouse(t *testing.T) *house {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := &house{db: dbtest.New(t), bus: dbtest.Bus(t), pay: clock.NewManual(time.Now().UTC()), locks: t.TempDir(), unit: ids.New()}
	h.last = ledger.MonthOf(time.Now().Add(24 * time.Hour)) // the month may turn while the test runs
	h.far = ahead(time.Until(invoice.FreezeOf(h.last).Add(time.Hour)))
	h.desk, h.prices, h.exports = credit.NewDesk(h.db, clock.System, h.bus), price.New(h.db, clock.System, h.bus), export.New(h.db, clock.System)
	model := ids.New()
	must(h.newModel(t.Context(), model))
	must(h.exec(t.Context(), "INSERT INTO units (id, name, model_id, engine, base_url, upstream_model) VALUES ($1, 'attached', $2, 'vllm', 'http://127.0.0.1:1', 'm')", h.unit, model))
	var err error
	h.log, err = usagelog.Open(t.Context(), usagelog.Config{Bus: h.bus, Clock: clock.System})
	must(err)
	h.fencer, err = rate.NewFencer(rate.FencerConfig{DB: h.db, Bus: h.bus, Clock: clock.System, Logger: quiet, Grace: time.Nanosecond})
	must(err)
	h.fake, err = stripefake.New(stripefake.Config{Clock: h.pay, Key: payKey, Secret: paySecret, PageURL: "http://pay.example"})
	must(err)
	api := httptest.NewServer(h.fake.API())
	h.gateway, err = stripegw.New(stripegw.Config{Key: payKey, Webhooks: []stripegw.Secret{paySecret}, URL: api.URL, Pace: 10_000})
	must(err)
	h.topups = topup.New(topup.Config{DB: h.db, Clock: h.pay, Notify: h.bus, Gateway: h.gateway, PublicURL: "http://console.example"})
	h.inbox = inbox.New(h.db, h.pay, h.topups)
	must(h.startRater())
	t.Cleanup(func() {
		h.stop()
		api.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.log.Close(ctx)
	})
	return h
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// startRater begins a rater's life.
func (h *house) startRater() error {
	r, err := rate.New(rate.Config{DB: h.db, Bus: h.bus, Clock: clock.System, Logger: quiet, Pace: time.Millisecond})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	h.stop = func() { cancel(); wg.Wait() }
	return nil
}

// invoicing is a service of its own: what it knows is in the database.
func (h *house) invoicing() *invoice.Service {
	return invoice.New(invoice.Config{DB: h.db, Clock: h.far, Notify: h.bus, Seller: invoice.Seller{Name: "Millwright GmbH"}, PublicURL: "http://console.example"})
}

func (h *house) in(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return h.db.InTx(ctx, db.System(), fn)
}

func (h *house) exec(ctx context.Context, sql string, args ...any) error {
	return h.in(ctx, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sql, args...); return err })
}

// newCustomer makes an organization with an owner, a project and a key.
func (h *house) newCustomer(ctx context.Context, zone string) (credit.Payer, tenants.Actor, error) {
	p, user := credit.Payer{Org: ids.New(), Project: ids.New(), Key: ids.New(), TimeZone: zone}, ids.New()
	err := h.in(ctx, func(tx pgx.Tx) error {
		for _, x := range []struct {
			sql  string
			args []any
		}{
			{"INSERT INTO orgs (org_id, name, time_zone) VALUES ($1, 'Acme', $2)", []any{p.Org, zone}},
			{"INSERT INTO users (id, email) VALUES ($1, $2)", []any{user, "owner-" + user.String() + "@acme.example"}},
			{"INSERT INTO members (org_id, user_id, role) VALUES ($1, $2, 'owner')", []any{p.Org, user}},
			{"INSERT INTO projects (org_id, id, name) VALUES ($1, $2, 'Default')", []any{p.Org, p.Project}},
			{"INSERT INTO api_keys (org_id, id, project_id, name, hash, prefix, last4) VALUES ($1, $2, $3, 'k', $4, 'mr', '1234')", []any{p.Org, p.Key, p.Project, p.Key[:]}},
		} {
			if _, err := tx.Exec(ctx, x.sql, x.args...); err != nil {
				return err
			}
		}
		return nil
	})
	return p, tenants.Actor{User: user, Org: p.Org, Role: tenants.Owner}, err
}

// newModel makes a model for sale.
func (h *house) newModel(ctx context.Context, id ids.ID) error {
	return h.exec(ctx, "INSERT INTO models (id, name, context_tokens, max_output_tokens) VALUES ($1, $2, 100000, 100000)", id, modelName(id))
}

func modelName(id ids.ID) string { return "acme/" + id.String() }
