package engines

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An engine that may write to its folder, as one in a container may, gets nothing read, written or cut elsewhere by a link
// or a pipe in place of its log.
func TestAnEnginesFolderLeadsNowhereElse(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("s"), maxLogBytes+1), secretMode); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink(secret, path) },
		"pipe": func(path string) error { return unix.Mkfifo(path, secretMode) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := put(filepath.Join(dir, logName)); err != nil {
				t.Fatal(err)
			}
			if f, err := openLog(dir); err == nil {
				f.Close()
				t.Error("an engine would write to it")
			}
			if err := rotate(dir); err == nil {
				t.Error("it would be cut")
			}
			if text, err := tail(dir, 100); err == nil || len(text) > 0 {
				t.Errorf("read: %.10q, %v", text, err)
			}
			if err := (&record{Program: "p"}).write(dir); err != nil {
				t.Error(err)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) != 1 { // the record is not where it could be forged
				t.Errorf("%v %v", files, err)
			}
			if all, err := records(filepath.Dir(dir), slog.New(slog.DiscardHandler)); err != nil || all[dir].Program != "p" {
				t.Errorf("%+v %v", all, err)
			}
		})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName), bytes.Repeat([]byte("x"), maxLogBytes+1), secretMode); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, oldLogName)); err != nil {
		t.Fatal(err)
	}
	if err := rotate(dir); err == nil {
		t.Error("the older log was written through a link")
	}
	if info, err := os.Stat(secret); err != nil || info.Size() != maxLogBytes+1 {
		t.Errorf("%v %v", info, err)
	}
}
