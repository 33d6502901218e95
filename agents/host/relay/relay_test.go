package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/agents/host/journal"
	"millrace/agents/wire"
	"millrace/internal/ids"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const patience = 20 * time.Second

// place is a unit that always admits, and counts.
type place struct {
	address                string
	chunks, left, failures atomic.Int64
}

func (p *place) Address() string   { return p.address }
func (p *place) UsageMark() []byte { return []byte(`"usage":{`) }
func (p *place) Progress()         { p.chunks.Add(1) }
func (p *place) Leave(broken bool) {
	p.left.Add(1)
	if broken {
		p.failures.Add(1)
	}
}

type units struct {
	mu     sync.Mutex
	places map[ids.ID]*place
	refuse string
}

func (u *units) Enter(id ids.ID) (Place, string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refuse != "" {
		return nil, u.refuse
	}
	if p := u.places[id]; p != nil {
		return p, ""
	}
	return nil, wire.RefusedUnknown
}

// bench is an agent's data plane in front of one engine.
type bench struct {
	*httptest.Server
	unit    ids.ID
	units   *units
	place   *place
	journal *journal.Journal
}

func newBench(t testing.TB, engine http.HandlerFunc) *bench {
	t.Helper()
	e := httptest.NewServer(engine)
	t.Cleanup(e.Close)
	b := &bench{unit: ids.New(), journal: openJournal(t), place: &place{address: strings.TrimPrefix(e.URL, "http://")}}
	b.units = &units{places: map[ids.ID]*place{b.unit: b.place}}
	b.Server = httptest.NewServer(New(b.units, b.journal, quiet))
	t.Cleanup(b.Server.Close)
	return b
}

func (b *bench) request(t testing.TB, ctx context.Context, path, body string) (*http.Request, ids.ID) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+wire.DataPrefix+b.unit.String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	id := ids.New()
	r.Header.Set(wire.HeaderAttempt, id.String())
	return r, id
}

// record waits for the attempt's record: it ends just after the last byte.
func (b *bench) record(t testing.TB, id ids.ID) wire.Attempt {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if a, ok := shipped(t, b.journal)[id]; ok {
			return a
		}
	}
	t.Fatalf("attempt %s has no record", id)
	return wire.Attempt{}
}

func stream(w http.ResponseWriter, chunks ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	for _, c := range chunks {
		_, _ = io.WriteString(w, c)
		_ = http.NewResponseController(w).Flush()
	}
}

func chunk(n string) string {
	return `data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":` + n + "}}\n\n"
}

func TestAStreamPassesChunkByChunk(t *testing.T) {
	next := make(chan struct{})
	var seen *http.Request
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(context.Background())
		body, _ := io.ReadAll(r.Body)
		stream(w, chunk("1"))
		<-next // the second chunk waits until the first has arrived
		stream(w, chunk("2"), "data: [DONE]\n\n", string(body))
	})
	r, id := b.request(t, t.Context(), "/v1/chat/completions?x=1", "hello")
	r.Header.Set(wire.HeaderKind, wire.KindGolden)
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("X-Request-Id", "req_1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, `"completion_tokens":1`) {
		t.Fatalf("%q, %v", line, err)
	}
	close(next)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(rest), "hello") {
		t.Fatalf("%q, %v", rest, err)
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("headers %v", resp.Header)
	}
	if seen.URL.RequestURI() != "/v1/chat/completions?x=1" || seen.Header.Get("X-Request-Id") != "req_1" {
		t.Errorf("the engine saw %s %v", seen.URL, seen.Header)
	}
	for k := range seen.Header {
		if strings.HasPrefix(k, "Millrace") || k == "Authorization" {
			t.Errorf("the engine saw the header %s", k)
		}
	}
	a := b.record(t, id)
	if a.Kind != wire.KindGolden || a.Unit != b.unit || a.Prompt != 9 || a.Generated != 2 || a.HandedOver != 2 || a.Ending != wire.EndComplete {
		t.Errorf("%+v", a)
	}
	if b.place.left.Load() != 1 || b.place.failures.Load() != 0 || b.place.chunks.Load() < 2 {
		t.Errorf("left %d, failures %d, chunks %d", b.place.left.Load(), b.place.failures.Load(), b.place.chunks.Load())
	}
}

func TestACallerThatLeavesAbortsTheEngine(t *testing.T) {
	aborted := make(chan struct{})
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		stream(w, chunk("3"))
		<-r.Context().Done()
		close(aborted)
	})
	ctx, leave := context.WithCancel(t.Context())
	r, id := b.request(t, ctx, "/v1/chat/completions", "{}")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	leave()
	select {
	case <-aborted:
	case <-time.After(patience):
		t.Fatal("the engine was not told that the caller left")
	}
	if a := b.record(t, id); a.Ending != wire.EndCallerLeft || a.HandedOver != 3 || b.place.failures.Load() != 0 {
		t.Errorf("%+v, %d failures", a, b.place.failures.Load())
	}
}

