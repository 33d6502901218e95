package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"sync"
	"testing"
)

func TestSealedSecretsAreBoundToKeyAndContext(t *testing.T) {
	a, err := Parse(Generate())
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Parse(Generate())
	box := a.Seal([]byte("sk-upstream"), "unit/1")
	if got, err := a.Open(box, "unit/1"); err != nil || string(got) != "sk-upstream" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := a.Open(box, "unit/2"); err == nil {
		t.Error("opened under another context")
	}
	if _, err := b.Open(box, "unit/1"); err == nil {
		t.Error("opened under another master key")
	}
	if a.Fingerprint() == b.Fingerprint() || a.CacheSalt("x") == a.CacheSalt("y") || a.KeyHash("k") == b.KeyHash("k") {
		t.Error("derived values collide")
	}
	if _, err := Parse("c2hvcnQ"); err == nil {
		t.Error("a short master key passed")
	}
}

// Kept states give what fresh ones would, from many goroutines at once.
func TestSumsDoNotDependOnEarlierOnes(t *testing.T) {
	key := []byte("a key")
	m := newMACs(key)
	var wg sync.WaitGroup
	for _, text := range []string{"", "one", "another, longer than the first", "one"} {
		wg.Go(func() {
			fresh := hmac.New(sha256.New, key)
			fresh.Write([]byte(text))
			for range 100 {
				if got := m.sum(text); !hmac.Equal(got[:], fresh.Sum(nil)) {
					t.Errorf("%q: %x", text, got)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkKeyHash(b *testing.B) {
	m, err := Parse(Generate())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.KeyHash("mr_live_z201FqgoBahfOCopGGwrTkU4kZbqwtbjVTBGRsdirGa00OwXB")
	}
}
