// Package dial is a gateway's way to hosts: TLS to an agent's data plane, where only that very host's certificate is
// accepted and no identity of it that a later join has ended, or a stream through a link of the host's, to this gateway or to
// the hub in its process, when it listens nowhere.
//
// It owns no pool, no retry and no choice of host. Invariant: a connection that it gives ends at the host asked for.
package dial

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"millrace/agents/wire"
	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/pki"
	"millrace/serving/catalogue"
)

// Times and sizes of connections.
const (
	connectTimeout = 5 * time.Second
	keepAlive      = 15 * time.Second
	idleTimeout    = 90 * time.Second
	idleConns      = 64
)

// Hosts dials hosts. It is safe for concurrent use.
type Hosts struct {
	trust  *pki.Trust
	source *pki.Source
	linked func(host ids.ID) (net.Conn, error)
	links  *Links // nil = this gateway takes none
}

// New makes a dialler that shows the source's certificate, a gateway's. linked opens a stream through a host's link
// (hub.DialLink); nil when this process has no hub.
func New(trust *pki.Trust, source *pki.Source, linked func(host ids.ID) (net.Conn, error)) *Hosts {
	return &Hosts{trust: trust, source: source, linked: linked}
}

// Accept makes hosts reachable by their data links to this gateway, before their links to a hub. Call it before the first
// Dial.
func (h *Hosts) Accept(l *Links) { h.links = l }

// Dial opens a connection, ready for HTTP/1.1, to a host's agent. It is a catalogue.DialHost.
func (h *Hosts) Dial(ctx context.Context, to catalogue.Agent) (net.Conn, error) {
	if name, _, err := net.SplitHostPort(to.Address); err == nil && name == linkName {
		var err error
		if h.links != nil {
			var conn net.Conn
			if conn, err = h.links.open(to.Host, to.Joined); err == nil {
				return conn, nil
			}
		}
		if h.linked == nil {
			if err != nil {
				return nil, err
			}
			return nil, fault.New(fault.Unavailable, "The host can be reached through its hub only.").WithCode("host_not_linked")
		}
		return h.linked(to.Host) // the hub has checked the identity and breaks the link when it ends
	}
	if !to.Secure {
		return nil, fault.New(fault.Unavailable, "The host's address is not one of an agent.").WithCode("host_not_secure")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, "tcp", to.Address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, h.trust.Dial(h.source, pki.Host(to.Host)))
	err = conn.HandshakeContext(ctx)
	if err == nil {
		state := conn.ConnectionState()
		err = current(&state, to.Joined)
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("dial: host %s: %w", to.Host, err)
	}
	return conn, nil
}

// current refuses an identity that ended when the host joined again.
func current(cs *tls.ConnectionState, joined time.Time) error {
	ended, err := pki.IssuedBefore(cs, joined)
	if err == nil && ended {
		err = fmt.Errorf("its certificate is from before it joined at %s: that identity has ended", joined.UTC().Format(time.RFC3339))
	}
	return err
}

// linkName is the host name in wire.DataByLink.
var linkName = func() string {
	u, err := url.Parse(wire.DataByLink)
	if err != nil {
		panic(err) // a constant
	}
	return u.Hostname()
}()

// Transport carries requests to one host that joined at a time; only the path of their URLs counts.
func (h *Hosts) Transport(host ids.ID, joined time.Time, dataURL string) (*http.Transport, error) {
	u, err := url.Parse(dataURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("dial: %q is no data URL", dataURL)
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	open := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.Dial(ctx, catalogue.Agent{Host: host, Joined: joined, Address: address, Secure: u.Scheme == "https"})
	}
	return &http.Transport{DialContext: open, DialTLSContext: open, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTimeout,
		DisableCompression: true}, nil
}
