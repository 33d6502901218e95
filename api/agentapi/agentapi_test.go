package agentapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"millrace/internal/clock"
	"millrace/internal/pki"
)

// Whoever knows the authority's fingerprint reaches the hub; the listener ends with its context.
func TestServe(t *testing.T) {
	ca, _, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hub := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, ln, ca.Trust().HubServer(ca.HubSource("127.0.0.1")), hub, slog.New(slog.DiscardHandler))
	}()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.DialJoin(ca.Digest(), clock.System)}}
	resp, err := client.Get("https://" + ln.Addr().String() + "/agent/v1/join")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "/agent/v1/join" {
		t.Errorf("%q, %v", text, err)
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: pki.DialJoin(make([]byte, 32), clock.System)}}
	if resp, err := stranger.Get("https://" + ln.Addr().String() + "/"); err == nil {
		resp.Body.Close()
		t.Error("another authority's fingerprint was met")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}
