// Package secret makes and recognises the bearer secrets that Millrace hands out: API keys, control tokens, sign-in
// links and sessions. It owns their text form, not their storage: only hashes of them (seal.Master.KeyHash) are kept.
//
// A secret is its kind's prefix, 43 random base-62 digits (256 bits) and six digits of CRC-32 over all before them. The
// checksum is no security: it lets a mistyped or invented secret be refused without asking the database, and lets
// scanners of leaked text recognise a real one.
package secret

import (
	"crypto/rand"
	"hash/crc32"
	"strings"
)

// Prefixes of the kinds of secrets.
const (
	APIKey       = "mr_live_"
	ControlToken = "mr_ctl_"
	LoginLink    = "mr_link_"
	Session      = "mr_sess_"
)

const (
	digits      = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomChars = 43
	checkChars  = 6 // 62^6 > 2^32
	shownRandom = 4 // random digits of a secret that lists may show beside its prefix
	lastShown   = 4 // last digits that lists may show; they belong to the checksum
	unbiased    = 62 * 4
)

// New makes a fresh secret of the kind.
func New(prefix string) string {
	out := make([]byte, 0, len(prefix)+randomChars+checkChars)
	out = append(out, prefix...)
	var pool [randomChars * 2]byte
	for len(out) < len(prefix)+randomChars {
		_, _ = rand.Read(pool[:]) // crypto/rand.Read never fails
		for _, b := range pool {
			// A byte beyond the last full run of 62 would make some digits likelier.
			if b < unbiased && len(out) < len(prefix)+randomChars {
				out = append(out, digits[b%62])
			}
		}
	}
	return string(appendChecksum(out))
}

// Plausible reports whether s has the kind's prefix, length, alphabet and checksum. It says nothing about whether the
// secret exists.
func Plausible(prefix, s string) bool {
	if len(s) != len(prefix)+randomChars+checkChars || !strings.HasPrefix(s, prefix) {
		return false
	}
	for i := len(prefix); i < len(s); i++ {
		if !isDigit(s[i]) {
			return false
		}
	}
	body := len(s) - checkChars
	var sum [checkChars]byte
	return s[body:] == string(checksum(sum[:0], s[:body]))
}

// Shown is what lists may show of a secret: its start and its last digits.
func Shown(prefix, s string) (start, last4 string) {
	return s[:len(prefix)+shownRandom], s[len(s)-lastShown:]
}

func isDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

func appendChecksum(b []byte) []byte { return checksum(b, string(b)) }

// checksum works on the string itself: crc32.ChecksumIEEE would make this, on every request's way, allocate a copy.
func checksum(dst []byte, body string) []byte {
	sum := ^uint32(0)
	for i := range len(body) {
		sum = crc32.IEEETable[byte(sum)^body[i]] ^ sum>>8
	}
	sum = ^sum
	var out [checkChars]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = digits[sum%62]
		sum /= 62
	}
	return append(dst, out[:]...)
}
