package up

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/clock"
)

// A download is a bar on a terminal; in a file it is a line per tenth, never a thousand of them.
func TestProgressOfADownload(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out bytes.Buffer
		now := clock.NewManual(time.Now())
		p := &progress{w: &out, terminal: terminal, clock: now, started: now.Now()}
		for _, done := range []int64{0, 1, 2, 2 << 20, 2<<20 + 1, 4 << 20, 5 << 20} {
			p.report(done, 4<<20, "model")
		}
		now.Advance(1500 * time.Millisecond)
		p.report(0, 0, "unpacking")
		got := out.String()
		if terminal {
			if n := strings.Count(got, "\n"); n != 2 || !strings.Contains(got, "[##############################] 100 %  4 of 4 MB\n") {
				t.Errorf("%q", got)
			}
		} else if !strings.HasPrefix(got, "model  0 %\nmodel  50 %\nmodel  100 %\n") {
			t.Errorf("%q", got)
		}
		if !strings.HasSuffix(got, "  1.5s  unpacking\n") {
			t.Errorf("%q", got)
		}
	}
}

// The key is shown when it is new, and never again.
func TestWelcomeShowsTheKeyOnce(t *testing.T) {
	r := Ready{URL: "http://127.0.0.1:8080", APIKey: "mr_live_secret", Models: []string{"demo/x"}, AdminLoginURL: "http://a", CustomerLoginURL: "http://c"}
	for _, fresh := range []bool{true, false} {
		var out strings.Builder
		r.print(&out, fresh, true)
		if strings.Contains(out.String(), r.APIKey) != fresh || !strings.Contains(out.String(), `"model": "demo/x"`) || !strings.Contains(out.String(), "simulated") {
			t.Errorf("fresh %v:\n%s", fresh, out.String())
		}
	}
}

func TestReadyFileIsForItsOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready.json")
	if err := os.WriteFile(path, []byte("old, for everybody"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (Ready{URL: "http://x"}).write(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := (Ready{}).write(filepath.Join(path, "below")); err == nil {
		t.Error("a file below a file")
	}
}

// A log that has grown large is put aside once, so that a data folder does not fill a disk.
func TestLogsStayBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.log")
	if err := os.WriteFile(path, make([]byte, maxLogBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		log, err := openLog(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.WriteString("line\n"); err != nil {
			t.Fatal(err)
		}
		log.Close()
	}
	text, err := os.ReadFile(path)
	if old, oldErr := os.Stat(path + ".old"); err != nil || oldErr != nil || string(text) != "line\nline\n" || old.Size() != maxLogBytes+1 {
		t.Errorf("%d bytes, %v, %v", len(text), err, oldErr)
	}
}

// A folder that no `up` has made is not made by looking at it.
func TestStoresOfNoFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nothing")
	if s, err := OpenStores(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "is no data folder") {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("it was made")
	}
}
