package link

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const patience = 20 * time.Second

// pair links an agent's handler and a hub's handler over real TLS, through a connection that the test can cut.
func pair(t *testing.T, agent, hub http.Handler) (agentSide, hubSide *Link, cut func()) {
	t.Helper()
	ca, _, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *Link, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, err := Accept(w, r, hub, quiet)
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- l
		<-l.Done()
		l.Close()
	}))
	var mu sync.Mutex
	var conns []net.Conn
	srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}
	srv.Listener = tls.NewListener(srv.Listener, ca.Trust().HubServer(ca.HubSource("127.0.0.1")))
	srv.Start()
	t.Cleanup(srv.Close)
	cfg := ca.Trust().Dial(identity(t, ca), pki.Hub)
	a, err := Dial(context.Background(), "wss"+strings.TrimPrefix(srv.URL, "http"), cfg, nil, agent, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a, <-accepted, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.(*tls.Conn).NetConn().Close() // no farewell
		}
	}
}

func identity(t *testing.T, ca *pki.CA) *pki.Source {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueHost(csr, ids.New())
	if err != nil {
		t.Fatal(err)
	}
	leaf, _, err := pki.Identity(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.NewSource(leaf, clock.System)
}

func say(what string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, what+" got "+string(body))
	})
}

func post(t *testing.T, l *Link, body string) string {
	t.Helper()
	resp, err := (&http.Client{Transport: l.Transport()}).Post("http://link/x", "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRequestsGoBothWays(t *testing.T) {
	agent, hub, _ := pair(t, say("agent"), say("hub"))
	if got := post(t, agent, "facts"); got != "hub got facts" {
		t.Error(got)
	}
	if got := post(t, hub, "prompt"); got != "agent got prompt" {
		t.Error(got)
	}
	big := strings.Repeat("x", 8<<20)
	if got := post(t, hub, big); len(got) != len("agent got ")+len(big) {
		t.Errorf("%d bytes of 8 MiB came back", len(got))
	}
}

func TestACallerThatLeavesIsSeen(t *testing.T) {
	left := make(chan struct{})
	_, hub, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}), nil)
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://link/x", strings.NewReader("{}"))
	resp, err := hub.Transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	wait(t, left, "the agent's handler to see the caller leave")
}

func TestABreakIsSeenOnBothSidesAndByRunningRequests(t *testing.T) {
	left := make(chan struct{})
	agent, hub, cut := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}), nil)
	req, _ := http.NewRequest(http.MethodGet, "http://link/x", nil)
	resp, err := hub.Transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cut()
	wait(t, agent.Done(), "the agent's side to notice")
	wait(t, hub.Done(), "the hub's side to notice")
	wait(t, left, "the handler to end")
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a broken stream read as a complete answer")
	}
}

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("waited in vain for " + what)
	}
}

// An agent that opens streams without end is hung up on; what it has open works on, and a place that is given back is
// another's.
func TestAnAgentHasAFewStreamsOnly(t *testing.T) {
	agent, _, _ := pair(t, http.NotFoundHandler(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "here") }))
	ask := func(c net.Conn) bool {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: link\r\n\r\n")
		_, err := io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	var open []net.Conn
	for range maxStreams {
		c, err := agent.Open()
		if err != nil {
			t.Fatal(err)
		}
		if !ask(c) {
			t.Fatalf("stream %d is not served", len(open))
		}
		open = append(open, c)
	}
	for range 3 * maxStreams {
		if c, err := agent.Open(); err == nil && ask(c) {
			t.Fatal("one more stream is served")
		}
	}
	for _, c := range open {
		_ = c.Close()
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err := agent.Open()
		if err == nil && ask(c) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no place is given back")
		}
	}
}
