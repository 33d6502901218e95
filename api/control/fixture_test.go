package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/api/problem"
	"millrace/billing/alert"
	"millrace/billing/credit"
	"millrace/billing/export"
	"millrace/billing/hook"
	"millrace/billing/invoice"
	"millrace/billing/ledger"
	"millrace/billing/month"
	"millrace/billing/price"
	"millrace/billing/report"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/seal"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/fleet"
	"millrace/serving/recipe/store"
	"millrace/tenants"
	"millrace/tenants/keys"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // failures on purpose would fill the output
	os.Exit(m.Run())
}

// fixture is the API over HTTP on the real tenants, keys, credit, prices and catalogue; fleet, books and system are
// fakes that answer with recognisable numbers.
type fixture struct {
	desk    *credit.Desk
	t       *testing.T
	db      *db.DB
	url     string
	tenants *tenants.Service
	keys    *keys.Service
	hooks   *hook.Service
	cat     *catalogue.Catalogue
	prices  *price.Service
	root    tenants.Actor
	token   string
	bills   *invoice.Service
	clock   *clock.Manual
	recipes *store.Recipes
	fleet   *fleet.Service
}

type quietBus struct{}

func (quietBus) Publish(string, []byte) error { return nil }
func (quietBus) Subscribe(string, func(string, []byte)) (func(), error) {
	return func() {}, nil
}

func setup(t *testing.T) *fixture {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, db: invoicedBefore(t), root: tenants.Actor{Operator: true, Token: "test"},
		clock: clock.NewManual(time.Date(2026, 11, 30, 12, 7, 0, 0, time.UTC))}
	f.tenants = tenants.New(f.db, master, f.clock, quietBus{}, func(token string) string { return "https://console.example/sign-in/" + token })
	f.hooks = hook.New(f.db, master, f.clock, false)
	f.keys = keys.New(f.db, master, f.clock, quietBus{})
	f.prices = price.New(f.db, f.clock, quietBus{})
	f.recipes = &store.Recipes{DB: f.db, Clock: f.clock}
	f.fleet = fleet.New(f.db, f.clock)
	f.cat = catalogue.New(catalogue.Options{DB: f.db, Bus: quietBus{}, Sealer: master, Clock: f.clock})
	if f.token, err = f.tenants.CreateControlToken(t.Context(), f.root, "test"); err != nil {
		t.Fatal(err)
	}
	f.desk = credit.NewDesk(f.db, f.clock, quietBus{})
	f.bills = invoice.New(invoice.Config{DB: f.db, Clock: f.clock, Notify: quietBus{}, Desk: f.desk, Seller: invoice.Seller{Name: "Millrace Operations Ltd"}})
	server := httptest.NewServer(New(Deps{Tenants: f.tenants, Keys: f.keys, Credit: f.desk, Invoices: f.bills, Months: month.New(f.db, f.clock), Hooks: f.hooks, Alerts: alert.New(f.db, f.clock, "https://millrace.example"), Prices: f.prices, Catalogue: f.cat, Recipes: f.recipes, Placement: f.fleet,
		Fleet: fakeFleet{}, Books: fakeBooks{}, Exports: export.New(f.db, f.clock), System: fakeSystem{}, Clock: f.clock}))
	t.Cleanup(server.Close)
	f.url = server.URL + Root
	return f
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// send makes a request with the operator's token; headers come in pairs and replace what is set.
func (f *fixture) send(method, path, body string, headers ...string) answer {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, bytes.NewBufferString(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, text}
}

// want checks the status and reads the answer into out.
func (f *fixture) want(a answer, status int, out any) {
	f.t.Helper()
	if a.status != status {
		f.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if out == nil {
		return
	}
	d := json.NewDecoder(bytes.NewReader(a.body))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		f.t.Fatalf("%v in %s", err, a.body)
	}
}

// refused checks a problem.
func (f *fixture) refused(a answer, status int, code, param string) {
	f.t.Helper()
	var p problem.Problem
	f.want(a, status, &p)
	if p.Code != code || p.Param != param || p.Status != status || p.Detail == "" || p.RequestID != a.header.Get("X-Request-Id") {
		f.t.Errorf("problem %+v, want code %q, param %q", p, code, param)
	}
}

func (f *fixture) org(name string) (tenants.Org, tenants.Project) {
	f.t.Helper()
	org, err := f.tenants.CreateOrg(f.t.Context(), f.root, tenants.NewOrg{Name: name, Owner: "ann@acme.example"})
	if err != nil {
		f.t.Fatal(err)
	}
	projects, err := f.tenants.Projects(f.t.Context(), f.root, org.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	return org, projects[0]
}

type fakeFleet struct{}

func (fakeFleet) Hosts(context.Context, tenants.Actor) ([]HostInfo, error) {
	return []HostInfo{{ID: ids.New(), Name: "gpu-1", GPUHour: 2_000_000_000, GPUs: 8}}, nil
}

func (fakeFleet) CreateJoinToken(context.Context, tenants.Actor, string) (string, time.Time, error) {
	return "join-me", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), nil
}

func (fakeFleet) UnitStates() map[ids.ID]UnitState { return nil }

type fakeBooks struct{}

func (fakeBooks) Usage(_ context.Context, _ tenants.Actor, q UsageQuery) ([]UsageCell, error) {
	return []UsageCell{{Start: q.From, Requests: 3, Tokens: usage.Vector{usage.Input: 10, usage.Output: 5}, Charged: 1}}, nil
}

