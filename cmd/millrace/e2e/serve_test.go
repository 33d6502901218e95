package e2e

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/cmd/millrace/trial"
	"millrace/db/dbtest"
)

// command runs the program to its end and gives what it says.
func command(t *testing.T, env []string, args ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, millrace, args...)
	cmd.Env = append(append(os.Environ(), "DATABASE_URL=", "NATS_URL=", "MILLRACE_DATA="), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// installation is what `serve` needs from outside.
type installation struct {
	dir, database string
	args, env     []string
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	in := &installation{dir: t.TempDir(), database: dbtest.Empty(t)}
	code, key := command(t, nil, "master-key")
	if code != 0 {
		t.Fatal(key)
	}
	if err := os.WriteFile(filepath.Join(in.dir, "master.key"), []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, said := command(t, nil, "ca", "--out", in.dir); code != 0 {
		t.Fatal(said)
	}
	in.args = []string{"serve", "--data", in.dir, "--listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--master-key-file", filepath.Join(in.dir, "master.key"), "--ca-cert", filepath.Join(in.dir, "ca.pem"), "--ca-key", filepath.Join(in.dir, "ca.key")}
	in.env = []string{"DATABASE_URL=" + in.database}
	return in
}

// serve starts a process of the installation and waits until it serves.
func (in *installation) serve(t *testing.T, args ...string) (p *trial.Process, url string) {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	p, err := trial.StartProcess(millrace, append(append(in.args[:len(in.args):len(in.args)], "--ready-file", ready), args...), in.env, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	within(t, startLimit, "it serves", func() bool {
		select {
		case <-p.Done():
			t.Fatalf("it ended:\n%s", p.Said())
		default:
		}
		b, err := os.ReadFile(ready)
		url = strings.TrimSpace(string(b))
		return err == nil && url != ""
	})
	return p, url
}

func TestServe(t *testing.T) {
	in := newInstallation(t)
	p, at := in.serve(t)
	if status, body := get(t, at+"/", ""); status != http.StatusOK || !strings.Contains(body, "<html") {
		t.Errorf("console: %d %.200s", status, body)
	}
	if status, body := get(t, at+"/v1/models", "mr_live_nobody"); status != http.StatusUnauthorized {
		t.Errorf("inference: %d %.200s", status, body)
	}
	t.Run("the first operator", func(t *testing.T) {
		for range 2 { // the second link is for the same operator
			code, link := command(t, in.env, "operator", "boss@demo.example", "--public-url", at, "--master-key-file", filepath.Join(in.dir, "master.key"))
			if code != 0 || !strings.HasPrefix(link, at+"/login/link?t=") {
				t.Fatalf("%d %s", code, link)
			}
			signsIn(t, at, strings.TrimSpace(link))
		}
		if code, said := command(t, in.env, "operator", "boss@demo.example", "--public-url", at); code != 1 || !strings.Contains(said, "no master key") {
			t.Errorf("%d %s", code, said)
		}
	})
	t.Run("one that has its own log is alone", func(t *testing.T) {
		for _, more := range [][]string{nil, {"--nats-url", "nats://127.0.0.1:1"}} {
			code, said := command(t, in.env, append(in.args[:len(in.args):len(in.args)], more...)...)
			if code != 1 || !strings.Contains(said, "give every one the same NATS_URL") {
				t.Errorf("%v: %d %s", more, code, said)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
	defer cancel()
	if code, err := p.Stop(ctx); code != 0 || err != nil {
		t.Errorf("%d, %v\n%s", code, err, p.Said())
	}
	t.Run("another key or CA", func(t *testing.T) {
		other := newInstallation(t)
		other.env = in.env
		if code, said := command(t, other.env, other.args...); code != 1 || !strings.Contains(said, "belongs to another master key") {
			t.Errorf("%d %s", code, said)
		}
		mixed := append(other.args[:len(other.args):len(other.args)], "--master-key-file", filepath.Join(in.dir, "master.key"))
		if code, said := command(t, other.env, mixed...); code != 1 || !strings.Contains(said, "belongs to another CA") {
			t.Errorf("%d %s", code, said)
		}
	})
	in.serve(t) // nothing of that has hurt it
}

// signsIn uses a sign-in link as a person does: the page asks for a click.
func signsIn(t *testing.T, console, link string) {
	t.Helper()
	if status, body := get(t, link, ""); status != http.StatusOK || !strings.Contains(body, "Finish signing in") {
		t.Fatalf("%d %.500s", status, body)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(link, "?t=")
	browser := &http.Client{Jar: jar}
	resp, err := browser.PostForm(console+"/login/link", url.Values{"t": {token}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if page := resp.Request.URL.Path; resp.StatusCode != http.StatusOK || !strings.HasPrefix(page, "/admin") {
		t.Errorf("signed in to %s: %s", page, resp.Status)
	}
	if again, err := browser.PostForm(console+"/login/link", url.Values{"t": {token}}); err != nil || again.StatusCode < 400 {
		t.Errorf("the link works twice: %v", err)
	} else {
		again.Body.Close()
	}
}

func TestServeSaysWhatIsMissing(t *testing.T) {
	in := newInstallation(t)
	drop := func(flag string) []string {
		for i, a := range in.args {
			if a == flag {
				return append(in.args[:i:i], in.args[i+2:]...)
			}
		}
		t.Fatal(flag)
		return nil
	}
	add := func(more ...string) []string { return append(in.args[:len(in.args):len(in.args)], more...) }
	for says, c := range map[string]struct{ env, args []string }{
		"set DATABASE_URL":                  {nil, in.args},
		"not a valid PostgreSQL URL":        {[]string{"DATABASE_URL=postgres://x:secret@[broken"}, in.args},
		"set MILLRACE_MASTER_KEY_FILE":      {in.env, drop("--master-key-file")},
		"set MILLRACE_CA_CERT":              {in.env, drop("--ca-key")},
		"unknown role":                      {in.env, add("--roles", "gateway,barista")},
		"nats: no servers available":        {in.env, add("--nats-url", "nats://127.0.0.1:1")},
		"cannot listen on 203.0.113.1:8080": {in.env, add("--listen", "203.0.113.1:8080")},
	} {
		code, said := command(t, c.env, c.args...)
		if code != 1 || !strings.Contains(said, says) || strings.Contains(said, "goroutine") || strings.Contains(said, "secret") {
			t.Errorf("want %q: %d %s", says, code, said)
		}
	}
}

func TestMigrateAndCA(t *testing.T) {
	database := "DATABASE_URL=" + dbtest.Empty(t)
	for range 2 {
		if code, said := command(t, []string{database}, "migrate"); code != 0 {
			t.Errorf("%d %s", code, said)
		}
	}
	for _, args := range [][]string{{"reconcile"}, {"reconcile", "--rebuild"}} {
		if code, said := command(t, []string{database}, args...); code != 0 || !strings.Contains(said, "Every difference is explained") {
			t.Errorf("%d %s", code, said)
		}
	}
	dir := t.TempDir()
	if code, said := command(t, nil, "ca", "--out", dir); code != 0 {
		t.Fatal(said)
	}
	before, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	if code, said := command(t, nil, "ca", "--out", dir); code != 1 || !strings.Contains(said, "would lock out every host") {
		t.Errorf("%d %s", code, said)
	}
	if after, err := os.ReadFile(filepath.Join(dir, "ca.key")); err != nil || string(after) != string(before) {
		t.Error("the CA's key was changed")
	}
	if info, err := os.Stat(filepath.Join(dir, "ca.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
