package hub

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/agents/dial"
	"millrace/agents/wire"
	"millrace/db/bus"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// apart is a gateway in a process without a hub, that takes data links.
type apart struct {
	*dial.Hosts

	links *dial.Links
	taken atomic.Int64 // links, ever
	stop  func()
}

func (b *bench) gatewayApart(name string) *apart {
	b.t.Helper()
	source := b.ca.GatewaySource(name)
	g := &apart{Hosts: dial.New(b.ca.Trust(), source, nil), links: dial.NewLinks(quiet)}
	g.Accept(g.links)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wire.PathData, func(w http.ResponseWriter, r *http.Request) {
		g.taken.Add(1)
		g.links.ServeHTTP(w, r)
	})
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), 0)
	srv.Listener = tls.NewListener(srv.Listener, b.ca.Trust().PeerServer(source))
	srv.Start()
	said, err := json.Marshal(wire.Gateway{Name: name, URL: "https://" + srv.Listener.Addr().String()})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			_ = b.bus.Publish(bus.FleetGateways, said)
			select {
			case <-ctx.Done():
			case <-time.After(wire.GatewayEvery):
			}
		}
	})
	g.stop = sync.OnceFunc(func() { cancel(); work.Wait(); g.links.Close(); srv.Close() })
	b.t.Cleanup(g.stop)
	return g
}

// complete asks by this gateway.
func (g *apart) complete(b *bench, hostName string, joined time.Time, unit ids.ID) error {
	h := b.host(hostName)
	rt, err := g.Transport(h.ID, joined, h.DataURL)
	if err != nil {
		return err
	}
	defer rt.CloseIdleConnections()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, h.DataURL+wire.DataPrefix+unit.String()+engine.ChatPath, strings.NewReader(`{"max_tokens":1}`))
	if err != nil {
		return err
	}
	req.Header.Set(wire.HeaderAttempt, ids.New().String())
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %w: %s", resp.Status, err, text)
	}
	return nil
}

// A host behind NAT dials every gateway that says it takes data links, several times, and each of them reaches its engines
// without the hub in between; also while the hub is away.
func TestGatewaysWithoutAHubReachHostsBehindNAT(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start()
	unit := b.place("h", "u")
	cfg := b.config(b.token("h"))
	cfg.DataListen = ""
	b.agent(cfg)
	b.untilState(unit, wire.StateReady)
	until(t, "its data URL", func() bool { return b.host("h").DataURL == wire.DataByLink })
	first, second := b.gatewayApart("g 1"), b.gatewayApart("g 2")
	host := b.host("h").ID
	for _, g := range []*apart{first, second} {
		until(t, "two data links", func() bool { return g.links.Count(host) >= 2 })
		if err := g.complete(b, "h", time.Time{}, unit); err != nil {
			t.Error(err)
		}
	}
	dialled := second.taken.Load()
	b.stop() // the hub
	if err := second.complete(b, "h", time.Time{}, unit); err != nil {
		t.Errorf("without the hub: %v", err)
	}
	b.start() // another hub, which knows no gateway yet: what runs over the links runs on
	b.untilState(b.place("h", "another"), wire.StateReady)
	if n := second.taken.Load(); n != dialled {
		t.Errorf("%d data links were dialled, %d would have done", n, dialled)
	}
	first.stop()
	if err := first.complete(b, "h", time.Time{}, unit); err == nil {
		t.Error("a gateway that is gone")
	}
	// An identity that a later join has ended is refused, and its link broken.
	if err := second.complete(b, "h", time.Now().Add(time.Hour), unit); err == nil || !strings.Contains(err.Error(), "identity has ended") {
		t.Errorf("an identity that has ended: %v", err)
	}
}
