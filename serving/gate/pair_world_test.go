package gate_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
)

// node is one simulated engine behind a server that can be killed.
type node struct {
	*sim.Engine
	url  string
	part *catalogue.Unit

	server  *httptest.Server
	stopRun func()

	mu    sync.Mutex
	heads []http.Header // of generations, when anybody wants to know
	texts []string
}

// record keeps what the engine is asked.
func (n *node) record(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			n.mu.Lock()
			if len(n.heads) < 8 {
				n.heads, n.texts = append(n.heads, r.Header), append(n.texts, string(body))
			}
			n.mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}

// asked gives what it was asked.
func (n *node) asked() ([]http.Header, []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heads, n.texts
}

// mode is a line of the table of hand-overs.
type mode struct {
	name        string
	family      engine.Family
	personality string
	transfer    engine.Transfer
}

var handoffs = []mode{
	{"nixl-pull", engine.VLLM, "vllm", engine.Transfer{Backend: "nixl"}},
	{"nixl-push", engine.VLLM, "vllm", engine.Transfer{Backend: "nixl", Mode: "push"}},
	{"mooncake", engine.VLLM, "vllm", engine.Transfer{Backend: "mooncake"}},
	{"bootstrap-rooms", engine.SGLang, "sglang", engine.Transfer{Backend: "nixl"}},
	{"context-first", engine.TRTLLM, "trtllm", engine.Transfer{Backend: "ucx"}},
	{"generation-first", engine.TRTLLM, "trtllm", engine.Transfer{Backend: "ucx", Mode: "generation_first"}},
}

func modeOf(name string) mode {
	for _, m := range handoffs {
		if m.name == name {
			return m
		}
	}
	panic("no mode " + name)
}

// fleet is a gate before one unit of prefill and decode engines.
type fleet struct {
	*gatetest.Stand
	t    testing.TB
	mode mode
	unit *catalogue.Unit
	p, d []*node
	e    []*node // encoders
}

// shape says what a fleet is made of.
type shape struct {
	p, d      int
	maxPrompt int64
	times     gate.Times
	change    func(*sim.Config)
}

func newFleet(t testing.TB, m mode, s shape) *fleet {
	t.Helper()
	f := &fleet{Stand: gatetest.New(t, gatetest.Options{Times: s.times}), t: t, mode: m}
	t.Cleanup(func() {
		f.eventually("the legs have ended", func() bool { return f.Gate.Legs() == 0 })
	})
	for range max(s.p, 1) {
		f.p = append(f.p, f.start(engine.Prefill, &s))
	}
	for range max(s.d, 1) {
		f.d = append(f.d, f.start(engine.Decode, &s))
	}
	f.join(s.maxPrompt)
	return f
}

func (f *fleet) start(role string, s *shape) *node {
	f.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	id := ids.New()
	cfg := sim.Config{Model: "inner", Context: 8192, Personality: f.mode.personality, Role: role, Faults: true, TransferEngine: id.String(),
		Port: ln.Addr().(*net.TCPAddr).Port, BlockSize: 16}
	if s.change != nil {
		s.change(&cfg)
	}
	e, err := sim.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	n := &node{Engine: e}
	n.server = httptest.NewUnstartedServer(n.record(e.Handler()))
	_ = n.server.Listener.Close()
	n.server.Listener = ln
	n.server.Start()
	n.url = n.server.URL
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	n.stopRun = sync.OnceFunc(func() { cancel(); running.Wait() })
	peer := engine.Peer{Engine: id.String(), Host: "127.0.0.1", Port: cfg.Port, Rank: -1}
	n.part, err = catalogue.NewUnit(catalogue.Spec{ID: id, Name: role, Model: f.Model.ID, Engine: f.mode.family, UpstreamModel: "inner", Base: n.url, Role: role, Peer: peer}, clock.System, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { n.part.Pool().Close(); n.kill(); n.server.Close() })
	return n
}

// join makes the unit of the nodes.
func (f *fleet) join(maxPrompt int64) {
	f.t.Helper()
	var parts []*catalogue.Unit
	for _, n := range append(append(append([]*node{}, f.p...), f.d...), f.e...) {
		parts = append(parts, n.part)
	}
	u, err := catalogue.Join(catalogue.Spec{ID: ids.New(), Name: "pd", Model: f.Model.ID, Engine: f.mode.family, UpstreamModel: "inner"}, f.mode.transfer, maxPrompt, parts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.unit, f.Model.Units = u, []*catalogue.Unit{u}
}

// kill ends a node as a machine that loses its power does.
func (n *node) kill() {
	_ = n.server.Config.Close()
	n.stopRun()
}

// faults sets what goes wrong there.
func (n *node) faults(t testing.TB, text string) {
	t.Helper()
	resp, err := http.Post(n.url+"/sim/faults", "application/json", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", text, resp.Status)
	}
}

func (f *fleet) eventually(what string, holds func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Errorf("%s: not within 10 s", what)
			return
		}
	}
}

// clean checks that nothing of any request is left: bookings, hand-overs, rooms, lent blocks, legs.
func (f *fleet) clean() {
	f.t.Helper()
	f.eventually("nothing is left", func() bool {
		s := f.Router.Stats()
		left := s.Bookings + s.Transfers + f.Gate.Legs() + f.Gate.Running()
		for _, n := range append(append([]*node{}, f.p...), f.d...) {
			h := n.Handovers()
			left += h.Names + h.Blocks + h.Running
		}
		return left == 0
	})
}

// aggregated is what one engine answers, and what it counts.
func (f *fleet) aggregated(body string) *gatetest.Stand {
	f.t.Helper()
	e, err := sim.New(sim.Config{Model: "inner", Context: 8192, Personality: f.mode.personality, BlockSize: 16})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	h := httptest.NewServer(e.Handler())
	f.t.Cleanup(func() { cancel(); running.Wait(); h.Close() })
	return gatetest.New(f.t, gatetest.Options{Family: f.mode.family}, &gatetest.Engine{URL: h.URL})
}
