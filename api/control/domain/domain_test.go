package domain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/agents/hub"
	"millrace/agents/wire"
	"millrace/api/control"
	"millrace/api/control/domain"
	"millrace/billing/credit"
	"millrace/billing/price"
	"millrace/billing/report"
	"millrace/billing/usagelog"
	"millrace/db"
	"millrace/db/bus"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/money"
	"millrace/internal/pki"
	"millrace/internal/seal"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/tenants"
	"millrace/tenants/keys"
)

var now = time.Date(2026, time.November, 20, 13, 40, 0, 0, time.UTC)

const patience = 20 * time.Second // a bound for what should take milliseconds

// world is the API on the real domain.
type world struct {
	t      *testing.T
	db     *db.DB
	bus    *bus.Bus
	clock  *clock.Manual
	hub    *hub.Hub
	lag    *report.Lag
	ports  domain.Ports
	org    tenants.Org
	key    keys.Key
	model  *catalogue.Model
	price  price.Version
	unit   ids.ID
	bearer string
	url    string
	root   tenants.Actor
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: dbtest.New(t), bus: dbtest.Bus(t), clock: clock.NewManual(now), root: tenants.System()}
	master, err := seal.Parse(seal.Generate())
	w.must(err)
	people := tenants.New(w.db, master, w.clock, w.bus, func(s string) string { return s })
	secrets := keys.New(w.db, master, w.clock, w.bus)
	prices := price.New(w.db, w.clock, w.bus)
	models := catalogue.New(catalogue.Options{DB: w.db, Bus: w.bus, Sealer: master, Clock: w.clock})
	ca, _, err := pki.NewCA(clock.System)
	w.must(err)
	w.hub = hub.New(hub.Config{DB: w.db, Bus: w.bus, CA: ca, Clock: w.clock, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = w.hub.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	w.lag, err = report.ListenForLag(w.bus, w.clock)
	w.must(err)
	t.Cleanup(w.lag.Close)
	w.ports = domain.New(domain.Deps{DB: w.db, Bus: w.bus, Report: report.New(w.db, w.clock), Fleet: w.hub, Lag: w.lag, Clock: w.clock, Version: "1.2.3"})
	server := httptest.NewServer(control.New(control.Deps{Tenants: people, Keys: secrets, Credit: credit.NewDesk(w.db, w.clock, w.bus), Prices: prices, Catalogue: models,
		Fleet: w.ports.Fleet, Books: w.ports.Books, System: w.ports.System, Clock: w.clock}))
	t.Cleanup(server.Close)
	w.url = server.URL + control.Root
	w.bearer, err = people.CreateControlToken(t.Context(), w.root, "test")
	w.must(err)
	w.org, err = people.CreateOrg(t.Context(), w.root, tenants.NewOrg{Name: "Acme"})
	w.must(err)
	projects, err := people.Projects(t.Context(), w.root, w.org.ID)
	w.must(err)
	w.key, _, err = secrets.Create(t.Context(), w.root, keys.NewKey{Org: w.org.ID, Project: projects[0].ID, Name: "ci"})
	w.must(err)
	w.model, err = models.CreateModel(t.Context(), catalogue.ModelInput{Name: "demo/small", Context: 1000}, w.root)
	w.must(err)
	w.price, err = prices.Create(t.Context(), w.root, price.Draft{Model: w.model.ID, Prices: price.Every(usage.Prices{usage.Input: 500_000, usage.Output: 1_000_000})})
	w.must(err)
	w.unit, err = w.hub.PlaceSimple(t.Context(), hub.Placement{Host: "gpu-1", Name: "small/1", Model: w.model.ID, Engine: engine.Sim, Upstream: "x", Spec: engine.Spec{Executable: "millrace"}}, w.root)
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	w.must(w.db.InTx(w.t.Context(), db.System(), func(tx pgx.Tx) error {
		_, err := tx.Exec(w.t.Context(), sql, args...)
		return err
	}))
}

// idAt is an id of a moment.
func idAt(at time.Time) ids.ID {
	id := ids.New()
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	return id
}

// rated writes a request as the rater does.
func (w *world) rated(at time.Time, charged money.Nano) ids.ID {
	w.t.Helper()
	id := idAt(at)
	w.exec("SELECT ensure_day($1)", at)
	w.exec(`INSERT INTO usage_events (org_id, day, id, project_id, key_id, model_id, price_version_id, epoch_id, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens,
		image_tokens, audio_tokens, requests, charged_nano, overrun_nano, saved_nano, ending, status, estimated, streamed, dialect, started_at, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 100, 0, 0, 10, 0, 0, 0, 1, $9, 5, 3, 'complete', 200, false, false, 'chat', $10, $10)`,
		w.org.ID, ids.Day(id), id, w.key.Project, w.key.ID, w.model.ID, w.price.ID, ids.New(), int64(charged), at)
	w.exec(`INSERT INTO usage_rollups VALUES ($1, $2, $3, $4, $5, 1, 0, 100, 0, 0, 10, 0, 0, 0, $6, 5, 3, 0, 0, 0)`, w.org.ID, at.Truncate(15*time.Minute), w.key.Project, w.key.ID, w.model.ID, int64(charged))
	return id
}

// call asks the API and reads the answer.
func (w *world) call(method, path, body string, status int, out any) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, bytes.NewBufferString(body))
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+w.bearer)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(r)
	w.must(err)
	defer resp.Body.Close()
	var raw json.RawMessage
	w.must(json.NewDecoder(resp.Body).Decode(&raw))
	if resp.StatusCode != status {
		w.t.Fatalf("%s %s: %d, want %d: %s", method, path, resp.StatusCode, status, raw)
	}
	if out != nil {
		w.must(json.Unmarshal(raw, out))
	}
}