func (fakeBooks) Request(_ context.Context, _ tenants.Actor, org, id ids.ID) (RequestInfo, error) {
	return RequestInfo{Event: usage.Event{ID: id, Org: org, StartedMS: 1, EndedMS: 2, Ending: usage.Complete}, Model: "m", Charged: 7}, nil
}

func (fakeBooks) Quarantine(context.Context, tenants.Actor, ids.ID, int) ([]report.Quarantined, error) {
	return []report.Quarantined{{ID: ids.New(), Reason: "not an event", Logged: []byte("garbage")}}, nil
}

func (fakeBooks) Quarantined(_ context.Context, _ tenants.Actor, id ids.ID) (report.Quarantined, error) {
	return report.Quarantined{ID: id, Decided: &report.Decided{Decision: "dismissed", By: "token:test"}}, nil
}

func (fakeBooks) Redrive(context.Context, tenants.Actor, ids.ID) error { return nil }

func (fakeBooks) Dismiss(context.Context, tenants.Actor, ids.ID, string) error { return nil }

func (fakeBooks) Statement(_ context.Context, _ tenants.Actor, _ ids.ID, from, to time.Time) (*ledger.AccountStatement, error) {
	return &ledger.AccountStatement{From: from, To: to, Opening: map[ledger.Account]money.Nano{ledger.PrepaidPaid: -5},
		Lines: []ledger.Line{{At: from, Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.PrepaidPaid, 5), ledger.Credit(ledger.Revenue, 5)}}}}, nil
}

type fakeSystem struct{}

func (fakeSystem) Status(context.Context) (StatusInfo, error) {
	return StatusInfo{Version: "1.2.3", RaterLag: 1500 * time.Millisecond, OpenEpochs: []EpochInfo{{ID: ids.New(), Process: "h:1", Outstanding: 3}}}, nil
}

func (fakeSystem) Reconcile(_ context.Context, by tenants.Actor) (ReconcileInfo, error) {
	if by.Token == "" {
		return ReconcileInfo{}, fault.New(fault.Forbidden, "no")
	}
	return ReconcileInfo{Report: json.RawMessage(`{"lines":[]}`)}, nil
}

// invoicedBefore is a database whose months are invoiced since September 2026, whenever the test runs.
func invoicedBefore(t *testing.T) *db.DB {
	t.Helper()
	url := dbtest.URL(t)
	super, err := pgx.Connect(t.Context(), dbtest.Superuser(t, url))
	if err != nil {
		t.Fatal(err)
	}
	defer super.Close(t.Context())
	if _, err := super.Exec(t.Context(), "UPDATE invoicing SET first_month = '2026-09-01'"); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// settled records a payment of $1.00 by hand and makes a credit note of $0.50.
func (f *fixture) settled(org, id ids.ID) (payment, note ids.ID) {
	f.t.Helper()
	ctx := f.t.Context()
	if _, err := f.bills.RecordPayment(ctx, f.root, org, id, invoice.PaymentInput{Cents: 1_00, Reference: "Transfer 1", IdempotencyKey: "settled"}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.bills.CreditNote(ctx, f.root, org, id, invoice.NoteInput{Cents: 50, Reason: "Slow answers", IdempotencyKey: "settled"}); err != nil {
		f.t.Fatal(err)
	}
	i, err := f.bills.Get(ctx, f.root, org, id)
	if err != nil {
		f.t.Fatal(err)
	}
	return i.Payments[0].ID, i.Notes[0].ID
}

// refusedNote makes a credit note of $0.25 that the payment provider does not send back.
func (f *fixture) refusedNote(org, id ids.ID) ids.ID {
	f.t.Helper()
	note := ids.New()
	err := f.db.InTx(f.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(f.t.Context(), `INSERT INTO credit_notes (org_id, id, invoice_id, number, cents, relieved_cents, back, reason, idempotency_key, txn_id, created_by, created_at, till_problem, till_again_at)
			VALUES ($1, $2, $3, 'CN-refused', 25, 0, 'stripe', 'Slow answers', 'refused', $2, 'ann', $4, 'This payment is disputed.', $5)`, org, note, id, f.clock.Now(), f.clock.Now().Add(time.Hour))
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return note
}

// invoice makes a final invoice of $12.34 for August, with what the ledger says of it.
func (f *fixture) invoice(org ids.ID) ids.ID {
	f.t.Helper()
	id, month := ids.New(), time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	err := f.db.InTx(f.t.Context(), db.System(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(f.t.Context(), `INSERT INTO invoices (org_id, id, month, state, covered_from, covered_to, charged_nano, promo_nano, prepaid_nano, receivable_nano, overrun_nano, subtotal_cents, total_cents, drafted_at)
			VALUES ($1, $2, $3::date, 'ready', $3::date, $3::date, 12340000000, 0, 0, 12340000000, 0, 1234, 1234, $4)`, org, id, month, f.clock.Now()); err != nil {
			return err
		}
		if _, err := tx.Exec(f.t.Context(), "UPDATE invoices SET state = 'open', number = 'INV-1', finalized_at = $3, due_at = $3 WHERE org_id = $1 AND id = $2", org, id, f.clock.Now()); err != nil {
			return err
		}
		_, _, err := ledger.Post(f.t.Context(), tx, ledger.Txn{Org: org, Kind: ledger.Usage, Entries: []ledger.Entry{ledger.Debit(ledger.Receivable, 12_340_000_000), ledger.Credit(ledger.Revenue, 12_340_000_000)}})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}
