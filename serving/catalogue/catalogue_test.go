package catalogue_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/tenants"
)

var operator = tenants.System()

func start(t *testing.T) (*catalogue.Catalogue, *db.DB, chan ids.ID) {
	t.Helper()
	return startWith(t, nil)
}

func startWith(t *testing.T, dial catalogue.DialHost) (*catalogue.Catalogue, *db.DB, chan ids.ID) {
	t.Helper()
	d := dbtest.New(t)
	b := dbtest.Bus(t)
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan ids.ID, 16)
	c := catalogue.New(catalogue.Options{DB: d, Bus: b, Sealer: master, Clock: clock.System, DialHost: dial, Gone: func(id ids.ID) { gone <- id }})
	if err := c.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, d, gone
}

func TestAttachWorksAtOnce(t *testing.T) {
	c, d, gone := start(t)
	ctx := t.Context()
	if _, err := c.CreateModel(ctx, catalogue.ModelInput{Name: "acme/one", Context: 1000}, operator); err != nil {
		t.Fatal(err)
	}
	var seen http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() }))
	defer server.Close()
	in := catalogue.AttachInput{Name: "mine", URL: server.URL + "/v1/", Engine: "vllm", PublicModel: "acme/one", Key: "sk-upstream"}
	id, err := c.Attach(ctx, in, operator)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := c.Model("acme/one")
	if !ok || len(m.Units) != 1 || m.MaxOutput != 1000 || m.DefaultOutput != 1000 {
		t.Fatalf("model %+v", m)
	}
	u := m.Units[0]
	if u.ID != id || !u.Attached || u.Base != server.URL || u.UpstreamModel != "acme/one" || !strings.Contains(string(u.Head(engine.ChatPath)), "POST /v1/chat/completions HTTP/1.1\r\n") ||
		!strings.Contains(string(u.Head(engine.ChatPath)), "Authorization: Bearer sk-upstream\r\n") {
		t.Fatalf("unit %+v %s", u, u.Head(engine.ChatPath))
	}
	answer, err := u.Client().Get(u.Base + "/health")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if seen.Get("Authorization") != "Bearer sk-upstream" {
		t.Errorf("a probe carries %v", seen)
	}
	if _, err := c.Attach(ctx, in, operator); !fault.Is(err, fault.Conflict) {
		t.Errorf("the name again: %v", err)
	}
	in.Replace, in.UpstreamModel = true, "inner"
	if again, err := c.Attach(ctx, in, operator); err != nil || again != id {
		t.Errorf("replacing: %v, %v", again, err)
	}
	if now, _ := c.Unit(id); now == u || now.UpstreamModel != "inner" {
		t.Errorf("replaced unit %+v", now)
	}
	list, err := c.List(ctx, operator)
	if err != nil || len(list) != 1 || !list[0].HasKey || list[0].Label != "vLLM" || list[0].Model != "acme/one" {
		t.Errorf("list %+v, %v", list, err)
	}
	stored(t, d, "sk-upstream")
	if err := c.Detach(ctx, id, operator); err != nil {
		t.Fatal(err)
	}
	if m, _ := c.Model("acme/one"); len(m.Units) != 0 {
		t.Error("a detached unit still serves")
	}
	if len(gone) != 1 || <-gone != id {
		t.Error("nobody was told that the unit is gone")
	}
	if err := c.Detach(ctx, id, operator); !fault.Is(err, fault.NotFound) {
		t.Errorf("detaching again: %v", err)
	}
	in.Replace = false
	if _, err := c.Attach(ctx, in, operator); err != nil {
		t.Errorf("the name of a detached unit: %v", err)
	}
}