func TestUsageAndRequests(t *testing.T) {
	w := newWorld(t)
	w.rated(now.AddDate(0, 0, -1), 60_000)
	id := w.rated(now.Add(-time.Hour), 70_000)
	org := ids.Format(ids.Org, w.org.ID)
	for _, x := range []struct{ path, group, label string }{
		{"/orgs/" + org + "/usage", "", ""},
		{"/orgs/" + org + "/usage?group_by=model", ids.Format(ids.Model, w.model.ID), "demo/small"},
		{"/orgs/" + org + "/usage?group_by=key", ids.Format(ids.Key, w.key.ID), "ci"},
		{"/orgs/" + org + "/usage?group_by=project", ids.Format(ids.Project, w.key.Project), "Default"},
		{"/usage?group_by=org", org, "Acme"},
		{"/usage?group_by=model", ids.Format(ids.Model, w.model.ID), "demo/small"},
		{"/usage", "", ""},
	} {
		var got control.UsageReport
		w.call("GET", x.path, "", http.StatusOK, &got)
		if len(got.Data) != 1 {
			t.Errorf("%s: %+v", x.path, got)
			continue
		}
		if d := got.Data[0]; d.Group != x.group || d.Label != x.label || d.Requests != 2 || d.Charged.Nano != 130_000 || d.Overrun.Nano != 10 || d.Tokens.Input != 200 || d.Tokens.Output != 20 {
			t.Errorf("%s: %+v, want group %q, label %q", x.path, d, x.group, x.label)
		}
	}
	var days control.UsageReport
	w.call("GET", "/orgs/"+org+"/usage?step=day&time_zone=Asia/Kolkata", "", http.StatusOK, &days)
	if len(days.Data) != 2 || !days.Data[1].Start.Equal(time.Date(2026, 11, 19, 18, 30, 0, 0, time.UTC)) || days.Data[1].Charged.Nano != 70_000 {
		t.Errorf("days in India %+v", days.Data)
	}
	var r control.Request
	w.call("GET", "/orgs/"+org+"/requests/"+ids.Format(ids.Request, id), "", http.StatusOK, &r)
	if r.Model != "demo/small" || r.Charged.Nano != 70_000 || r.Overrun.Nano != 5 || r.Saved.Nano != 3 || r.USDPerMillion.Input != "0.5" || r.USDPerMillion.Output != "1" || r.PriceID != ids.Format(ids.Price, w.price.ID) {
		t.Errorf("request %+v", r)
	}
	w.call("GET", "/orgs/"+org+"/requests/"+ids.Format(ids.Request, ids.New()), "", http.StatusNotFound, nil)
	var ledger control.Ledger
	w.call("GET", "/orgs/"+org+"/ledger", "", http.StatusOK, &ledger)
	if len(ledger.Lines) != 0 {
		t.Errorf("ledger %+v", ledger)
	}
}

