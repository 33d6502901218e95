package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newCA(t *testing.T, c clock.Clock) *CA {
	t.Helper()
	ca, _, err := NewCA(c)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// hostSource goes through a host's own way: key, request, certificate.
func hostSource(t *testing.T, ca *CA, id ids.ID) *Source {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := Request(key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.IssueHost(csr, id)
	if err != nil {
		t.Fatal(err)
	}
	pair, name, err := Identity(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := name.HostID(); !ok || got != id {
		t.Fatalf("the certificate is %q's, want host %s", name, id)
	}
	return NewSource(pair, ca.clock)
}

// handshake reports what both sides say after one byte has gone each way.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	failed := make(chan error, 1)
	go func() {
		s := tls.Server(a, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("!"))
		}
		a.Close()
		failed <- err
	}()
	c := tls.Client(b, client)
	_, err := c.Read(make([]byte, 1)) // in TLS 1.3 the client learns of a refusal by reading
	b.Close()
	if serverErr := <-failed; serverErr != nil {
		return serverErr
	}
	return err
}

func TestWhoMayTalkToWhom(t *testing.T) {
	c := clock.NewManual(start)
	ca, other := newCA(t, c), newCA(t, c)
	trust, foreign := ca.Trust(), other.Trust()
	x, y := ids.New(), ids.New()
	hostX, hostY, evilX := hostSource(t, ca, x), hostSource(t, ca, y), hostSource(t, other, x)
	hub, gw, evilGW, evilHub := ca.HubSource("127.0.0.1"), ca.GatewaySource("g1"), other.GatewaySource("g1"), other.HubSource()

	for _, tc := range []struct {
		name           string
		server, client *tls.Config
		ok             bool
	}{
		{"an agent dials the hub", trust.HubServer(hub), trust.Dial(hostX, Hub), true},
		{"a joining host dials the hub by fingerprint", trust.HubServer(hub), DialJoin(ca.Digest(), c), true},
		{"a gateway dials host x", trust.HostServer(hostX), trust.Dial(gw, Host(x)), true},
		{"host y measures the way to x", trust.PeerServer(hostX), trust.Dial(hostY, Host(x)), true},

		{"a foreign host measures the way to x", trust.PeerServer(hostX), foreign.Dial(evilX, Host(x)), false},
		{"nobody measures the way to x", trust.PeerServer(hostX), DialJoin(ca.Digest(), c), false},
		{"a host measures the way to x and meets y", trust.PeerServer(hostY), trust.Dial(hostY, Host(x)), false},
		{"a joining host meets another authority's hub", foreign.HubServer(evilHub), DialJoin(ca.Digest(), c), false},
		{"a joining host meets a host in place of the hub", trust.HubServer(hostX), DialJoin(ca.Digest(), c), false},
		{"an agent meets another authority's hub", foreign.HubServer(evilHub), trust.Dial(hostX, Hub), false},
		{"an agent meets a host in place of the hub", trust.HubServer(hostY), trust.Dial(hostX, Hub), false},
		{"a foreign host dials the hub", trust.HubServer(hub), foreign.Dial(evilX, Hub), false},
		{"a gateway dials the hub as a host", trust.HubServer(hub), trust.Dial(gw, Hub), false},
		{"a gateway dials x and meets y", trust.HostServer(hostY), trust.Dial(gw, Host(x)), false},
		{"a gateway dials x and meets a foreign x", foreign.HostServer(evilX), trust.Dial(gw, Host(x)), false},
		{"a foreign gateway dials x", trust.HostServer(hostX), foreign.Dial(evilGW, Host(x)), false},
		{"another host dials x's data plane", trust.HostServer(hostX), trust.Dial(hostY, Host(x)), false},
		{"nobody dials x's data plane", trust.HostServer(hostX), DialJoin(ca.Digest(), c), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := handshake(t, tc.server, tc.client); (err == nil) != tc.ok {
				t.Fatalf("ok = %v, want %v: %v", err == nil, tc.ok, err)
			}
		})
	}
}

