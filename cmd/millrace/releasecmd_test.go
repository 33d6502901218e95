package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/agents/release"
)

func TestAReleaseIsSignedByTheKeyThatWasMade(t *testing.T) {
	dir := t.TempDir()
	key, folder := filepath.Join(dir, "release.key"), filepath.Join(dir, "releases")
	if err := newReleaseKey(key); err != nil {
		t.Fatal(err)
	}
	if err := newReleaseKey(key); err == nil {
		t.Error("a key was overwritten")
	}
	c := agentReleaseCmd{Folder: folder, Channel: "stable", Release: "1.2.3", Platform: "linux/arm64", Program: os.Args[0], KeyFile: key}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	u, _, ok, err := release.Open(folder).Offer("stable", "linux/arm64")
	if err != nil || !ok {
		t.Fatalf("%v, %v", ok, err)
	}
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !u.SignedBy(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey), "linux/arm64") {
		t.Error("not signed")
	}
	c.KeyFile = os.Args[0]
	if err := c.Run(); err == nil {
		t.Error("a file that is no key was taken")
	}
	if err := (&agentReleaseCmd{Folder: folder}).Run(); err == nil {
		t.Error("nothing to publish")
	}
}
