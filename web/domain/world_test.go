package domain_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/billing/export"
	"millrace/billing/hook"
	"millrace/billing/invoice"
	"millrace/billing/margin"
	"millrace/billing/month"
	"millrace/billing/price"
	"millrace/billing/rate"
	"millrace/billing/report"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/pki"
	"millrace/internal/seal"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/tenants"
	"millrace/tenants/keys"
	"millrace/web"
	"millrace/web/domain"
	"millrace/web/live"
	"millrace/web/session"
)

// begin is when the world is made. At the end it is 1:40 on 1 December in India, and still November in UTC.
var (
	begin = time.Date(2026, time.November, 5, 3, 0, 0, 0, time.UTC)
	now   = time.Date(2026, time.November, 30, 20, 10, 0, 0, time.UTC)
)

const (
	patience  = 20 * time.Second // a bound for what should take milliseconds
	publicURL = "http://millrace.example"
	hubURL    = "https://hub.millrace.example:8443"
)

// world is the whole domain on a real database and bus, and the console on it.
type world struct {
	t        testing.TB
	db       *db.DB
	bus      *bus.Bus
	master   *seal.Master
	clock    *clock.Manual
	tenants  *tenants.Service
	keys     *keys.Service
	desk     *credit.Desk
	prices   *price.Service
	report   *report.Service
	models   *catalogue.Catalogue
	hub      *hub.Hub
	lag      *report.Lag
	purse    *credit.Allotments
	log      *usagelog.Log
	deps     domain.Deps
	site     domain.Site
	console  *httptest.Server
	root     tenants.Actor
	contexts map[string]context.Context
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, db: invoicedSince(t, begin), bus: dbtest.Bus(t), clock: clock.NewManual(begin), root: tenants.System(), contexts: map[string]context.Context{}}
	master, err := seal.Parse(seal.Generate())
	w.must(err)
	w.master = master
	w.tenants = tenants.New(w.db, master, w.clock, w.bus, domain.LinkURL(publicURL))
	w.keys = keys.New(w.db, master, w.clock, w.bus)
	w.desk = credit.NewDesk(w.db, w.clock, w.bus)
	w.prices = price.New(w.db, w.clock, w.bus)
	w.report = report.New(w.db, w.clock)
	w.models = catalogue.New(catalogue.Options{DB: w.db, Bus: w.bus, Sealer: master, Clock: w.clock})
	w.lag, err = report.ListenForLag(w.bus, w.clock)
	w.must(err)
	t.Cleanup(w.lag.Close)
	ca, _, err := pki.NewCA(clock.System)
	w.must(err)
	w.hub = hub.New(hub.Config{DB: w.db, Bus: w.bus, CA: ca, Clock: w.clock, Log: slog.New(slog.DiscardHandler)})
	w.run(func(ctx context.Context) { _ = w.hub.Run(ctx) })
	w.purse, err = credit.Open(t.Context(), credit.Config{DB: w.db, Bus: w.bus, Clock: w.clock, Process: "test", LockDir: t.TempDir(), Validity: 365 * 24 * time.Hour})
	w.must(err)
	w.log, err = usagelog.Open(t.Context(), usagelog.Config{Bus: w.bus, Clock: w.clock})
	w.must(err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = w.purse.Close(ctx, credit.LogEnd{})
		_ = w.log.Close(ctx)
	})
	bills := invoice.New(invoice.Config{DB: w.db, Clock: w.clock, Notify: w.bus, Desk: w.desk, Seller: invoice.Seller{Name: "Millrace Operations Ltd"}})
	w.deps = domain.Deps{DB: w.db, Tenants: w.tenants, Keys: w.keys, Credit: w.desk, Hooks: hook.New(w.db, w.master, w.clock, false), Alerts: alert.New(w.db, w.clock, publicURL), Prices: w.prices, Report: w.report, Exports: export.New(w.db, w.clock), Margin: margin.New(w.db, w.clock, w.report), Months: month.New(w.db, w.clock), Invoices: bills, Collect: invoice.NewCollector(bills, invoice.CollectConfig{PublicURL: publicURL}), Lag: w.lag,
		Catalogue: w.models, Fleet: w.hub, Placement: fleet.New(w.db, w.clock), Recipes: &store.Recipes{DB: w.db, Clock: w.clock}, Clock: w.clock, HubURL: hubURL}
	w.open()
	return w
}

