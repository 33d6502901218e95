package wire

import (
	"crypto/ed25519"
	"strings"
)

// Update is the agent's program that a channel has for a platform. It is fetched over the link; what arrives must have
// this digest, and this signature when the agent was given a key.
type Update struct {
	Version   string `json:"version"`
	SHA256    []byte `json:"sha256"`
	Bytes     int64  `json:"bytes"`
	Signature []byte `json:"signature,omitempty"` // ed25519, of Signed
}

// MaxProgramBytes bounds an agent's program.
const MaxProgramBytes = 512 << 20

// Signed is what a release key signs: a signature of one platform or version is of no use for another.
func (u *Update) Signed(platform string) []byte {
	return append([]byte(strings.Join([]string{"millrace-agent", platform, u.Version, ""}, "\n")), u.SHA256...)
}

// SignedBy reports whether the key's owner signed the update for the platform.
func (u *Update) SignedBy(key ed25519.PublicKey, platform string) bool {
	return len(key) == ed25519.PublicKeySize && len(u.Signature) == ed25519.SignatureSize && ed25519.Verify(key, u.Signed(platform), u.Signature)
}
