package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

// JoinToken lets one host join once. It carries the fingerprint of the hub's authority, so that the host trusts nobody
// blindly: a hub with another authority is refused before the secret is sent.
type JoinToken struct {
	Secret [joinSecretBytes]byte
	CA     [sha256.Size]byte // SHA-256 of the authority's certificate
}

const (
	joinSecretBytes = 24
	joinPrefix      = "mrj_"
)

// NewJoinToken makes a token for an authority.
func NewJoinToken(ca []byte) JoinToken {
	var t JoinToken
	_, _ = rand.Read(t.Secret[:]) // crypto/rand.Read never fails
	copy(t.CA[:], ca)
	return t
}

// String is the form a person copies: secret.
func (t JoinToken) String() string {
	return joinPrefix + base64.RawURLEncoding.EncodeToString(append(t.Secret[:], t.CA[:]...))
}

// ParseJoinToken reads what String wrote.
func ParseJoinToken(s string) (JoinToken, error) {
	var t JoinToken
	text, ok := strings.CutPrefix(strings.TrimSpace(s), joinPrefix)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil || len(raw) != len(t.Secret)+len(t.CA) {
		return t, errors.New("this is not a join token: it must look like " + joinPrefix + "… and be copied whole")
	}
	copy(t.Secret[:], raw)
	copy(t.CA[:], raw[len(t.Secret):])
	return t, nil
}

// Hash is what the hub keeps of the secret.
func (t JoinToken) Hash() []byte {
	sum := sha256.Sum256(t.Secret[:])
	return sum[:]
}
