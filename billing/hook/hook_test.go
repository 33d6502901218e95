package hook_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/billing/hook"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/tenants"
)

// A webhook from before such addresses were refused is listed with why nothing comes of it.
func TestAnOldPrivateWebhookSaysSo(t *testing.T) {
	w := newWorld(t)
	for _, url := range []string{"http://127.0.0.1:9/in", "https://example.com/out"} {
		if _, _, err := w.hooks.Add(t.Context(), w.owner, w.org, url); err != nil {
			t.Fatal(err)
		}
	}
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	list, err := hook.New(w.db, master, w.clock, false).Hooks(t.Context(), w.owner, w.org)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, h := range list {
		if private := strings.Contains(h.URL, "127."); private != (h.Problem != "") {
			t.Errorf("%s: %q", h.URL, h.Problem)
		}
	}
}

// receiver is a customer's program.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []received
}

type received struct {
	signature, event string
	body             []byte
}

func listen(t *testing.T) *receiver {
	r := &receiver{status: 200}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, received{req.Header.Get(hook.SignatureHeader), req.Header.Get(hook.EventHeader), body})
		if r.status/100 == 3 {
			w.Header().Set("Location", r.URL)
		}
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

type world struct {
	t     *testing.T
	db    *db.DB
	clock *clock.Manual
	hooks *hook.Service
	org   ids.ID
	owner tenants.Actor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: dbtest.New(t), clock: clock.NewManual(time.Now().UTC().Truncate(time.Second)), org: ids.New()}
	w.hooks = hook.New(w.db, master, w.clock, true)
	w.owner = tenants.Actor{User: ids.New(), Org: w.org, Role: tenants.Owner}
	w.system(func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "insert into orgs (org_id, name) values ($1, 'Acme')", w.org)
		return err
	})
	return w
}

func (w *world) system(fn func(tx pgx.Tx) error) {
	w.t.Helper()
	if err := w.db.InTx(w.t.Context(), db.System(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) turn(after time.Duration) {
	w.t.Helper()
	w.clock.Advance(after)
	if _, err := w.hooks.Turn(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) last() hook.Delivery {
	w.t.Helper()
	log, err := w.hooks.Deliveries(w.t.Context(), w.owner, w.org)
	if err != nil || len(log) == 0 {
		w.t.Fatalf("%d deliveries, %v", len(log), err)
	}
	return log[0]
}

func TestEventsAreSignedAndDeliveredOnce(t *testing.T) {
	w, r := newWorld(t), listen(t)
	h, secret, err := w.hooks.Add(t.Context(), w.owner, w.org, r.URL+"/in")
	if err != nil || !strings.HasPrefix(secret, "whsec_") {
		t.Fatal(secret, err)
	}
	e := hook.Event{ID: ids.New(), Org: w.org, Kind: "cap.alert", At: w.clock.Now(), Data: map[string]int{"percent": 80}}
	for range 2 { // the same news queued twice is one delivery
		w.system(func(tx pgx.Tx) error { return hook.Queue(t.Context(), tx, e) })
	}
	w.turn(0)
	w.turn(time.Hour)
	if len(r.got) != 1 {
		t.Fatalf("%d requests", len(r.got))
	}
	got := r.got[0]
	if err := hook.Verify(secret, got.signature, got.body, w.clock.Now().Add(-time.Hour)); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another secret": hook.Verify("whsec_x", got.signature, got.body, w.clock.Now().Add(-time.Hour)),
		"another body":   hook.Verify(secret, got.signature, append(got.body, ' '), w.clock.Now().Add(-time.Hour)),
		"an hour later":  hook.Verify(secret, got.signature, got.body, w.clock.Now()),
		"nothing":        hook.Verify(secret, "", got.body, w.clock.Now()),
	} {
		if err == nil {
			t.Errorf("%s was verified", name)
		}
	}
	var body struct{ ID, Type, OrgID string }
	if err := json.Unmarshal(got.body, &body); err != nil || body.ID != ids.Format(hook.EventPrefix, e.ID) || body.ID != got.event || body.Type != "cap.alert" {
		t.Errorf("%s, %v", got.body, err)
	}
	if d := w.last(); d.State != "delivered" || d.Status != 200 || d.Hook != h.ID {
		t.Errorf("%+v", d)
	}
}

func TestADeliveryIsRepeatedWithPausesAndEnds(t *testing.T) {
	w, r := newWorld(t), listen(t)
	h, _, err := w.hooks.Add(t.Context(), w.owner, w.org, r.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.hooks.Test(t.Context(), w.owner, w.org, h.ID); err != nil {
		t.Fatal(err)
	}
	r.answer(503)
	w.turn(0)
	if d := w.last(); d.State != "waiting" || d.Status != 503 || d.Problem != "it answered 503" || !d.NextAt.After(w.clock.Now()) {
		t.Errorf("%+v", d)
	}
	w.turn(time.Second)
	if len(r.got) != 1 {
		t.Errorf("it was tried again at once")
	}
	r.answer(302)
	w.turn(time.Minute)
	if d := w.last(); d.Problem != "it redirects: give the final address" || len(r.got) != 2 {
		t.Errorf("%+v, %d requests", d, len(r.got))
	}
	r.Close()
	w.turn(48 * time.Hour)
	if d := w.last(); d.Problem != "the address could not be reached" {
		t.Errorf("%+v", d)
	}
	for range 20 {
		w.turn(48 * time.Hour)
	}
	if d := w.last(); d.State != "failed" || d.Attempts != 9 || len(r.got) != 2 {
		t.Errorf("%+v, %d requests", d, len(r.got))
	}
	if r.got[0].event != r.got[1].event {
		t.Error("the event's id changed")
	}
}

func TestWhoMayManageWebhooksAndWhich(t *testing.T) {
	w := newWorld(t)
	for _, address := range []string{"", "ftp://x.example", "https://", "https://u:p@x.example/", "https://x.example/#a", "https://x.example/" + strings.Repeat("a", 500), "://"} {
		if _, _, err := w.hooks.Add(t.Context(), w.owner, w.org, address); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
	strict := hook.New(w.db, nil, w.clock, false)
	if _, _, err := strict.Add(t.Context(), w.owner, w.org, "http://x.example"); !fault.Is(err, fault.Invalid) {
		t.Errorf("http: %v", err)
	}
	for _, host := range []string{"127.0.0.1", "[::1]", "169.254.169.254", "10.0.0.1:8443", "localhost", "a.localhost.", "0x7f.1", "[::ffff:10.0.0.1]"} {
		if _, _, err := strict.Add(t.Context(), w.owner, w.org, "https://"+host+"/"); !fault.Is(err, fault.Invalid) || fault.Of(err).Param != "url" {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, _, err := w.hooks.Add(t.Context(), tenants.Actor{Org: w.org, Role: tenants.Developer}, w.org, "https://x.example"); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a developer: %v", err)
	}
	h, _, err := w.hooks.Add(t.Context(), w.owner, w.org, "https://x.example")
	if err != nil {
		t.Fatal(err)
	}
	stranger := tenants.Actor{Org: ids.New(), Role: tenants.Owner}
	if err := w.hooks.Remove(t.Context(), stranger, w.org, h.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a stranger: %v", err)
	}
	if err := w.hooks.Test(t.Context(), w.owner, w.org, h.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.hooks.Remove(t.Context(), w.owner, w.org, h.ID); err != nil {
		t.Fatal(err)
	}
	if d := w.last(); d.State != "failed" {
		t.Errorf("%+v", d)
	}
	if err := w.hooks.Test(t.Context(), w.owner, w.org, h.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a removed webhook: %v", err)
	}
}
