package keys

import (
	"context"
	"testing"

	"millrace/internal/seal"
)

// A known key: what every request pays. Most of it is the HMAC.
func BenchmarkAuthenticateHit(b *testing.B) {
	master, err := seal.Parse(seal.Generate())
	if err != nil {
		b.Fatal(err)
	}
	src := newFakeSource()
	a := NewAuthenticator(src, master, systemClock, never)
	key, _ := src.add(somebody())
	h := master.KeyHash(key)
	a.entries[h] = &entry{Record: Record{Hash: h, Principal: somebody()}, loaded: systemClock.Now().Add(HardTTL * 1000)}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.Authenticate(context.Background(), key); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
