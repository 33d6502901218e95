package catalogue

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"millrace/agents/wire"
	"millrace/db/q"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/internal/upstream"
)

// Times and sizes of connections.
const (
	dialTimeout   = 5 * time.Second
	tcpKeepAlive  = 15 * time.Second
	probeIdle     = 4 * time.Second // below uvicorn's 5 s
	probeMaxConns = 4
)

// Agent is where a host's agent is, and who it must be.
type Agent struct {
	Host    ids.ID
	Joined  time.Time // a certificate from before is of an identity that this join has ended
	Address string    // host:port
	Secure  bool      // by TLS, as an agent's always is
}

// DialHost opens a connection to a host's agent, with TLS and both identities checked where the address asks for it.
type DialHost func(ctx context.Context, to Agent) (net.Conn, error)

// Unit is something that serves a model. It is never changed.
type Unit struct {
	ID            ids.ID
	Name          string
	Model         ids.ID
	Driver        engine.Driver
	UpstreamModel string      // the name the engine knows
	Base          string      // attached: its URL; placed: the agent's address of it
	Header        http.Header // what every request to it carries: its key. Never log it.
	Attached      bool
	Host          ids.ID            // placed only
	Transport     http.RoundTripper // for probes and questions; adds Header
	Role          string            // engine.Whole, or a part's in its unit
	Replica       int               // number of a part among those of its role

	// Of a unit of several engines, which has no address of its own: prefill engines hand a prompt's cache to decode engines.
	Parts     []*Unit // by role and replica; those that are down are in it
	Handoff   engine.Handoff
	MaxPrompt int64 // tokens that a decode engine may compute itself when no prefill engine is left; 0 = none

	Peer engine.Peer // of a prefill part: where it is to decode engines

	ids   map[string][]ids.ID // of parts, by role
	pool  *upstream.Pool
	heads map[string][]byte // of requests, by path
	key   unitKey
}

// unitKey is everything that makes a unit another one.
type unitKey struct {
	name, engine, model, base, data, sealed string
	modelID, host                           ids.ID
	joined                                  int64 // unix microseconds: connections to a host end with its identity
	role, spec, transfer                    string
	replica                                 int32
}

func keyOf(r *q.CatalogueUnitsRow) unitKey {
	k := unitKey{name: r.Name, engine: r.Engine, model: r.UpstreamModel, base: r.BaseUrl, data: r.DataUrl,
		sealed: string(r.SealedKey), modelID: r.ModelID, joined: r.JoinedAt.UnixMicro(), role: r.Role, replica: r.Replica, transfer: string(r.Transfer)}
	if r.PartOf != nil {
		k.spec = string(r.Spec)
	}
	if r.HostID != nil {
		k.host = *r.HostID
	}
	return k
}

func sealContext(unit ids.ID) string { return "unit/" + unit.String() }

func (c *Catalogue) newUnit(r *q.CatalogueUnitsRow) (*Unit, error) {
	spec := Spec{ID: r.ID, Name: r.Name, Model: r.ModelID, Engine: engine.Family(r.Engine), UpstreamModel: r.UpstreamModel, Base: r.BaseUrl}
	spec.Role, spec.Replica = r.Role, int(r.Replica)
	if r.Role == engine.Prefill {
		var own engine.Spec
		if err := json.Unmarshal(r.Spec, &own); err != nil {
			return nil, fmt.Errorf("catalogue: the engine's spec: %w", err)
		}
		spec.Peer = engine.PeerOf(&own)
	}
	if r.HostID != nil {
		spec.Host, spec.Joined = *r.HostID, r.JoinedAt
		spec.Base = strings.TrimRight(r.DataUrl, "/") + wire.DataPrefix + r.ID.String()
	}
	if len(r.SealedKey) > 0 {
		secret, err := c.o.Sealer.Open(r.SealedKey, sealContext(r.ID))
		if err != nil {
			return nil, err
		}
		spec.Key = string(secret)
	}
	u, err := NewUnit(spec, c.o.Clock, c.o.DialHost)
	if err == nil {
		u.key = keyOf(r)
	}
	return u, err
}