func TestAnExpiredLeafIsRefused(t *testing.T) {
	c := clock.NewManual(start)
	ca := newCA(t, c)
	id := ids.New()
	host, gw := hostSource(t, ca, id), ca.GatewaySource("g")
	c.Advance(LeafLife - time.Minute)
	if err := handshake(t, ca.Trust().HostServer(host), ca.Trust().Dial(gw, Host(id))); err != nil {
		t.Fatalf("before its end: %v", err)
	}
	c.Advance(2 * time.Minute)
	if err := handshake(t, ca.Trust().HostServer(host), ca.Trust().Dial(gw, Host(id))); err == nil {
		t.Fatal("an expired host was accepted")
	}
}

// Past its end a host may still come to the hub, which then lets it renew only; after the grace it may not come at all.
func TestALapsedHostMayRenew(t *testing.T) {
	c := clock.NewManual(start)
	ca := newCA(t, c)
	host := hostSource(t, ca, ids.New())
	cert, _ := host.Current()
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert.Leaf}}
	for _, tc := range []struct {
		after         time.Duration
		comes, lapsed bool
	}{{0, true, false}, {LeafLife + time.Hour, true, true}, {RenewGrace, true, true}, {LeafLife + RenewGrace + time.Hour, false, true}} {
		c.Advance(start.Add(tc.after).Sub(c.Now()))
		err := handshake(t, ca.Trust().HubServer(ca.HubSource()), ca.Trust().Dial(host, Hub))
		if (err == nil) != tc.comes || ca.Trust().Lapsed(state) != tc.lapsed || Renewable(cert, c) != tc.comes {
			t.Errorf("after %v: %v, lapsed %v", tc.after, err, ca.Trust().Lapsed(state))
		}
	}
}

// A gateway that runs for days renews by itself; a host's owner sets the new one while the listener stays.
func TestRotationWithoutRestart(t *testing.T) {
	c := clock.NewManual(start)
	ca := newCA(t, c)
	id := ids.New()
	host, gw := hostSource(t, ca, id), ca.GatewaySource("g")
	server, client := ca.Trust().HostServer(host), ca.Trust().Dial(gw, Host(id))
	for day := range 5 {
		if err := handshake(t, server, client); err != nil {
			t.Fatalf("day %d: %v", day, err)
		}
		c.Advance(24 * time.Hour)
		if cert, _ := host.Current(); c.Now().Before(HalfLife(cert)) {
			t.Fatal("not due after a day")
		}
		fresh, _ := hostSource(t, ca, id).Current()
		host.Set(fresh)
	}
}

func TestLoadCARefusesWhatDoesNotBelongTogether(t *testing.T) {
	a, aKey, err := NewCA(clock.System)
	if err != nil {
		t.Fatal(err)
	}
	b, bKey, _ := NewCA(clock.System)
	if got, err := LoadCA(a.CertPEM(), aKey, clock.System); err != nil || got.Fingerprint() != a.Fingerprint() {
		t.Fatalf("the same CA again: %v", err)
	}
	if _, err := LoadCA(a.CertPEM(), bKey, clock.System); err == nil {
		t.Error("another CA's key passed")
	}
	if _, err := LoadCA([]byte("junk"), aKey, clock.System); err == nil {
		t.Error("junk passed as a certificate")
	}
	if a.Fingerprint() == b.Fingerprint() {
		t.Error("two authorities with one fingerprint")
	}
	leaf, _ := a.GatewaySource("g").Current()
	if _, err := LoadCA(encodeCert(leaf.Certificate[0]), aKey, clock.System); err == nil {
		t.Error("a leaf passed as an authority")
	}
	if _, err := ParseTrust(encodeCert(leaf.Certificate[0]), clock.System); err == nil {
		t.Error("a leaf passed as trust")
	}
}

// A request's own wishes are ignored: the hub alone names a host.
func TestIssueHostRefusesJunk(t *testing.T) {
	ca := newCA(t, clock.System)
	if _, err := ca.IssueHost([]byte("junk"), ids.New()); err == nil {
		t.Error("junk was signed")
	}
	key, _ := NewKey()
	csr, _ := Request(key)
	csr[len(csr)-1] ^= 1
	if _, err := ca.IssueHost(csr, ids.New()); err == nil {
		t.Error("a request with a broken signature was signed")
	}
}
