package pki

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"millrace/internal/clock"
)

// Trust accepts certificates of one authority and makes the TLS settings of every side.
type Trust struct {
	ca    *x509.Certificate
	pool  *x509.CertPool
	clock clock.Clock
}

func newTrust(ca *x509.Certificate, c clock.Clock) *Trust {
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &Trust{ca: ca, pool: pool, clock: c}
}

// ParseTrust reads the authority's certificate in PEM.
func ParseTrust(caPEM []byte, c clock.Clock) (*Trust, error) {
	cert, err := ParseCert(caPEM)
	if err != nil {
		return nil, fmt.Errorf("pki: the CA certificate: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("pki: the CA certificate is not one of an authority")
	}
	return newTrust(cert, c), nil
}

// Digest is the authority's fingerprint, 32 bytes.
func (t *Trust) Digest() []byte {
	sum := sha256.Sum256(t.ca.Raw)
	return sum[:]
}

// RenewGrace is how long after its end a host's certificate still proves who it is at the hub, to be renewed and for
// nothing else: a host that was off for a weekend comes back by itself. Removing a host, not time, is what shuts it out.
const RenewGrace = 30 * 24 * time.Hour

// HubServer is the agents' listener: a host may come without a certificate (it is joining); one that shows a certificate
// must be a host. The handler asks Peer who it is, and Lapsed whether it may do no more than renew.
func (t *Trust) HubServer(s *Source) *tls.Config {
	cfg := t.server(s)
	cfg.ClientAuth = tls.RequestClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return nil
		}
		now, end := t.clock.Now(), cs.PeerCertificates[0].NotAfter
		if now.After(end) && now.Before(end.Add(RenewGrace)) {
			now = end
		}
		return t.verifyAt(cs, now, isHost)
	}
	return cfg
}

// Lapsed reports whether the peer's certificate is past its end.
func (t *Trust) Lapsed(cs *tls.ConnectionState) bool {
	return len(cs.PeerCertificates) == 0 || t.clock.Now().After(cs.PeerCertificates[0].NotAfter)
}

// HostServer is an agent's data plane: gateways only.
func (t *Trust) HostServer(s *Source) *tls.Config {
	cfg := t.server(s)
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error { return t.verify(cs, Name.IsGateway) }
	return cfg
}

// PeerServer is where an agent lets other hosts of the installation measure the way to it, and nothing else.
func (t *Trust) PeerServer(s *Source) *tls.Config {
	cfg := t.server(s)
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error { return t.verify(cs, isHost) }
	return cfg
}

// Dial is a client that talks to exactly one peer: a gateway to Host(id), an agent to Hub, a host to Host(id).
func (t *Trust) Dial(s *Source, peer Name) *tls.Config {
	cfg := t.client(func(cs tls.ConnectionState) error {
		return t.verify(cs, func(n Name) bool { return n == peer })
	})
	cfg.GetClientCertificate = s.forClient
	return cfg
}

// DialJoin is a host that has no identity yet: the hub must show an authority with this fingerprint, and be its hub.
func DialJoin(digest []byte, c clock.Clock) *tls.Config {
	return (&Trust{clock: c}).client(func(cs tls.ConnectionState) error {
		for _, cert := range cs.PeerCertificates {
			sum := sha256.Sum256(cert.Raw)
			if cert.IsCA && subtle.ConstantTimeCompare(sum[:], digest) == 1 {
				return newTrust(cert, c).verify(cs, func(n Name) bool { return n == Hub })
			}
		}
		return errors.New("pki: the hub's authority is not the one the join token names")
	})
}

// Watch gives a server's settings that tell of every peer whose certificate they refuse, before the peer learns of it.
func Watch(cfg *tls.Config, refused func(from net.Addr, err error)) *tls.Config {
	out := cfg.Clone()
	out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		one := cfg.Clone()
		one.VerifyConnection = func(cs tls.ConnectionState) error {
			err := cfg.VerifyConnection(cs)
			if err != nil {
				refused(hello.Conn.RemoteAddr(), err)
			}
			return err
		}
		return one, nil
	}
	return out
}

// Peer is the verified name at the other end; an error when it showed no certificate.
func Peer(cs *tls.ConnectionState) (Name, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return "", errors.New("pki: the peer showed no certificate")
	}
	return NameOf(cs.PeerCertificates[0])
}

// issueStep is how exactly a certificate tells when it was made.
const issueStep = time.Second

// IssuedBefore reports whether the authority made the certificate of the peer at the other end before t, by its own clock
// and to the second: a certificate from before a host's last join is of an identity that the join has ended.
func IssuedBefore(cs *tls.ConnectionState, t time.Time) (bool, error) {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return false, errors.New("pki: the peer showed no certificate")
	}
	return cs.PeerCertificates[0].NotBefore.Add(backdate + issueStep).Before(t), nil
}

func (t *Trust) server(s *Source) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: s.forServer,
		Time:           t.clock.Now,
		NextProtos:     []string{"http/1.1"},
		// A resumed session would keep a peer's old certificate alive past its renewal.
		SessionTicketsDisabled: true,
	}
}

func (t *Trust) client(verify func(tls.ConnectionState) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       t.clock.Now,
		NextProtos: []string{"http/1.1"},
		// The peer is known by its URI, which the standard check does not look at: verify does all of the checking.
		InsecureSkipVerify: true,
		VerifyConnection:   verify,
	}
}

func (t *Trust) verify(cs tls.ConnectionState, accept func(Name) bool) error {
	return t.verifyAt(cs, t.clock.Now(), accept)
}

// verifyAt checks the peer's chain against the authority at a moment, and its name.
func (t *Trust) verifyAt(cs tls.ConnectionState, at time.Time, accept func(Name) bool) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("pki: the peer showed no certificate")
	}
	leaf := cs.PeerCertificates[0]
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: t.pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("pki: the peer's certificate: %w", err)
	}
	name, err := NameOf(leaf)
	if err != nil {
		return err
	}
	if !accept(name) {
		return fmt.Errorf("pki: the peer is %s: not who may be here", name)
	}
	return nil
}

func isHost(n Name) bool {
	_, ok := n.HostID()
	return ok
}