// open shows the console on what deps are now.
func (w *world) open() {
	w.site = domain.New(w.deps)
	w.console = httptest.NewServer(web.New(web.Deps{Auth: w.site.Auth, Customer: w.site.Customer, Change: w.site.Change, Hooks: w.site.Hooks, Pay: w.site.Pay, Till: w.site.Till, Bills: w.site.Bills, Invoices: w.site.Invoices, Business: w.site.Business,
		Operate: w.site.Operate, Capacity: w.site.Capacity, Live: live.NewHub(), Clock: w.clock, Log: slog.New(failing{w.t, slog.DiscardHandler}), PublicURL: publicURL}))
	w.t.Cleanup(w.console.Close)
}

// run does something until the test ends, and waits for it.
func (w *world) run(fn func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { fn(ctx); close(ended) }()
	w.t.Cleanup(func() { cancel(); <-ended })
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// failing is a log that fails the test on an error: no page may fail by itself.
type failing struct {
	t testing.TB
	slog.Handler
}

func (f failing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (f failing) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	f.t.Error("logged: " + text)
	return nil
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.must(w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql, args...)
		return err
	}))
}

// signIn gives a person's session cookie.
func (w *world) signIn(email string) string {
	w.t.Helper()
	link, err := w.tenants.CreateLink(w.t.Context(), w.root, email, tenants.LinkTTL)
	w.must(err)
	u, err := url.Parse(link.URL)
	w.must(err)
	s, err := w.site.Auth.Exchange(w.t.Context(), u.Query().Get("t"), session.Client{IP: "192.0.2.7"})
	w.must(err)
	return s.Secret
}

// as is the context of a request that a person makes, as the middleware leaves it.
func (w *world) as(cookie string) context.Context {
	w.t.Helper()
	if ctx, ok := w.contexts[cookie]; ok {
		return ctx
	}
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect()
	guard := session.New(session.Options{Auth: w.site.Auth, Clock: w.clock, Log: slog.New(slog.DiscardHandler)})
	var caught context.Context
	e.GET("/", func(c echo.Context) error { caught = c.Request().Context(); return nil }, guard.Middleware()...)
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(w.t.Context())
	r.RemoteAddr = "192.0.2.7:1234"
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: cookie})
	e.ServeHTTP(httptest.NewRecorder(), r)
	if _, ok := session.Of(caught); !ok {
		w.t.Fatal("the cookie signs nobody in")
	}
	w.contexts[cookie] = caught
	return caught
}

// viewer is who a cookie belongs to.
func (w *world) viewer(cookie string) session.Viewer {
	v, _ := session.Of(w.as(cookie))
	return v
}

