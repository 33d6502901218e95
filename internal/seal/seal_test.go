package seal

import "testing"

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
