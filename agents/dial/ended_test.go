package dial

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/agents/link"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
)

// Who holds a host's stolen key, from before the host joined again, opens data links all the time: the host's own stay,
// and requests go through them.
func TestAnEndedIdentityTakesNoLinksAway(t *testing.T) {
	now := clock.NewManual(time.Now().Add(-time.Hour))
	then, key, err := pki.NewCA(now)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.LoadCA(then.CertPEM(), key, clock.System)
	if err != nil {
		t.Fatal(err)
	}
	id, quiet := ids.New(), slog.New(slog.DiscardHandler)
	links := NewLinks(quiet)
	t.Cleanup(links.Close)
	srv := httptest.NewUnstartedServer(links)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.Listener = tls.NewListener(srv.Listener, ca.Trust().PeerServer(ca.GatewaySource("g")))
	srv.Start()
	t.Cleanup(srv.Close)
	open := func(by *pki.CA, says string) {
		t.Helper()
		l, err := link.Dial(t.Context(), "wss"+strings.TrimPrefix(srv.URL, "http"), ca.Trust().Dial(hostOf(t, by, id), pki.Gateway("g")), nil,
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, says) }), quiet)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
	}
	old := then // its leaves are an hour older than the last join
	joined := time.Now().Add(-time.Minute)
	open(ca, "host")
	for range 3 * linksEach {
		open(old, "thief")
	}
	hosts := New(ca.Trust(), ca.GatewaySource("g"), nil)
	hosts.Accept(links)
	rt, err := hosts.Transport(id, joined, wire.DataByLink)
	if err != nil {
		t.Fatal(err)
	}
	rt.DisableKeepAlives = true
	for range 2 * linksEach {
		resp, err := (&http.Client{Transport: rt}).Get(wire.DataByLink + "/x")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(text) != "host" {
			t.Fatalf("the answer is the %s's", text)
		}
	}
}

func hostOf(t *testing.T, ca *pki.CA, id ids.ID) *pki.Source {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueHost(csr, id)
	if err != nil {
		t.Fatal(err)
	}
	pair, _, err := pki.Identity(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.NewSource(pair, clock.System)
}