// page fetches a page, or sends a form when there is one.
func (w *world) page(cookie, path string, form url.Values) (status int, body, location string) {
	w.t.Helper()
	method, send := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, send = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.console.URL+path, send)
	w.must(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.AddCookie(&http.Cookie{Name: "millrace_session", Value: cookie})
	client := &http.Client{Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	w.must(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	w.must(err)
	return resp.StatusCode, string(raw), resp.Header.Get("Location")
}

// model makes a model with a price from begin on.
func (w *world) model(name string, input, cached, output string) *catalogue.Model {
	w.t.Helper()
	m, err := w.models.CreateModel(w.t.Context(), catalogue.ModelInput{Name: name, Context: 100_000, MaxOutput: 20_000}, w.root)
	w.must(err)
	_, err = w.prices.Create(w.t.Context(), w.root, price.Draft{Model: m.ID, Prices: price.Every(perMillion(w.t, input, cached, output))})
	w.must(err)
	return m
}

func perMillion(t testing.TB, input, cached, output string) (p usage.Prices) {
	t.Helper()
	for class, text := range map[usage.Class]string{usage.Input: input, usage.Cached: cached, usage.Output: output} {
		pico, err := money.ParsePerMillion(text)
		if err != nil {
			t.Fatal(err)
		}
		p[class] = pico
	}
	return p
}

// request is one call, as a gateway takes part in it: money held, usage logged.
type request struct {
	at      time.Time
	who     keys.Key
	zone    string
	model   *catalogue.Model
	usage   usage.Vector
	first   time.Duration // 0 = not streamed
	took    time.Duration
	ending  usage.Ending // "" = complete
	status  int          // 0 = 200
	unit    ids.ID
	refused ids.ID // a unit that was tried before
}

// serve plays requests in order of time, rates them, and gives their ids. What it costs is what the price in force says.
func (w *world) serve(list ...request) []ids.ID {
	w.t.Helper()
	book, err := price.OpenBook(w.t.Context(), w.db, w.bus)
	w.must(err)
	defer book.Close()
	out := make([]ids.ID, len(list))
	for i, r := range list {
		w.clock.Advance(r.at.Sub(w.clock.Now()))
		quote, err := book.Quote(r.who.Org, r.model.ID, price.Standard, r.at, usage.Ordinary)
		w.must(err)
		e := usage.Event{ID: idAt(r.at), Org: r.who.Org, Project: r.who.Project, Key: r.who.ID, Model: r.model.ID, PriceVersion: quote.Version,
			Usage: r.usage, Ending: r.ending, Status: r.status, Dialect: "chat", Streamed: r.first > 0, StartedMS: r.at.UnixMilli(), EndedMS: r.at.Add(r.took).UnixMilli()}
		e.Usage[usage.Requests] = 1
		if e.Ending == "" {
			e.Ending = usage.Complete
		}
		if e.Status == 0 {
			e.Status = http.StatusOK
		}
		if r.first > 0 {
			e.FirstTokenMS = r.at.Add(r.first).UnixMilli()
		}
		if r.refused != ids.Nil {
			e.Attempts = append(e.Attempts, usage.Attempt{ID: ids.New(), Unit: r.refused, Note: "not_ready"})
		}
		e.Attempts = append(e.Attempts, usage.Attempt{ID: ids.New(), Unit: r.unit})
		cost, ok := quote.Prices.Cost(e.Usage)
		if !ok {
			w.t.Fatal("an impossible cost")
		}
		hold, err := w.purse.Hold(w.t.Context(), credit.Payer{Org: r.who.Org, Project: r.who.Project, Key: r.who.ID, TimeZone: r.zone}, cost.CeilNano())
		w.must(err)
		e.Charge, e.Epoch, e.Budgets, e.OrgBudget = cost.Nano(), hold.Epoch(), hold.Budgets(), hold.OrgBudget()
		hold.Settle(e.Charge)
		w.log.Append(&e)
		out[i] = e.ID
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	w.must(w.log.Flush(ctx))
	w.rateAll(out)
	return out
}

// rateAll runs a rater until the requests are in the books.
func (w *world) rateAll(list []ids.ID) {
	w.t.Helper()
	rater, err := rate.New(rate.Config{DB: w.db, Bus: w.bus, Clock: w.clock, Logger: slog.New(slog.DiscardHandler), Pace: time.Microsecond})
	w.must(err)
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { rater.Run(ctx); close(ended) }()
	w.eventually("the requests are rated", func() bool {
		var n int
		w.must(w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
			return tx.QueryRow(w.t.Context(), "SELECT count(*) FROM usage_events WHERE id = ANY($1)", list).Scan(&n)
		}))
		return n == len(list)
	})
	stop()
	<-ended
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it took too long until %s", what)
		}
	}
}

// tell publishes a unit's load, as a host's hub does, and waits until the hub knows.
func (w *world) tell(l wire.Load) {
	w.t.Helper()
	text, err := json.Marshal(wire.Fact{Load: &l})
	w.must(err)
	w.must(w.bus.Publish(bus.FleetLoad, text))
	w.eventually("the hub has heard of the unit", func() bool { return reflect.DeepEqual(w.hub.Live().Units[l.Unit].Load, l) })
}

// attach makes an attached unit of a model.
func (w *world) attach(name string, m *catalogue.Model, family engine.Family) ids.ID {
	w.t.Helper()
	id, err := w.models.Attach(w.t.Context(), catalogue.AttachInput{Name: name, URL: "http://127.0.0.1:1", Engine: string(family), PublicModel: m.Name}, w.root)
	w.must(err)
	return id
}

// idAt is a fresh id of a moment.
func idAt(t time.Time) ids.ID {
	id := ids.New()
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

func usd(t testing.TB, s string) money.Nano {
	t.Helper()
	n, err := money.ParseUSD(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// invoicedSince is a database whose months are invoiced from a moment on, whenever the test runs.
func invoicedSince(t testing.TB, at time.Time) *db.DB {
	t.Helper()
	url := dbtest.URL(t)
	super, err := pgx.Connect(t.Context(), dbtest.Superuser(t, url))
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(t.Context())
	if _, err := super.Exec(t.Context(), "UPDATE invoicing SET first_month = date_trunc('month', $1::timestamptz AT TIME ZONE 'UTC')", at); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}
