package update

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/agents/wire"
)

const platform = "linux/amd64"

func enter(t *testing.T, dir string, key ed25519.PublicKey) *Program {
	t.Helper()
	p, err := Enter(Config{Dir: dir, Key: key, Platform: platform, Trial: time.Hour, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func offer(program string) *wire.Update {
	sum := sha256.Sum256([]byte(program))
	return &wire.Update{Version: "v2", SHA256: sum[:], Bytes: int64(len(program))}
}

func sends(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

func TestOnlyWhatTheHubNamedIsInstalled(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signed := offer("program")
	signed.Signature = ed25519.Sign(key, signed.Signed(platform))
	elsewhere := offer("program")
	elsewhere.Signature = ed25519.Sign(key, elsewhere.Signed("linux/arm64"))
	huge := offer("program")
	huge.Bytes = wire.MaxProgramBytes + 1
	broken := errors.New("the link broke")
	for name, c := range map[string]struct {
		u     *wire.Update
		key   ed25519.PublicKey
		fetch func(io.Writer) error
		want  string // in the error; "" = installed
	}{
		"signed":             {signed, public, sends("program"), ""},
		"by digest":          {offer("program"), nil, sends("program"), ""},
		"not signed":         {offer("program"), public, sends("program"), "not signed"},
		"another platform":   {elsewhere, public, sends("program"), "not signed"},
		"other bytes":        {signed, public, sends("progrom"), "not what the hub named"},
		"more bytes":         {signed, public, sends("program and more"), "more came"},
		"too few":            {signed, public, sends("prog"), "not what the hub named"},
		"too large":          {huge, nil, sends("program"), "no possible size"},
		"broken off":         {signed, public, func(io.Writer) error { return broken }, "the link broke"},
		"nothing to compare": {&wire.Update{Version: "v2", Bytes: 7}, nil, sends("program"), "no digest"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := enter(t, dir, c.key)
			err := p.Install(c.u, c.fetch)
			if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			left, _ := filepath.Glob(filepath.Join(dir, programsDir, "*"))
			if got := len(left); got != 0 && c.want != "" || got != 1 && c.want == "" {
				t.Errorf("left: %v", left)
			}
			if installed := p.target() != p.self; installed != (c.want == "") {
				t.Errorf("current: %s", p.target())
			}
		})
	}
}

// An agent that is restarted while it drains for an update has not tried it: the next start does, once. This program is none,
// so that the try fails and the test goes on.
func TestAnUpdateThatWasNotTriedYetIsTriedNext(t *testing.T) {
	dir := t.TempDir()
	if err := enter(t, dir, nil).Install(offer("program"), sends("program")); err != nil {
		t.Fatal(err)
	}
	if p := enter(t, dir, nil); p.target() != p.self || !strings.Contains(p.Trouble(), "it cannot be executed") {
		t.Errorf("target %s, trouble %q", p.target(), p.Trouble())
	}
}

// A program that died on trial is found out at the next start of the installed one, and not tried again; a program that an
// operator installs is the last word.
func TestATrialThatFailedIsRemembered(t *testing.T) {
	dir := t.TempDir()
	u := offer("program")
	p := enter(t, dir, nil)
	if p.Wants(nil, "v1") || p.Wants(u, "v2") || !p.Wants(u, "v1") {
		t.Error("what is wanted")
	}
	if p.Wants(&wire.Update{Version: "1.8.0", SHA256: p.sum}, "dev") {
		t.Error("the running program is wanted again for ever: it was built without the version that it was published under")
	}
	if err := p.Install(u, sends("program")); err != nil {
		t.Fatal(err)
	}
	if p.Wants(u, "v1") {
		t.Error("wanted again while it is on trial")
	}
	p.state.Fresh = false // as Switch does, whose exec would end this test
	if err := p.save(); err != nil {
		t.Fatal(err)
	}
	p = enter(t, dir, nil)
	if p.target() != p.self || !strings.Contains(p.Trouble(), "v2 was taken back: it ended before") || p.Wants(u, "v1") || !p.Wants(offer("mended"), "v1") {
		t.Errorf("target %s, trouble %q", p.target(), p.Trouble())
	}
	p.state.InstalledAt = p.state.InstalledAt.Add(-time.Hour) // as if another program had been installed since
	p.state.Current = filepath.Join(dir, programsDir, "x")
	if err := p.save(); err != nil {
		t.Fatal(err)
	}
	if p = enter(t, dir, nil); p.target() != p.self || p.Trouble() != "" {
		t.Errorf("target %s, trouble %q", p.target(), p.Trouble())
	}
	if err := os.WriteFile(filepath.Join(dir, stateName), []byte("{"), stateMode); err != nil {
		t.Fatal(err)
	}
	if p = enter(t, dir, nil); p.target() != p.self {
		t.Errorf("after damage: %s", p.target())
	}
}
