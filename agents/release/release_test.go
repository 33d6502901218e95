package release

import (
	"crypto/ed25519"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAChannelOffersWhatWasPublished(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "built")
	if err := os.WriteFile(program, []byte("v2's program"), 0o600); err != nil {
		t.Fatal(err)
	}
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	f := Open(out)
	if _, _, ok, err := f.Offer("stable", "linux/amd64"); ok || err != nil {
		t.Errorf("an empty folder: %v, %v", ok, err)
	}
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		if err := Publish(out, "stable", "v2", platform, program, key); err != nil {
			t.Fatal(err)
		}
	}
	u, path, ok, err := f.Offer("stable", "linux/arm64")
	sum := sha256.Sum256([]byte("v2's program"))
	if err != nil || !ok || u.Version != "v2" || string(u.SHA256) != string(sum[:]) || u.Bytes != 12 {
		t.Fatalf("%+v, %v, %v", u, ok, err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "v2's program" {
		t.Errorf("%q, %v", text, err)
	}
	if !u.SignedBy(public, "linux/arm64") || u.SignedBy(public, "linux/amd64") {
		t.Error("a signature is of one platform")
	}
	u.Version = "v1"
	if u.SignedBy(public, "linux/arm64") {
		t.Error("a signature is of one version")
	}
	for _, bad := range [][2]string{{"stable", "linux/riscv64"}, {"beta", "linux/amd64"}, {"../out/stable", "linux/amd64"}} {
		if _, _, ok, err := f.Offer(bad[0], bad[1]); ok || err != nil {
			t.Errorf("%v: %v, %v", bad, ok, err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "evil.json"), []byte(`{"version":"v2","programs":{"linux/amd64":{"file":"../built"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, ok, _ := f.Offer("evil", "linux/amd64"); ok {
		t.Error("a name leads out of the folder")
	}
}

func TestPublishChecksItsWords(t *testing.T) {
	for _, bad := range [][3]string{{"Stable", "v1", "linux/amd64"}, {"stable", "v 1", "linux/amd64"}, {"stable", "../v1", "linux/amd64"}, {"stable", "v1", "linux"}} {
		if err := Publish(t.TempDir(), bad[0], bad[1], bad[2], os.Args[0], nil); err == nil || strings.Contains(err.Error(), "no such") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
