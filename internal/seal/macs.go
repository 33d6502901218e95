package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

// macs computes HMAC-SHA-256 under one key. Preparing a key costs as much as a short message, and every request needs
// two sums: prepared states are kept.
type macs struct{ pool *sync.Pool }

type mac struct {
	hash hash.Hash
	text []byte
	out  [sha256.Size]byte
}

func newMACs(key []byte) macs {
	return macs{&sync.Pool{New: func() any { return &mac{hash: hmac.New(sha256.New, key)} }}}
}

func (m macs) sum(text string) [sha256.Size]byte {
	s := m.pool.Get().(*mac)
	defer m.pool.Put(s)
	s.text = append(s.text[:0], text...)
	s.hash.Reset()
	_, _ = s.hash.Write(s.text) // a hash never fails
	clear(s.text)               // it may be a secret
	s.hash.Sum(s.out[:0])
	return s.out
}
