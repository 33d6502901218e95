package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"millrace/internal/clock"
)

// NewKey makes the key of an identity, in PEM.
func NewKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return encodeKey(key)
}

// Request makes a certificate request (PKCS#10, DER) for a key.
func Request(keyPEM []byte) ([]byte, error) {
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("pki: the identity's key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return csr, nil
}

// Identity joins a leaf to its key and tells whose it is. It fails when the two do not belong together.
func Identity(certPEM, keyPEM []byte) (*tls.Certificate, Name, error) {
	leaf, err := ParseCert(certPEM)
	if err != nil {
		return nil, "", fmt.Errorf("pki: the identity's certificate: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, "", fmt.Errorf("pki: the identity's key: %w", err)
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, "", errors.New("pki: the identity's certificate and key do not belong together")
	}
	name, err := NameOf(leaf)
	if err != nil {
		return nil, "", err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, name, nil
}

// NewSource holds an identity that its owner renews by Set.
func NewSource(cert *tls.Certificate, c clock.Clock) *Source { return &Source{cert: cert, clock: c} }

// Renewable reports whether a host's certificate is still good to be shown to the hub.
func Renewable(cert *tls.Certificate, c clock.Clock) bool {
	return c.Now().Before(cert.Leaf.NotAfter.Add(RenewGrace))
}
