package datafolder

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOneOwnerAtATime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrBusy) {
		t.Fatalf("second owner: %v", err)
	}
	key, err := f.Secret("master.key", func() (string, error) { return "k1", nil })
	if err != nil || key != "k1" {
		t.Fatal(key, err)
	}
	if info, _ := os.Stat(f.Path("master.key")); info.Mode().Perm() != 0o600 {
		t.Errorf("secret mode %v", info.Mode())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if key, _ := again.Secret("master.key", func() (string, error) { return "k2", nil }); key != "k1" {
		t.Errorf("the secret changed to %q", key)
	}
	if err := again.Clear(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(again.Path("master.key")); !errors.Is(err, os.ErrNotExist) {
		t.Error("fresh start kept the old key")
	}
}

func TestAForeignFolderIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil {
		t.Fatal("took over a folder with foreign files")
	}
}
