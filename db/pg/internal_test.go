package pg

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The server of a test may be another than the one of the machine.
func fakeServer(t *testing.T, version string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Debian)'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// systemServers replaces the machine's installed servers.
func systemServers(t *testing.T, versions ...string) {
	t.Helper()
	root := t.TempDir()
	for _, v := range versions {
		if err := os.Symlink(fakeServer(t, v), filepath.Join(root, v)); err != nil {
			t.Fatal(err)
		}
	}
	old := debianBins
	debianBins = filepath.Join(root, "*")
	t.Cleanup(func() { debianBins = old })
	t.Setenv("PATH", root) // no pg_config
}

func TestServerIsChosenByDataFolder(t *testing.T) {
	noDownload := filepath.Join(t.TempDir(), "file", "x") // below a file: the cache cannot be made
	if err := os.WriteFile(filepath.Dir(noDownload), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		pgBin     string
		installed []string
		major     int
		want      string // version, or text of the error
	}{
		{"newest installed for a new folder", "", []string{"15.4", "17.2", "16.1", "14.9"}, 0, "17.2"},
		{"the folder's version", "", []string{"15.4", "17.2"}, 15, "15.4"},
		{"PG_BIN first", "16.8", []string{"17.2"}, 0, "16.8"},
		{"PG_BIN of another version is passed over", "16.8", []string{"17.2", "15.1"}, 15, "15.1"},
		{"too old", "", []string{"14.9"}, 0, "older than 15"},
		{"not to be had", "", []string{"15.4"}, 99, "no PostgreSQL 99, the version of the data folder"},
		{"development version", "", []string{"19beta1"}, 0, "19beta1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			systemServers(t, c.installed...)
			t.Setenv("PG_BIN", "")
			if c.pgBin != "" {
				t.Setenv("PG_BIN", fakeServer(t, c.pgBin))
			}
			b, err := findBinaries(t.Context(), c.major, noDownload, account{}, func(int64, int64, string) {})
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Fatalf("error %v, want %q in it", err, c.want)
				}
				return
			}
			if b.version != c.want {
				t.Errorf("chose %s, want %s", b.version, c.want)
			}
		})
	}
}

func TestUnfitDataFolders(t *testing.T) {
	for _, c := range []struct{ name, file, content, want string }{
		{"too old", "PG_VERSION", "14\n", "made by PostgreSQL 14"},
		{"unreadable", "PG_VERSION", "x", "unreadable PG_VERSION"},
		{"somebody's files", "notes.txt", "x", "not a PostgreSQL cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "data", c.file), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Start(t.Context(), Config{Dir: dir, Fast: true})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// The download, its progress and the server it brings: the newest major version, run for real.
func TestDownloadedServer(t *testing.T) {
	if os.Getenv("MILLRACE_SLOW") == "" {
		t.Skip("needs a download: make test-slow")
	}
	systemServers(t)
	t.Setenv("PG_BIN", "")
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	var done, total int64
	c := Config{Dir: filepath.Join(dir, "pg"), Cache: filepath.Join(dir, "cache"), Fast: true,
		Progress: func(d, n int64, what string) {
			if n > 1<<20 {
				done, total = d, n
			}
		}}
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if total == 0 || done != total {
		t.Errorf("progress ended at %d of %d bytes", done, total)
	}
	if major, err := s.dir.major(); err != nil || major != newest {
		t.Errorf("cluster of version %d (%v), want %d", major, err, newest)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "cache", "postgres", ".fetch-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Orphan runs the folder's server as nobody's child would be: without the signal at our death and without Server.
func Orphan(root string) (*exec.Cmd, error) {
	f, err := openFolder(root)
	if err != nil {
		return nil, err
	}
	bins, err := findBinaries(context.Background(), 0, "", f.user, func(int64, int64, string) {})
	if err != nil {
		return nil, err
	}
	cmd := f.command(bins.path("postgres"), "-D", f.data(), "-c", "listen_addresses=", "-c", "unix_socket_directories="+f.data())
	return cmd, cmd.Start()
}
