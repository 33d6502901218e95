// Package pki is the installation's own certificate authority and the TLS settings built on it. Every process that talks
// to another over the network has a certificate of this CA with exactly one name, a URI: spiffe://millrace/host/<id>,
// spiffe://millrace/gateway/<name> or spiffe://millrace/hub.
//
// It owns keys, certificates and who-may-talk-to-whom; it does not own where they are stored, tokens, or revocation
// (leaves live a day; a removed host, and an identity that a later join ended, are refused by hubs and gateways).
//
// Invariants: a peer is accepted only when its chain ends in this CA and its URI is the one expected; host names and
// addresses prove nothing. TLS 1.3 only. A certificate can be replaced while connections run.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"millrace/internal/clock"
)

// Lifetimes.
const (
	CALife   = 10 * 365 * 24 * time.Hour
	LeafLife = 24 * time.Hour
	// backdate lets a machine whose clock runs behind accept a certificate that was made just now.
	backdate = 5 * time.Minute
)

// PEM block types.
const (
	pemCert = "CERTIFICATE"
	pemKey  = "PRIVATE KEY"
)

// CA issues leaf certificates. It is safe for concurrent use.
type CA struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	pem   []byte
	clock clock.Clock
}

// NewCA makes a new authority and gives it with its private key in PEM, to be kept secret.
func NewCA(c clock.Clock) (ca *CA, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	now := c.Now()
	tmpl := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Millrace CA"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(CALife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("pki: %w", err)
	}
	keyPEM, err = encodeKey(key)
	if err != nil {
		return nil, nil, err
	}
	ca, err = LoadCA(encodeCert(der), keyPEM, c)
	return ca, keyPEM, err
}

// LoadCA reads an authority from its PEM texts and checks that they belong together.
func LoadCA(certPEM, keyPEM []byte, c clock.Clock) (*CA, error) {
	cert, err := ParseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("pki: the CA certificate: %w", err)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("pki: the CA key: %w", err)
	}
	if !cert.IsCA {
		return nil, errors.New("pki: the CA certificate is not one of an authority")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("pki: the CA certificate and the CA key do not belong together")
	}
	return &CA{cert: cert, key: key, pem: encodeCert(cert.Raw), clock: c}, nil
}

// CertPEM is the authority's certificate: public.
func (ca *CA) CertPEM() []byte { return ca.pem }

// Fingerprint names the authority: SHA-256 of its certificate, hexadecimal.
func (ca *CA) Fingerprint() string { return hex.EncodeToString(ca.Digest()) }

// Digest is the fingerprint's 32 bytes: what a join token carries, so that a new host trusts no other authority.
func (ca *CA) Digest() []byte {
	sum := sha256.Sum256(ca.cert.Raw)
	return sum[:]
}

// Trust is what accepts this authority's certificates.
func (ca *CA) Trust() *Trust { return newTrust(ca.cert, ca.clock) }

// ParseCert reads the first certificate of a PEM text.
func ParseCert(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemCert {
		return nil, errors.New("not a certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemKey {
		return nil, errors.New("not a private key in PEM (PKCS#8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an ECDSA key")
	}
	return ec, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	b[0] &= 0x7f        // positive, as the standard wants
	b[15] |= 1          // never zero
	return new(big.Int).SetBytes(b)
}