// Spec is what a unit is made of.
type Spec struct {
	ID            ids.ID
	Name          string
	Model         ids.ID
	Engine        engine.Family
	UpstreamModel string
	Base          string
	Key           string    // sent as a bearer; "" = none
	Host          ids.ID    // Nil = attached
	Joined        time.Time // of the host
	Role          string    // "" = engine.Whole
	Replica       int
	Peer          engine.Peer
}

// NewUnit makes a unit. Nothing is dialled before it is needed.
func NewUnit(s Spec, c clock.Clock, dial DialHost) (*Unit, error) {
	driver, err := engine.Lookup(s.Engine)
	if err != nil {
		return nil, err
	}
	u := &Unit{ID: s.ID, Name: s.Name, Model: s.Model, Driver: driver, UpstreamModel: s.UpstreamModel, Base: s.Base,
		Header: http.Header{}, Attached: s.Host == ids.Nil, Host: s.Host, Role: cmp.Or(s.Role, engine.Whole), Replica: s.Replica, Peer: s.Peer}
	if s.Key != "" {
		u.Header.Set("Authorization", "Bearer "+s.Key)
	}
	return u, u.connect(c, dial, s.Joined)
}

// connect makes the unit's pools.
func (u *Unit) connect(c clock.Clock, dialHost DialHost, joined time.Time) error {
	target, err := url.Parse(u.Base)
	if err != nil || target.Host == "" {
		return fmt.Errorf("catalogue: %q is no address", u.Base)
	}
	secure := target.Scheme == "https"
	address := target.Host
	if target.Port() == "" {
		address = net.JoinHostPort(target.Hostname(), map[bool]string{false: "80", true: "443"}[secure])
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		switch {
		case u.Attached:
			return dialDirect(ctx, address, target.Hostname(), secure)
		case dialHost == nil:
			return nil, errNoDialer
		}
		return dialHost(ctx, Agent{Host: u.Host, Joined: joined, Address: address, Secure: secure})
	}
	idle := upstream.PlainIdle
	if secure {
		idle = upstream.SecureIdle
	}
	u.pool = upstream.NewPool(dial, c, idle)
	u.heads = map[string][]byte{}
	for _, path := range []string{engine.ChatPath, engine.CompletionPath, engine.EmbeddingPath} {
		u.heads[path] = head(target, path, u.Header)
	}
	forProbes := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	u.Transport = &probes{header: u.Header, next: &http.Transport{DialContext: forProbes, DialTLSContext: forProbes,
		DisableCompression: true, MaxIdleConnsPerHost: probeMaxConns, IdleConnTimeout: probeIdle}}
	return nil
}

// head is the head of every request to one of the unit's paths.
func head(base *url.URL, path string, header http.Header) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s%s HTTP/1.1\r\nHost: %s\r\n", strings.TrimRight(base.EscapedPath(), "/"), path, base.Host)
	b.WriteString("Content-Type: application/json\r\nAccept: text/event-stream\r\nUser-Agent: millrace\r\n")
	_ = header.Write(&b) // a Builder never fails; Write cleans values of line breaks
	return []byte(b.String())
}

func dialDirect(ctx context.Context, address, name string, secure bool) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: tcpKeepAlive}
	raw, err := d.DialContext(ctx, "tcp", address)
	if err != nil || !secure {
		return raw, err
	}
	conn := tls.Client(raw, &tls.Config{ServerName: name, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// Pool gives the connections for requests. Only serving can use it: its package is internal to serving.
func (u *Unit) Pool() *upstream.Pool { return u.pool }

// Head is the head of a request to one of the engine's paths, as upstream.Request wants it.
func (u *Unit) Head(path string) []byte { return u.heads[path] }

// Client is an HTTP client for probes and questions, not for customers' requests. Deadlines come by context.
func (u *Unit) Client() *http.Client { return &http.Client{Transport: u.Transport} }

func (u *Unit) close() {
	if u.pool == nil {
		return // its parts have connections
	}
	u.pool.Close()
	u.Transport.(*probes).next.CloseIdleConnections()
}

// probes adds a unit's headers to requests.
type probes struct {
	header http.Header
	next   *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (p *probes) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range p.header {
		r.Header[name] = values
	}
	return p.next.RoundTrip(r)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections looks for.
func (p *probes) CloseIdleConnections() { p.next.CloseIdleConnections() }
