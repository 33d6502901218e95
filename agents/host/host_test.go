package host

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/agents/internal/testengine"
	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/engine"

	"crypto/tls"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	testengine.RunIfAsked()
	os.Exit(m.Run())
}

// fakeHub is a hub without a database: it joins one host and desires what it is told to.
type fakeHub struct {
	t     *testing.T
	ca    *pki.CA
	token wire.JoinToken
	host  ids.ID
	addr  string

	mu      sync.Mutex
	desired []wire.Desired
	renewed int
	seen    wire.SyncRequest
	states  map[ids.ID]string
	stop    func()
}

func newFakeHub(t *testing.T, c clock.Clock) *fakeHub {
	t.Helper()
	ca, _, err := pki.NewCA(c)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeHub{t: t, ca: ca, token: wire.NewJoinToken(ca.Digest()), host: ids.New(), states: map[ids.ID]string{}}
}

func (h *fakeHub) start() {
	h.t.Helper()
	m := http.NewServeMux()
	m.HandleFunc(wire.PathJoin, func(w http.ResponseWriter, r *http.Request) {
		var in wire.JoinRequest
		_ = json.NewDecoder(r.Body).Decode(&in)
		if in.Token != h.token.String() {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h.issue(w, in.CSR)
	})
	m.HandleFunc(wire.PathRenew, func(w http.ResponseWriter, r *http.Request) {
		var in wire.RenewRequest
		_ = json.NewDecoder(r.Body).Decode(&in)
		if name, err := pki.Peer(r.TLS); err != nil || name != pki.Host(h.host) {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		h.mu.Lock()
		h.renewed++
		h.mu.Unlock()
		h.issue(w, in.CSR)
	})
	m.HandleFunc(wire.PathLink, func(w http.ResponseWriter, r *http.Request) {
		if h.ca.Trust().Lapsed(r.TLS) {
			http.Error(w, "renew first", http.StatusUnauthorized)
			return
		}
		l, err := link.Accept(w, r, h.linked(), slog.New(slog.DiscardHandler))
		if err == nil {
			<-l.Done()
			l.Close()
		}
	})
	srv := httptest.NewUnstartedServer(m)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.Listener = tls.NewListener(srv.Listener, h.ca.Trust().HubServer(h.ca.HubSource("127.0.0.1")))
	srv.Start()
	h.addr = srv.Listener.Addr().String()
	h.stop = sync.OnceFunc(func() { srv.CloseClientConnections(); srv.Close() })
	h.t.Cleanup(h.stop)
}

func (h *fakeHub) issue(w http.ResponseWriter, csr []byte) {
	cert, err := h.ca.IssueHost(csr, h.host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(wire.JoinResponse{Host: h.host, Name: "h", Cert: cert, CA: h.ca.CertPEM()})
}

func (h *fakeHub) linked() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc(wire.PathSync, func(w http.ResponseWriter, r *http.Request) {
		var in wire.SyncRequest
		_ = json.NewDecoder(r.Body).Decode(&in)
		h.mu.Lock()
		h.seen = in
		out := wire.SyncResponse{Generation: 1, Desired: h.desired}
		h.mu.Unlock()
		if in.Wait && in.Generation == 1 {
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	m.HandleFunc(wire.PathFacts, func(_ http.ResponseWriter, r *http.Request) {
		for in := json.NewDecoder(r.Body); ; {
			var f wire.Fact
			if in.Decode(&f) != nil {
				return
			}
			if f.Load != nil {
				h.mu.Lock()
				h.states[f.Load.Unit] = f.Load.State
				h.mu.Unlock()
			}
		}
	})
	m.HandleFunc(wire.PathJournal, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return m
}

func (h *fakeHub) state(unit ids.ID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[unit]
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// run starts an agent; stop ends it and gives its error.
func run(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	cfg.Log, cfg.DieWithAgent, cfg.Drain = slog.New(slog.DiscardHandler), true, 5*time.Second
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("agent: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Desired state outlives the agent and its hub: after a restart the engine serves although no hub is there.
func TestEnginesComeBackWithoutTheHub(t *testing.T) {
	t.Parallel()
	h := newFakeHub(t, clock.System)
	unit := ids.New()
	h.desired = []wire.Desired{testengine.Desired(unit)}
	h.start()
	cfg := Config{Hub: "https://" + h.addr, Join: h.token.String(), Data: t.TempDir(), DataListen: freeAddress(t)}
	stop := run(t, cfg)
	until(t, "the engine", func() bool { return h.state(unit) == wire.StateReady })
	info, err := os.Stat(filepath.Join(cfg.Data, identityName))
	if err != nil || info.Mode().Perm() != secretMode {
		t.Errorf("identity: %v, %v", info.Mode(), err)
	}
	stop()
	h.stop()

	cfg.Join = ""
	run(t, cfg)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: h.ca.Trust().Dial(h.ca.GatewaySource("g"), pki.Host(h.host))}}
	defer client.CloseIdleConnections()
	until(t, "the engine without a hub", func() bool {
		req, _ := http.NewRequest(http.MethodPost, "https://"+cfg.DataListen+wire.DataPrefix+unit.String()+engine.ChatPath, strings.NewReader(`{"max_tokens":1}`))
		req.Header.Set(wire.HeaderAttempt, ids.New().String())
		resp, err := client.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	if _, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}).Get("https://" + cfg.DataListen + "/"); err == nil {
		t.Error("the data plane talks to anybody")
	}
}

// A host that was off for longer than its certificate lives renews it and links, without a new token.
func TestALapsedHostComesBack(t *testing.T) {
	t.Parallel()
	c := clock.NewManual(time.Now())
	h := newFakeHub(t, c)
	h.start()
	cfg := Config{Hub: "https://" + h.addr, Join: h.token.String(), Data: t.TempDir(), Clock: c, Version: "v1"}
	linked := func(version string) func() bool {
		return func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.seen.Observed.AgentVersion == version
		}
	}
	stop := run(t, cfg)
	until(t, "the first link", linked("v1"))
	stop()
	c.Advance(3 * 24 * time.Hour)
	cfg.Join, cfg.Version = "", "v2"
	stop = run(t, cfg)
	until(t, "the link after days", linked("v2"))
	h.mu.Lock()
	if h.renewed != 1 {
		t.Errorf("renewed %d times", h.renewed)
	}
	h.mu.Unlock()
	stop()
	c.Advance(pki.RenewGrace + 2*24*time.Hour)
	cfg.Log = slog.New(slog.DiscardHandler)
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "--join") {
		t.Errorf("after the grace: %v", err)
	}
}

// An installation that was made anew has another authority: a token of the new one replaces the old identity.
func TestATokenOfAnotherAuthorityReplacesTheIdentity(t *testing.T) {
	t.Parallel()
	old, fresh := newFakeHub(t, clock.System), newFakeHub(t, clock.System)
	old.start()
	fresh.start()
	cfg := Config{Hub: "https://" + old.addr, Join: old.token.String(), Data: t.TempDir()}
	stop := run(t, cfg)
	until(t, "the first link", func() bool { old.mu.Lock(); defer old.mu.Unlock(); return old.seen.Observed.Hostname != "" })
	stop()
	cfg.Hub, cfg.Join = "https://"+fresh.addr, fresh.token.String()
	run(t, cfg)
	until(t, "the second link", func() bool { fresh.mu.Lock(); defer fresh.mu.Unlock(); return fresh.seen.Observed.Hostname != "" })
}

// connectProxy tunnels CONNECT to one address for one user, and refuses anything else.
func connectProxy(t *testing.T, only string) (address string, tunnels *atomic.Int64) {
	t.Helper()
	tunnels = &atomic.Int64{}
	var open sync.WaitGroup
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != only || r.Header.Get("Proxy-Authorization") != "Basic aDpzZWNyZXQ=" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		tunnels.Add(1)
		open.Go(func() { _, _ = io.Copy(there, here); _ = there.Close() })
		open.Go(func() { _, _ = io.Copy(here, there); _ = here.Close() })
	}))
	t.Cleanup(func() { srv.Close(); open.Wait() })
	return strings.TrimPrefix(srv.URL, "http://"), tunnels
}

// A host behind a proxy joins, links and serves through it: the proxy sees nothing but TLS to the hub.
func TestAHostBehindAProxy(t *testing.T) {
	t.Parallel()
	h := newFakeHub(t, clock.System)
	unit := ids.New()
	h.desired = []wire.Desired{testengine.Desired(unit)}
	h.start()
	proxy, tunnels := connectProxy(t, h.addr)
	stop := run(t, Config{Hub: "https://" + h.addr, Join: h.token.String(), Data: t.TempDir(), Proxy: "http://h:secret@" + proxy})
	until(t, "the engine", func() bool { return h.state(unit) == wire.StateReady })
	if n := tunnels.Load(); n < 2 {
		t.Errorf("%d tunnels: joining and the link go through the proxy", n)
	}
	stop()
	for _, bad := range []string{"proxy:3128", "ftp://proxy", "http://"} {
		err := Run(t.Context(), Config{Hub: "https://" + h.addr, Data: t.TempDir(), Proxy: bad, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "proxy") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAFolderHasOneAgent(t *testing.T) {
	t.Parallel()
	h := newFakeHub(t, clock.System)
	h.start()
	cfg := Config{Hub: "https://" + h.addr, Join: h.token.String(), Data: t.TempDir()}
	run(t, cfg)
	until(t, "the link", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.seen.Observed.Hostname != "" })
	cfg.Log = slog.New(slog.DiscardHandler)
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another") {
		t.Errorf("a second agent: %v", err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	cfg.Data, cfg.DataListen = t.TempDir(), busy.Addr().String()
	if err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "address") {
		t.Errorf("a busy port: %v", err)
	}
}

// Who writes a simulated host's file makes a GPU fail: the hub hears of it at once.
func TestAFaultInTheFileIsTold(t *testing.T) {
	t.Parallel()
	h := newFakeHub(t, clock.System)
	h.start()
	file := filepath.Join(t.TempDir(), "inventory.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), secretMode); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"hostname":"rack7","gpus":[{"index":0,"uuid":"a"},{"index":1,"uuid":"b"}]}`)
	run(t, Config{Hub: "https://" + h.addr, Join: h.token.String(), Data: t.TempDir(), Inventory: file})
	seen := func() wire.Observed {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.seen.Observed
	}
	until(t, "the inventory", func() bool { return len(seen().GPUs) == 2 && seen().Simulated && seen().Hostname == "rack7" })
	write(`{"hostname":"rack7","gpus":[{"index":0,"uuid":"a"},{"index":1,"uuid":"b"}],"problems":[{"code":"xid","subject":"gpu:1","message":"Xid 79","fatal":true}]}`)
	until(t, "the fault", func() bool { o := seen(); return len(o.Problems) == 1 && o.GPUs[1].Fault == "Xid 79" })
	write(`{"hostname":"rack7","gpus":[{"index":0,"uuid":"a"},{"index":1,"uuid":"b"}]}`)
	until(t, "the repair", func() bool { o := seen(); return len(o.Problems) == 0 && o.GPUs[1].Fault == "" })
}

func TestTheAdvertisedAddressIsOneThatOthersReach(t *testing.T) {
	a := &agent{cfg: Config{Hub: "https://127.0.0.1:4"}, log: slog.New(slog.DiscardHandler)}
	for in, want := range map[string]string{"127.0.0.1:7000": "127.0.0.1:7000", "0.0.0.0:7001": "127.0.0.1:7001", "[::]:7002": "127.0.0.1:7002"} {
		addr, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.advertised(addr); got != want {
			t.Errorf("%s is advertised as %s, want %s", in, got, want)
		}
	}
}
