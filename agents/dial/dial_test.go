package dial

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/agents/host/journal"
	"millrace/agents/host/relay"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/catalogue"
)

func newCA(t testing.TB) *pki.CA {
	t.Helper()
	ca, _, err := pki.NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// dataPlane serves a handler as a host does, and gives its data URL.
func dataPlane(t testing.TB, ca *pki.CA, id ids.ID, h http.Handler) string {
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
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.Listener = tls.NewListener(srv.Listener, ca.Trust().HostServer(pki.NewSource(pair, clock.System)))
	srv.Start()
	t.Cleanup(srv.Close)
	return "https://" + srv.Listener.Addr().String()
}

func TestOnlyTheHostAskedForAnswers(t *testing.T) {
	ca, id := newCA(t), ids.New()
	url := dataPlane(t, ca, id, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "host") }))
	hosts := New(ca.Trust(), ca.GatewaySource("g"), nil)
	get := func(h *Hosts, host ids.ID) (string, error) {
		rt, err := h.Transport(host, time.Time{}, url)
		if err != nil {
			t.Fatal(err)
		}
		defer rt.CloseIdleConnections()
		resp, err := (&http.Client{Transport: rt}).Get(url + "/x")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return string(text), err
	}
	if got, err := get(hosts, id); err != nil || got != "host" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := get(hosts, ids.New()); err == nil {
		t.Error("another host's certificate was accepted")
	}
	other := newCA(t)
	if _, err := get(New(other.Trust(), other.GatewaySource("g"), nil), id); err == nil {
		t.Error("another authority's host was accepted")
	}
	if _, err := hosts.Dial(t.Context(), catalogue.Agent{Host: id, Address: strings.TrimPrefix(url, "https://")}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without TLS: %v", err)
	}
	if _, err := hosts.Transport(id, time.Time{}, "nonsense"); err == nil {
		t.Error("nonsense passed as a data URL")
	}
}

// A host's key that was stolen lives no longer than the host's next join.
func TestAnIdentityFromBeforeTheLastJoinIsRefused(t *testing.T) {
	now := clock.NewManual(time.Now())
	ca, _, err := pki.NewCA(now)
	if err != nil {
		t.Fatal(err)
	}
	id := ids.New()
	url := dataPlane(t, ca, id, http.NotFoundHandler())
	hosts := New(ca.Trust(), ca.GatewaySource("g"), nil)
	dial := func(joined time.Time) error {
		conn, err := hosts.Dial(t.Context(), catalogue.Agent{Host: id, Joined: joined, Address: strings.TrimPrefix(url, "https://"), Secure: true})
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(now.Now()); err != nil { // the join itself made the certificate
		t.Error(err)
	}
	now.Advance(2 * time.Second)
	if err := dial(now.Now()); err == nil || !strings.Contains(err.Error(), "that identity has ended") {
		t.Errorf("after another join: %v", err)
	}
}

func TestAHostThatListensNowhereIsReachedByItsLink(t *testing.T) {
	ca, id := newCA(t), ids.New()
	asked := errors.New("asked the hub")
	hosts := New(ca.Trust(), ca.GatewaySource("g"), func(host ids.ID) (net.Conn, error) {
		if host != id {
			t.Errorf("asked for host %v", host)
		}
		return nil, asked
	})
	rt, err := hosts.Transport(id, time.Time{}, wire.DataByLink)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&http.Client{Transport: rt}).Get(wire.DataByLink + "/x"); !errors.Is(err, asked) {
		t.Errorf("%v", err)
	}
	if _, err := New(ca.Trust(), ca.GatewaySource("g"), nil).Dial(t.Context(), catalogue.Agent{Host: id, Address: "link.invalid:443", Secure: true}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("without a hub: %v", err)
	}
}

type place struct{ address string }

func (p place) Address() string                    { return p.address }
func (p place) UsageMark() []byte                  { return []byte(`"usage":{`) }
func (p place) Progress()                          {}
func (p place) Leave(bool)                         {}
func (p place) Enter(ids.ID) (relay.Place, string) { return p, "" }

// A gateway's whole way through an agent: mTLS, journal, relay, engine on loopback.
func BenchmarkThroughAnAgent(b *testing.B) {
	line := []byte(`data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":9,"completion_tokens":77}}` + "\n\n")
	for name, chunks := range map[string]int{"whole": 1, "stream100": 100} {
		b.Run(name, func(b *testing.B) {
			engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				for range chunks {
					_, _ = w.Write(line)
					_ = http.NewResponseController(w).Flush()
				}
			}))
			b.Cleanup(engine.Close)
			j, err := journal.Open(b.TempDir(), clock.System, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = j.Close() })
			ca, id := newCA(b), ids.New()
			url := dataPlane(b, ca, id, relay.New(place{strings.TrimPrefix(engine.URL, "http://")}, j, slog.New(slog.DiscardHandler)))
			rt, err := New(ca.Trust(), ca.GatewaySource("g"), nil).Transport(id, time.Time{}, url)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(rt.CloseIdleConnections)
			client, body := &http.Client{Transport: rt}, bytes.Repeat([]byte("y"), 1000)
			b.ReportAllocs()
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, _ := http.NewRequest(http.MethodPost, url+wire.DataPrefix+ids.New().String()+"/v1/chat/completions", bytes.NewReader(body))
					r.Header.Set(wire.HeaderAttempt, ids.New().String())
					resp, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		})
	}
}
