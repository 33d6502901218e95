package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"millrace/internal/ids"
)

// IssueHost signs a host's certificate request (PKCS#10, DER). Only the public key of the request is used: the name is
// ours to give. The answer is the leaf in PEM.
func (ca *CA) IssueHost(csr []byte, id ids.ID) ([]byte, error) {
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fmt.Errorf("pki: the certificate request: %w", err)
	}
	if err := req.CheckSignature(); err != nil {
		return nil, fmt.Errorf("pki: the certificate request: %w", err)
	}
	key, ok := req.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("pki: the certificate request needs an ECDSA P-256 key")
	}
	der, err := ca.sign(Host(id), key, nil)
	if err != nil {
		return nil, err
	}
	return encodeCert(der), nil
}

// HubSource makes and renews the hub's own certificate, for a listener reached under these DNS names and addresses.
func (ca *CA) HubSource(addresses ...string) *Source {
	return ca.source(Hub, addresses)
}

// GatewaySource makes and renews the certificate of a gateway of this name.
func (ca *CA) GatewaySource(name string) *Source {
	return ca.source(Gateway(name), nil)
}

func (ca *CA) source(name Name, addresses []string) *Source {
	return newSource(ca.clock, func() (*tls.Certificate, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
		der, err := ca.sign(name, key.Public(), addresses)
		if err != nil {
			return nil, err
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("pki: %w", err)
		}
		// The authority's own certificate goes along: a host that joins knows only its fingerprint.
		return &tls.Certificate{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: key, Leaf: leaf}, nil
	})
}

func (ca *CA) sign(name Name, key crypto.PublicKey, addresses []string) ([]byte, error) {
	now := ca.clock.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: string(name)},
		NotBefore:    now.Add(-backdate),
		NotAfter:     minTime(now.Add(LeafLife), ca.cert.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:         []*url.URL{name.uri()},
	}
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, a)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca.cert, key, ca.key)
	if err != nil {
		return nil, fmt.Errorf("pki: issuing %s: %w", name, err)
	}
	return der, nil
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
