// Package link is the one connection between an agent and its hub: a WebSocket that the agent dials by mTLS, carrying
// yamux, with HTTP both ways. So a host behind NAT can be reached, and any proxy that passes WebSockets passes it.
//
// It owns the connection, its health and its streams; it does not own who may link (package pki), what is said
// (package wire), or dialling again after a break (the agent).
//
// Invariants: when the connection breaks, every stream breaks and Done closes, on both sides, within deadAfter; a request
// whose caller leaves closes its stream, which the other side sees as a caller that left.
package link

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	neturl "net/url"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/yamux"
)

// Times and sizes of a link. A silent peer is noticed after pingEvery + pingTimeout.
const (
	pingEvery    = 3 * time.Second
	pingTimeout  = 6 * time.Second
	dialTimeout  = 10 * time.Second
	openTimeout  = 20 * time.Second
	closeTimeout = 30 * time.Second // a half-closed stream is reset then
	streamWindow = 1 << 20          // bytes in flight per stream: 10 MB/s at 100 ms round trip
	idleStreams  = 64
	idleTimeout  = 90 * time.Second
	readHeader   = 10 * time.Second
	maxHeader    = 64 << 10
)

// Link is one live connection. Both sides serve a handler and make requests.
type Link struct {
	session *yamux.Session
	server  *http.Server
	rt      *http.Transport
	serving sync.WaitGroup
}

// Refused is a hub that answers and does not link.
type Refused struct{ Status int }

func (e *Refused) Error() string { return fmt.Sprintf("link: the hub refuses, status %d", e.Status) }

// Proxy names the proxy for a request, nil for none: http.ProxyFromEnvironment, or one's own.
type Proxy func(*http.Request) (*neturl.URL, error)

// Dial opens the agent's side: url is the hub's wss:// address with path, handler answers the hub's requests. A proxy sees
// a CONNECT and then TLS between agent and hub.
func Dial(ctx context.Context, url string, cfg *tls.Config, proxy Proxy, handler http.Handler, log *slog.Logger) (*Link, error) {
	rt := &http.Transport{Proxy: proxy, TLSClientConfig: cfg, TLSHandshakeTimeout: dialTimeout}
	defer rt.CloseIdleConnections()
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, resp, err := websocket.Dial(dialing, url, &websocket.DialOptions{HTTPClient: &http.Client{Transport: rt}})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, &Refused{resp.StatusCode}
		}
		return nil, fmt.Errorf("link: %w", err)
	}
	return start(conn, yamux.Client, 0, handler, log)
}

// Accept takes the hub's side of a request that Dial made. It answers the request itself when it fails.
func Accept(w http.ResponseWriter, r *http.Request, handler http.Handler, log *slog.Logger) (*Link, error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{})
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return start(conn, yamux.Server, maxStreams, handler, log)
}

type yamuxSide func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error)

func start(ws *websocket.Conn, side yamuxSide, streams int, handler http.Handler, log *slog.Logger) (*Link, error) {
	quiet := slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	cfg := yamux.DefaultConfig()
	cfg.KeepAliveInterval = pingEvery
	cfg.ConnectionWriteTimeout = pingTimeout
	cfg.MaxStreamWindowSize = streamWindow
	cfg.StreamOpenTimeout = openTimeout
	cfg.StreamCloseTimeout = closeTimeout
	cfg.LogOutput, cfg.Logger = nil, quiet
	// The link outlives the request that opened it; Close ends it.
	session, err := side(hardConn{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws}, cfg)
	if err != nil {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("link: %w", err)
	}
	l := &Link{session: session, server: &http.Server{Handler: handler, ReadHeaderTimeout: readHeader,
		MaxHeaderBytes: maxHeader, IdleTimeout: idleTimeout, ErrorLog: quiet}}
	l.rt = &http.Transport{
		DialContext:         func(context.Context, string, string) (net.Conn, error) { return l.Open() },
		MaxIdleConnsPerHost: idleStreams,
		IdleConnTimeout:     idleTimeout / 2, // before the other side's, so that no request meets a closing stream
		DisableCompression:  true,
	}
	var in net.Listener = session
	if streams > 0 {
		in = &bounded{session, make(chan struct{}, streams)}
	}
	l.serving.Add(1)
	go func() {
		defer l.serving.Done()
		_ = l.server.Serve(in) // ends with the session
	}()
	return l, nil
}

// Transport carries requests to the other side; the URL's host is ignored (write http://link/path).
func (l *Link) Transport() http.RoundTripper { return l.rt }

// Open makes a raw stream to the other side's HTTP server.
func (l *Link) Open() (net.Conn, error) {
	conn, err := l.session.Open()
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	return conn, nil
}

// Done is closed when the link is broken.
func (l *Link) Done() <-chan struct{} { return l.session.CloseChan() }

// Close breaks the link and waits until its server has stopped accepting. Handlers end as their streams do.
func (l *Link) Close() {
	_ = l.session.Close()
	_ = l.server.Close()
	l.rt.CloseIdleConnections()
	l.serving.Wait()
}

// hardConn closes at once: the WebSocket's closing handshake would wait for a peer that may be dead.
type hardConn struct {
	net.Conn
	ws *websocket.Conn
}

func (c hardConn) Close() error { return c.ws.CloseNow() }