// A caller that leaves during a long prefill, before any byte.
func TestACallerThatLeavesBeforeTheFirstByte(t *testing.T) {
	began, aborted := make(chan struct{}), make(chan struct{})
	b := newBench(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(began)
		<-r.Context().Done()
		close(aborted)
	})
	ctx, leave := context.WithCancel(t.Context())
	r, id := b.request(t, ctx, "/v1/chat/completions", "{}")
	go func() { <-began; leave() }()
	if _, err := http.DefaultClient.Do(r); err == nil {
		t.Fatal("answered")
	}
	<-aborted
	if a := b.record(t, id); a.Ending != wire.EndCallerLeft || a.Generated != 0 {
		t.Errorf("%+v", a)
	}
}

func TestABrokenAnswerIsSeenAsBroken(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		stream(w, chunk("5"))
		panic(http.ErrAbortHandler)
	})
	r, id := b.request(t, t.Context(), "/v1/chat/completions", "{}")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err == nil {
		t.Fatalf("a broken answer ended cleanly: %q", text)
	}
	if a := b.record(t, id); a.Ending != wire.EndEngineFailed || a.HandedOver != 5 || b.place.failures.Load() != 1 || b.place.left.Load() != 1 {
		t.Errorf("%+v, %d failures, %d left", a, b.place.failures.Load(), b.place.left.Load())
	}
}

func TestRefusals(t *testing.T) {
	reached := false
	b := newBench(t, func(http.ResponseWriter, *http.Request) { reached = true })
	do := func(change func(*http.Request)) *http.Response {
		r, _ := b.request(t, t.Context(), "/v1/chat/completions", "{}")
		change(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	path := func(p string) func(*http.Request) {
		return func(r *http.Request) { r.URL.Path = wire.DataPrefix + b.unit.String() + p }
	}
	for _, tc := range []struct {
		name   string
		change func(*http.Request)
		status int
		reason string
	}{
		{"no attempt id", func(r *http.Request) { r.Header.Del(wire.HeaderAttempt) }, 400, ""},
		{"unknown kind", func(r *http.Request) { r.Header.Set(wire.HeaderKind, "free") }, 400, ""},
		{"another unit", func(r *http.Request) { r.URL.Path = wire.DataPrefix + ids.New().String() + "/v1/chat/completions" }, 503, wire.RefusedUnknown},
		{"no unit", func(r *http.Request) { r.URL.Path = "/v1/chat/completions" }, 404, ""},
		{"development endpoint", path("/collective_rpc"), 404, ""},
		{"sleep", path("/sleep"), 404, ""},
		{"weights", path("/v1/load_lora_adapter"), 404, ""},
		{"another method", func(r *http.Request) { r.Method = http.MethodDelete }, 404, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := do(tc.change)
			if resp.StatusCode != tc.status || resp.Header.Get(wire.HeaderRefused) != tc.reason {
				t.Errorf("%s, reason %q", resp.Status, resp.Header.Get(wire.HeaderRefused))
			}
		})
	}
	b.units.refuse = wire.RefusedDraining
	if resp := do(func(*http.Request) {}); resp.StatusCode != 503 || resp.Header.Get(wire.HeaderRefused) != wire.RefusedDraining {
		t.Errorf("draining: %s", resp.Status)
	}
	if reached {
		t.Error("the engine saw a refused request")
	}
	if n := len(shipped(t, b.journal)); n != 0 {
		t.Errorf("%d journal records of refused requests", n)
	}
}

func TestADeadEngineIsARefusal(t *testing.T) {
	b := newBench(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.place.address = l.Addr().String()
	_ = l.Close()
	r, id := b.request(t, t.Context(), "/v1/chat/completions", "{}")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get(wire.HeaderRefused) != wire.RefusedEngine {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	if a := b.record(t, id); a.Ending != wire.EndEngineFailed || b.place.failures.Load() != 1 {
		t.Errorf("%+v", a)
	}
}

// Rendering costs no tokens: no attempt id, no record. A probe is journaled as one.
func TestQuestionsAndProbes(t *testing.T) {
	b := newBench(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{}],"usage":{"prompt_tokens":4,"completion_tokens":1}}`)
	})
	r, _ := b.request(t, t.Context(), "/v1/chat/completions/render", "{}")
	r.Header.Del(wire.HeaderAttempt)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if n := len(shipped(t, b.journal)); n != 0 {
		t.Fatalf("%d records of a rendering", n)
	}
	c := Probe(b.journal, b.unit, []byte(`"usage":{`))
	resp, err = c.Post(Base(b.place.address)+"/v1/chat/completions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	for _, a := range shipped(t, b.journal) {
		if a.Kind != wire.KindProbe || a.Unit != b.unit || a.Prompt != 4 || a.Generated != 1 || a.HandedOver != 1 || a.Ending != wire.EndComplete {
			t.Errorf("%+v", a)
		}
		return
	}
	t.Error("a probe has no record")
}

func TestTheJournalsLimitIsARefusal(t *testing.T) {
	b := newBench(t, func(http.ResponseWriter, *http.Request) {})
	for {
		if _, err := b.journal.Begin(ids.New(), b.unit, wire.KindServe); errors.Is(err, journal.ErrBusy) {
			break
		}
	}
	r, _ := b.request(t, t.Context(), "/v1/chat/completions", "{}")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 503 || resp.Header.Get(wire.HeaderRefused) != wire.RefusedBusy {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
}