// stored fails when a secret is anywhere in the tables that know of units.
func stored(t *testing.T, d *db.DB, secret string) {
	t.Helper()
	var found int
	err := d.InTx(t.Context(), db.System(), func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM units u WHERE u::text LIKE '%'||$1||'%' OR encode(u.sealed_key, 'escape') LIKE '%'||$1||'%')
			+ (SELECT count(*) FROM audit_log a WHERE a::text LIKE '%'||$1||'%')`, secret).Scan(&found)
	})
	if err != nil || found != 0 {
		t.Errorf("the key lies open in %d rows, %v", found, err)
	}
}

func TestPlacedUnitsNeedAHostThatIsThere(t *testing.T) {
	var asked catalogue.Agent
	c, d, _ := startWith(t, func(_ context.Context, to catalogue.Agent) (net.Conn, error) { asked = to; return nil, net.ErrClosed })
	ctx := t.Context()
	m, err := c.CreateModel(ctx, catalogue.ModelInput{Name: "m", Context: 10}, operator)
	if err != nil {
		t.Fatal(err)
	}
	host, unit := ids.New(), ids.New()
	exec := func(sql string, args ...any) {
		t.Helper()
		if err := d.InTx(ctx, db.System(), func(tx pgx.Tx) error { _, err := tx.Exec(ctx, sql, args...); return err }); err != nil {
			t.Fatal(err)
		}
		if err := c.Load(ctx); err != nil {
			t.Fatal(err)
		}
	}
	units := func() []*catalogue.Unit { m, _ := c.Model("m"); return m.Units }
	exec("INSERT INTO hosts (id, name) VALUES ($1, 'h')", host)
	exec("INSERT INTO units (id, name, model_id, engine, host_id, upstream_model) VALUES ($1, 'u', $2, 'sim', $3, 'x')", unit, m.ID, host)
	if len(units()) != 0 {
		t.Fatal("a unit whose agent has no address serves")
	}
	exec("UPDATE hosts SET data_url = 'https://127.0.0.1:9'")
	first := units()
	if len(first) != 1 || first[0].Attached || first[0].Host != host || first[0].Base != "https://127.0.0.1:9/units/"+unit.String() {
		t.Fatalf("units %+v", first)
	}
	exec("UPDATE hosts SET seen_at = now()")
	if units()[0] != first[0] {
		t.Error("a unit that did not change lost its connections")
	}
	exec("UPDATE hosts SET joined_at = '2026-11-30T12:00:00Z'")
	if units()[0] == first[0] {
		t.Error("a host joined again, and connections to its ended identity stay")
	}
	_, _ = units()[0].Client().Get("https://127.0.0.1:9/health")
	if want := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC); !asked.Joined.Equal(want) || asked.Host != host || asked.Address != "127.0.0.1:9" || !asked.Secure {
		t.Errorf("the agent is dialled as %+v", asked)
	}
	exec("UPDATE units SET wanted = 'draining'")
	if len(units()) != 0 {
		t.Error("a draining unit gets requests")
	}
	exec("UPDATE units SET wanted = 'serving'")
	exec("UPDATE hosts SET removed_at = now()")
	if len(units()) != 0 {
		t.Error("a unit of a removed host gets requests")
	}
}

func TestWrongInputIsRefused(t *testing.T) {
	c, _, _ := start(t)
	ctx := t.Context()
	if _, err := c.CreateModel(ctx, catalogue.ModelInput{Name: "m", Context: 10}, operator); err != nil {
		t.Fatal(err)
	}
	for _, in := range []catalogue.ModelInput{{}, {Name: "a b", Context: 1}, {Name: "x"}, {Name: "x", Context: 5, MaxOutput: 6},
		{Name: "x", Context: 5, DefaultOutput: 6}, {Name: "x", Context: 1 << 40}} {
		if _, err := c.CreateModel(ctx, in, operator); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", in, err)
		}
	}
	if _, err := c.CreateModel(ctx, catalogue.ModelInput{Name: "m", Context: 10}, operator); !fault.Is(err, fault.Conflict) {
		t.Errorf("a name in use: %v", err)
	}
	good := catalogue.AttachInput{Name: "n", URL: "http://127.0.0.1:1", Engine: "openai", PublicModel: "m"}
	for name, spoil := range map[string]func(*catalogue.AttachInput){
		"name": func(in *catalogue.AttachInput) { in.Name = " " }, "url": func(in *catalogue.AttachInput) { in.URL = "ftp://x" },
		"engine": func(in *catalogue.AttachInput) { in.Engine = "magic" }, "key": func(in *catalogue.AttachInput) { in.Key = "a\r\nX: y" },
	} {
		in := good
		spoil(&in)
		if _, err := c.Attach(ctx, in, operator); !fault.Is(err, fault.Invalid) || fault.Of(err).Param != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := good
	bad.PublicModel = "none"
	if _, err := c.Attach(ctx, bad, operator); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown model: %v", err)
	}
	if _, err := c.Attach(ctx, good, tenants.Actor{Org: ids.New(), Role: tenants.Owner}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a customer: %v", err)
	}
}

// A second process sees a change by the notice, long before its poll.
func TestNoticesReachOtherProcesses(t *testing.T) {
	d := dbtest.New(t)
	b := dbtest.Bus(t)
	master, _ := seal.Parse(seal.Generate())
	one := catalogue.New(catalogue.Options{DB: d, Bus: b, Sealer: master, Clock: clock.System})
	two := catalogue.New(catalogue.Options{DB: d, Bus: b, Sealer: master, Clock: clock.System})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- two.Run(ctx) }()
	deadline := time.Now().Add(5 * time.Second)
	for n := 0; ; n++ {
		if _, err := one.CreateModel(ctx, catalogue.ModelInput{Name: "m" + ids.New().String(), Context: 10}, operator); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if len(two.Models()) > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the notice did not arrive")
		}
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Fatal(err)
	}
}

// A model lets pass the usual extras, or those that were set for it; never what steers engines.
func TestEngineExtras(t *testing.T) {
	c, _, _ := start(t)
	ctx := t.Context()
	made, err := c.CreateModel(ctx, catalogue.ModelInput{Name: "acme/one", Context: 1000}, operator)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		set  []string
		want string
	}{{[]string{"top_k", "min_p", "top_k"}, "min_p top_k"}, {[]string{}, ""}, {nil, strings.Join(catalogue.UsualExtras, " ")}} {
		if now, err := c.SetExtras(ctx, made.ID, tt.set, operator); err != nil || strings.Join(now, " ") != tt.want {
			t.Fatal(now, err)
		}
		if err := c.Load(ctx); err != nil {
			t.Fatal(err)
		}
		if m, _ := c.Model("acme/one"); strings.Join(m.Extras, " ") != tt.want {
			t.Errorf("%v: %v", tt.set, m.Extras)
		}
	}
	for _, bad := range []string{"cache_salt", "priority", "Top_K", "a b", ""} {
		if _, err := c.SetExtras(ctx, made.ID, []string{bad}, operator); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := c.CreateModel(ctx, catalogue.ModelInput{Name: "acme/two", Context: 1000, Extras: []string{bad}}, operator); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q in a new model: %v", bad, err)
		}
	}
	if _, err := c.SetExtras(ctx, ids.New(), nil, operator); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such model: %v", err)
	}
}
