package pki

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"millrace/internal/clock"
)

// Source holds the certificate a process shows. A handshake after half of its life renews it first when this process can
// issue (CA.HubSource, CA.GatewaySource); otherwise its owner calls Set. Running connections are not touched.
type Source struct {
	clock clock.Clock
	renew func() (*tls.Certificate, error)

	mu   sync.Mutex
	cert *tls.Certificate
}

func newSource(c clock.Clock, renew func() (*tls.Certificate, error)) *Source {
	return &Source{clock: c, renew: renew}
}

// Set replaces the certificate.
func (s *Source) Set(cert *tls.Certificate) {
	s.mu.Lock()
	s.cert = cert
	s.mu.Unlock()
}

// Current is the certificate now.
func (s *Source) Current() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renew == nil || s.cert != nil && s.clock.Now().Before(HalfLife(s.cert)) {
		return s.cert, nil
	}
	cert, err := s.renew()
	if err != nil {
		return nil, err
	}
	s.cert = cert
	return cert, nil
}

// HalfLife is when a certificate should be renewed.
func HalfLife(cert *tls.Certificate) time.Time {
	return cert.Leaf.NotBefore.Add(cert.Leaf.NotAfter.Sub(cert.Leaf.NotBefore) / 2)
}

func (s *Source) forServer(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Current() }

func (s *Source) forClient(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.Current() }

// WaitHalfLife returns when the current certificate is due for renewal, checking every step; or ctx's error.
func (s *Source) WaitHalfLife(ctx context.Context, step time.Duration) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		if cert, err := s.Current(); err == nil && cert != nil && !s.clock.Now().Before(HalfLife(cert)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