func TestFleet(t *testing.T) {
	w := newWorld(t)
	w.exec(`UPDATE hosts SET seen_at = now(), agent_version = '1.2.3', gpu_hour_nano = 2500000000, provider = 'acme-cloud', region = 'eu-1', capacity_kind = 'spot',
		observed = '{"simulated": true, "gpus": [{"index": 0, "model": "H200"}, {"index": 1, "model": "H200"}]}' WHERE name = 'gpu-1'`)
	w.exec("INSERT INTO hosts (id, name, seen_at) VALUES ($1, 'lost-1', now() - interval '1 minute')", ids.New())
	w.exec("INSERT INTO hosts (id, name) VALUES ($1, 'new-1')", ids.New())
	var hosts control.Page[control.Host]
	w.call("GET", "/hosts", "", http.StatusOK, &hosts)
	by := map[string]control.Host{}
	for _, h := range hosts.Data {
		by[h.Name] = h
	}
	if h := by["gpu-1"]; !h.Connected || h.GPUs != 2 || !h.Simulated || h.GPUHour.USD != "2.5" || h.Provider != "acme-cloud" || h.Region != "eu-1" || h.CapacityKind != "spot" || h.AgentVersion != "1.2.3" ||
		h.SeenAt == nil || now.Sub(*h.SeenAt).Abs() > patience {
		t.Errorf("gpu-1 %+v", h)
	}
	if h := by["lost-1"]; h.Connected || h.SeenAt == nil || by["new-1"].Connected || by["new-1"].SeenAt != nil || len(by) != 3 {
		t.Errorf("hosts %+v", by)
	}
	var token control.JoinToken
	w.call("POST", "/hosts/join-tokens", `{"name": "gpu-2"}`, http.StatusCreated, &token)
	if _, err := wire.ParseJoinToken(token.Token); err != nil || !token.ExpiresAt.Equal(now.Add(hub.TokenLife)) {
		t.Errorf("token %+v, error %v", token, err)
	}
	text, err := json.Marshal(wire.Fact{Load: &wire.Load{Unit: w.unit, State: wire.StateReady, Running: 2, Waiting: 1, KVUsage: 0.5}})
	w.must(err)
	w.must(w.bus.Publish(bus.FleetLoad, text))
	for deadline := time.Now().Add(patience); len(w.hub.Live().Units) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the hub has not heard of the unit")
		}
	}
	var units control.Page[control.Unit]
	w.call("GET", "/units", "", http.StatusOK, &units)
	if len(units.Data) != 1 || units.Data[0].State != wire.StateReady || !units.Data[0].Eligible || units.Data[0].Running != 2 || units.Data[0].Waiting != 1 || units.Data[0].KVUsage != 0.5 {
		t.Errorf("units %+v", units.Data)
	}
	if _, err := w.ports.Fleet.Hosts(t.Context(), tenants.Actor{User: ids.New(), Org: w.org.ID, Role: tenants.Owner}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer's owner lists hosts: %v", err)
	}
}

func TestSystem(t *testing.T) {
	w := newWorld(t)
	epoch := ids.New()
	w.exec("INSERT INTO gateway_epochs (id, process, valid_ms, request_max_ms) VALUES ($1, 'a pid 1', 1, 1)", epoch)
	text, err := json.Marshal(usagelog.Lag{MS: 1500})
	w.must(err)
	w.must(w.bus.Publish(bus.NoticeLag, text))
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, known := w.lag.Now(); known {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the rater was not heard")
		}
	}
	var s control.Status
	w.call("GET", "/status", "", http.StatusOK, &s)
	if s.Version != "1.2.3" || s.RaterLagMS != 1500 || len(s.OpenEpochs) != 1 || s.OpenEpochs[0].ID != ids.Format(ids.Epoch, epoch) || s.OpenEpochs[0].Process != "a pid 1" {
		t.Errorf("status %+v", s)
	}
	var r control.Reconciliation
	w.call("POST", "/reconcile", "", http.StatusOK, &r)
	if r.Unexplained || !r.At.Equal(now) || !r.Watermark.Equal(now) || len(r.Report) < 10 {
		t.Errorf("reconciliation %+v", r)
	}
	if _, err := w.ports.System.Reconcile(t.Context(), tenants.Actor{User: ids.New()}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a stranger reconciles: %v", err)
	}
}
