// Package seal derives every secret the installation needs from its master key: the pepper of API keys, the salts that
// keep one organization's prefix cache from another, and the key that seals upstream credentials at rest.
//
// The master key comes from a file or the environment and is never stored in the database; only its fingerprint is, so
// that a process with another key refuses to start.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// KeyBytes is the length of a master key.
const KeyBytes = 32

// Master holds the derived keys. It is safe for concurrent use.
type Master struct {
	pepper, salt macs
	aead         cipher.AEAD
	fingerprint  string
}

// New derives everything from a raw master key.
func New(key []byte) (*Master, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("seal: the master key must be %d bytes, not %d", KeyBytes, len(key))
	}
	derive := func(purpose string) []byte {
		out, err := hkdf.Key(sha256.New, key, nil, "millrace/"+purpose, 32)
		if err != nil {
			panic(err) // only for impossible lengths
		}
		return out
	}
	block, err := aes.NewCipher(derive("seal"))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Master{pepper: newMACs(derive("pepper")), salt: newMACs(derive("cache-salt")), aead: aead,
		fingerprint: hex.EncodeToString(derive("fingerprint")[:16])}, nil
}

// Generate makes a new master key in its text form.
func Generate() string {
	key := make([]byte, KeyBytes)
	_, _ = rand.Read(key) // crypto/rand.Read never fails
	return base64.RawStdEncoding.EncodeToString(key)
}

// Parse reads the text form that Generate wrote.
func Parse(text string) (*Master, error) {
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("seal: the master key is not base64 (make one with: millrace master-key)")
	}
	return New(key)
}

// Fingerprint names the key without telling anything about it.
func (m *Master) Fingerprint() string { return m.fingerprint }

// KeyHash is the lookup hash of an API key, session or token: HMAC-SHA-256 under the pepper.
func (m *Master) KeyHash(secret string) [sha256.Size]byte { return m.pepper.sum(secret) }

// CacheSalt is the prefix-cache salt of one tenant: equal for equal ids, unguessable without the master key.
func (m *Master) CacheSalt(tenant string) string {
	sum := m.salt.sum(tenant)
	return base64.RawURLEncoding.EncodeToString(sum[:saltBytes])
}

const saltBytes = 18

// Seal encrypts a secret for storage, bound to its context (for example "unit/<id>").
func (m *Master) Seal(plain []byte, context string) []byte {
	return m.aead.Seal(nil, nil, plain, []byte(context))
}

// Open reverses Seal; another context or a changed byte is an error.
func (m *Master) Open(sealed []byte, context string) ([]byte, error) {
	plain, err := m.aead.Open(nil, nil, sealed, []byte(context))
	if err != nil {
		return nil, errors.New("seal: the stored secret does not open with this master key")
	}
	return plain, nil
}
