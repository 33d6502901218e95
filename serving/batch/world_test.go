package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/api/anthropic"
	"millrace/api/openai"
	"millrace/api/problem"
	"millrace/db"
	"millrace/db/dbtest"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/serving/batch"
	"millrace/serving/gate/gatetest"
	"millrace/serving/responses"
	"millrace/serving/route"
	"millrace/tenants"
	"millrace/tenants/keys"
)

// TestMain keeps the log of provoked faults out of the tests' output.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

const patience = 20 * time.Second // for what must happen, however busy the machine is

type silent struct{}

func (silent) Publish(string, []byte) error { return nil }

// world is a database with one customer.
type world struct {
	t      *testing.T
	url    string
	db     *db.DB
	clock  *clock.Manual
	master *seal.Master
	keys   *keys.Service
	people *tenants.Service
	root   tenants.Actor
	store  *batch.Store
	owner  batch.Owner
}

func newWorld(t *testing.T) *world {
	t.Helper()
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, url: dbtest.URL(t), clock: clock.NewManual(time.Now().UTC().Truncate(time.Second)), master: master,
		root: tenants.Actor{Operator: true, Token: "test"}}
	w.db = w.open()
	w.people = tenants.New(w.db, master, clock.System, silent{}, func(s string) string { return s })
	w.keys = keys.New(w.db, master, clock.System, silent{})
	w.store = w.storeOn(w.db)
	w.owner = w.customer("Acme")
	return w
}

func (w *world) open() *db.DB {
	w.t.Helper()
	d, err := db.Open(w.t.Context(), w.url, db.Options{MaxConns: 8})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(d.Close)
	return d
}

func (w *world) storeOn(d *db.DB) *batch.Store {
	kept := responses.New(responses.Options{DB: d, Clock: clock.System, Sealer: w.master, Frame: problem.OpenAIFrame})
	messages := anthropic.API{Models: gatetest.Models{}, Sealer: w.master}
	return batch.New(d, w.clock, append(openai.BatchEndpoints(kept), messages.BatchEndpoint()))
}

// customer makes an organization with a project and a key.
func (w *world) customer(name string) batch.Owner {
	w.t.Helper()
	org, err := w.people.CreateOrg(w.t.Context(), w.root, tenants.NewOrg{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	projects, err := w.people.Projects(w.t.Context(), w.root, org.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.member(org.ID, projects[0].ID)
}

// member makes a key of a project.
func (w *world) member(org, project ids.ID) batch.Owner {
	w.t.Helper()
	k, _, err := w.keys.Create(w.t.Context(), w.root, keys.NewKey{Org: org, Project: project, Name: "key " + ids.New().String()})
	if err != nil {
		w.t.Fatal(err)
	}
	return batch.Owner{Org: org, Project: project, Key: k.ID}
}

// upload stores a file.
func (w *world) upload(text string) batch.File {
	w.t.Helper()
	u, err := w.store.Begin(w.t.Context(), w.owner, batch.Input, "in.jsonl")
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := io.WriteString(u, text); err != nil {
		w.t.Fatal(err)
	}
	f, err := u.Finish(batch.MaxExpiry)
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

func (w *world) create(text string) batch.Batch {
	w.t.Helper()
	return w.createFor("/v1/chat/completions", text)
}

func (w *world) createFor(endpoint, text string) batch.Batch {
	w.t.Helper()
	b, err := w.store.Create(w.t.Context(), w.owner, batch.NewBatch{Input: w.upload(text).ID, Endpoint: endpoint, Window: "24h"})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// until waits for a batch to be as ok says.
func (w *world) until(id ids.ID, what string, ok func(b batch.Batch) bool) batch.Batch {
	w.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		b, err := w.store.Batch(w.t.Context(), w.owner, id)
		if err != nil {
			w.t.Fatal(err)
		}
		if ok(b) {
			return b
		}
		if time.Now().After(deadline) {
			errs := ""
			if b.Errors != nil {
				errs = *b.Errors
			}
			w.t.Fatalf("not %s: %+v %s", what, b, errs)
		}
	}
}

func (w *world) status(id ids.ID, status string) batch.Batch {
	w.t.Helper()
	return w.until(id, status, func(b batch.Batch) bool { return b.Status == status })
}

// answer is a line of an output file.
type answer struct {
	ID       string `json:"id"`
	CustomID string `json:"custom_id"`
	Response *struct {
		Status    int             `json:"status_code"`
		RequestID string          `json:"request_id"`
		Body      json.RawMessage `json:"body"`
		Warning   string          `json:"millrace_warning"`
	} `json:"response"`
	Error *struct{ Code, Message string } `json:"error"`
}

// answers reads an output file, by custom id.
func (w *world) answers(id *ids.ID) map[string]answer {
	w.t.Helper()
	out := map[string]answer{}
	if id == nil {
		return out
	}
	f, err := w.store.File(w.t.Context(), w.owner, *id)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := io.ReadAll(w.store.Open(w.t.Context(), f))
	if err != nil || int64(len(text)) != f.Bytes || f.Purpose != batch.Output || !bytes.HasSuffix(text, []byte("\n")) {
		w.t.Fatalf("%v %+v %q", err, f, text)
	}
	for _, l := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var a answer
		if err := json.Unmarshal([]byte(l), &a); err != nil {
			w.t.Fatalf("%v: %q", err, l)
		}
		if _, twice := out[a.CustomID]; twice {
			w.t.Errorf("%s has two results", a.CustomID)
		}
		out[a.CustomID] = a
	}
	return out
}

// spare is what a router says of the room that units have.
type spare struct{ ready, waiting, asked atomic.Int64 }

func (s *spare) Spare([]ids.ID) route.Spare {
	s.asked.Add(1)
	return route.Spare{Ready: int(s.ready.Load()), Waiting: int(s.waiting.Load())}
}

// gateway is a process that works on batches.
type gateway struct {
	*gatetest.Stand
	db     *db.DB
	runner *batch.Runner
	spare  *spare
	kill   context.CancelFunc
	ended  sync.WaitGroup
}

// gateway starts one before a stand's gate, with a database connection of its own.
func (w *world) gateway(s *gatetest.Stand, change func(*batch.Options)) *gateway {
	w.t.Helper()
	g := &gateway{Stand: s, db: w.open(), spare: &spare{}}
	g.spare.ready.Store(1)
	auth := keys.NewAuthenticator(keys.NewStore(g.db), w.master, clock.System, func() bool { return false })
	o := batch.Options{Store: w.storeOn(g.db), Gate: s.Gate, Models: s.Models, Keys: auth, Router: g.spare, Poll: 10 * time.Millisecond, Lease: 2 * time.Second}
	if change != nil {
		change(&o)
	}
	g.runner = batch.NewRunner(o)
	ctx, kill := context.WithCancel(context.Background())
	g.kill = kill
	g.ended.Go(func() { _ = auth.Run(ctx) })
	g.ended.Go(func() { _ = g.runner.Run(ctx) })
	w.t.Cleanup(g.die)
	return g
}

// die ends it with no goodbye.
func (g *gateway) die() {
	g.kill()
	g.ended.Wait()
}

// request is a line of an input file.
func request(id, members string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"acme/test","messages":[{"role":"user","content":"hello"}]%s}}`, id, members)
}

func requests(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(request(fmt.Sprintf("r%d", i+1), "") + "\n")
	}
	return b.String()
}

// said is an engine's stream.
const said = `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"inner","choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}]}

data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"inner","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"inner","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}

data: [DONE]

`
