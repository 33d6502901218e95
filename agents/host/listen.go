package host

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"millrace/agents/wire"
)

// Limits of the data plane's listener.
const (
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 64 << 10
)

// plane is the data plane's listener; without an address there is none and gateways come through the link.
type plane struct {
	server   *http.Server
	listener net.Listener
}

func (a *agent) listen() (*plane, error) {
	if a.cfg.DataListen == "" {
		a.dataURL = wire.DataByLink
		return &plane{}, nil
	}
	l, err := net.Listen("tcp", a.cfg.DataListen)
	if err != nil {
		return nil, fmt.Errorf("the data plane's address: %w", err)
	}
	a.dataURL = a.cfg.DataURL
	if a.dataURL == "" {
		a.dataURL = "https://" + a.advertised(l.Addr().(*net.TCPAddr))
	}
	a.log.Info("data plane", "listens", l.Addr(), "reached_at", a.dataURL)
	return &plane{
		listener: tls.NewListener(l, a.self.trust.HostServer(a.self.source)),
		server: &http.Server{Handler: a.relay, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
			ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)},
	}, nil
}

// advertised is the listener's address for others: one that listens everywhere is reached at the address that this
// machine uses towards its hub.
func (a *agent) advertised(addr *net.TCPAddr) string {
	if !addr.IP.IsUnspecified() {
		return addr.String()
	}
	ip := net.IPv4(127, 0, 0, 1)
	if hub, err := url.Parse(a.cfg.Hub); err == nil {
		if c, err := net.Dial("udp", hub.Host); err == nil { // sends nothing: it only chooses the way
			ip = c.LocalAddr().(*net.UDPAddr).IP
			_ = c.Close()
		}
	}
	return (&net.TCPAddr{IP: ip, Port: addr.Port}).String()
}

// serve runs the listener; the channel tells when it fails.
func (p *plane) serve(work *sync.WaitGroup) <-chan error {
	failed := make(chan error, 1)
	if p.server == nil {
		return failed
	}
	work.Go(func() {
		if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("the data plane: %w", err)
		}
	})
	return failed
}

// close ends what still runs: attempts have had their time.
func (p *plane) close() {
	if p.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
}
