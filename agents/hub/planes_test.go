package hub

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/engine"
)

// meets reports whether a listener of an agent speaks to whoever comes with these settings.
func meets(t *testing.T, address string, cfg *tls.Config, say string) bool {
	t.Helper()
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, say); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, make([]byte, 1)) // in TLS 1.3 a client learns of a refusal by reading
	return err == nil
}

// An agent's data plane is for this installation's gateways, its probe for this installation's hosts, each for now.
func TestWrongIdentitiesAtAnAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	cfg := b.config(b.token("h1"))
	cfg.FabricListen = "127.0.0.1:0"
	b.agent(cfg)
	until(t, "its doors", func() bool { o := b.host("h1").Observed; return o.DataURL != "" && o.ProbeAddress != "" })
	h := b.host("h1")
	data, probe := strings.TrimPrefix(h.DataURL, "https://"), h.Observed.ProbeAddress
	other, _, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	b.past.Advance(time.Now().Add(-pki.LeafLife - time.Hour).Sub(b.past.Now()))
	lapsedGateway, err := b.old.GatewaySource("g").Current()
	if err != nil {
		t.Fatal(err)
	}
	nobody := pki.NewSource(nil, clock.System)
	for _, c := range []struct {
		name        string
		who         *pki.Source
		data, probe bool
	}{
		{"a gateway", b.ca.GatewaySource("g"), true, false},
		{"another host", identityBy(t, b.ca, ids.New()), false, true},
		{"the hub", b.ca.HubSource(), false, false},
		{"nobody", nobody, false, false},
		{"another authority's gateway", other.GatewaySource("g"), false, false},
		{"another authority's host", identityBy(t, other, ids.New()), false, false},
		{"a host whose certificate has ended", identityBy(t, b.old, ids.New()), false, false},
		{"a gateway whose certificate has ended", pki.NewSource(lapsedGateway, clock.System), false, false},
	} {
		settings := b.ca.Trust().Dial(c.who, pki.Host(h.ID))
		if c.who == nobody {
			settings.GetClientCertificate = nil
		}
		if got := meets(t, data, settings, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); got != c.data {
			t.Errorf("%s at the data plane: %v", c.name, got)
		}
		if got := meets(t, probe, settings, "P"); got != c.probe {
			t.Errorf("%s at the probe: %v", c.name, got)
		}
	}
}

// A gateway reaches the units of the host that it dials, and of an engine what serves requests; no spelling of a path leads
// further.
func TestPathsAtAnAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit, elsewhere := b.place("h1", "u1"), b.place("h2", "u2")
	b.agent(b.config(b.token("h1")))
	b.untilState(unit, wire.StateReady)
	h := b.host("h1")
	rt, err := b.gateway().Transport(h.ID, time.Time{}, h.DataURL)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.CloseIdleConnections()
	own := wire.DataPrefix + unit.String()
	for _, c := range []struct {
		path string
		want int
	}{
		{own + engine.ChatPath, http.StatusOK},
		{wire.DataPrefix + elsewhere.String() + engine.ChatPath, http.StatusServiceUnavailable},
		{wire.DataPrefix + ids.New().String() + engine.ChatPath, http.StatusServiceUnavailable},
		{wire.DataPrefix + "../" + elsewhere.String() + engine.ChatPath, http.StatusNotFound},
		{own + "/update_weights", http.StatusNotFound},
		{own + "/v1/load_lora_adapter", http.StatusNotFound},
		{own + "/v1/../update_weights", http.StatusNotFound},
		{own + "/v1/%2e%2e/update_weights", http.StatusNotFound},
		{own + "/v1/..%2fupdate_weights", http.StatusNotFound},
		{own + "/v1%2f..%2fupdate_weights", http.StatusNotFound},
		{own + "/v1/%252e%252e/update_weights", http.StatusNotFound},
		{own + "/v1/..;/update_weights", http.StatusNotFound},
		{own + "/v1/..%5cupdate_weights", http.StatusNotFound},
		{own + "/v1/x%0d%0aHost:%20y", http.StatusNotFound},
		{own + "//v1/chat/completions", http.StatusNotFound},
		{own + "/sleep/../v1/chat/completions", http.StatusNotFound},
		{own + "/release_memory_occupation/../x/render", http.StatusNotFound},
		{own, http.StatusNotFound},
		{wire.LogPrefix + unit.String() + "?bytes=100", http.StatusNotFound},
		{wire.PathSync, http.StatusNotFound},
		{"/", http.StatusNotFound},
	} {
		u, err := url.Parse(h.DataURL)
		if err != nil {
			t.Fatal(err)
		}
		u.Opaque = "//" + u.Host + c.path // as it is spelled
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.DataURL, strings.NewReader(`{"max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.URL = u
		req.Header.Set(wire.HeaderAttempt, ids.New().String())
		if got, body := answered(t, rt, req); got != c.want {
			t.Errorf("%s: %d %.100s, want %d", c.path, got, body, c.want)
		}
	}
}

// A fleet's probe moves a bounded amount, for one peer at a time.
func TestAProbeIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	cfg := b.config(b.token("h1"))
	cfg.FabricListen = "127.0.0.1:0"
	b.agent(cfg)
	until(t, "its door", func() bool { return b.host("h1").Observed.ProbeAddress != "" })
	h := b.host("h1")
	peer := identityBy(t, b.ca, ids.New())
	settings := b.ca.Trust().Dial(peer, pki.Host(h.ID))
	conn, err := (&tls.Dialer{Config: settings}).DialContext(t.Context(), "tcp", h.Observed.ProbeAddress)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	answer := make([]byte, 5)
	for i := range answer {
		if _, err := conn.Write([]byte{'P'}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, answer[i:i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if meets(t, h.Observed.ProbeAddress, b.ca.Trust().Dial(identityBy(t, b.ca, ids.New()), pki.Host(h.ID)), "P") {
		t.Error("two peers probe at once")
	}
	if _, err := conn.Write([]byte{'S', 0xff, 0xff, 0xff, 0xff}); err != nil { // 4 GiB
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, conn); err != nil || n > 64<<20 {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if meets(t, h.Observed.ProbeAddress, settings, "P") {
		t.Error("a peer may come again at once")
	}
}
