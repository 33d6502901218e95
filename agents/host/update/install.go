package update

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"millrace/agents/wire"
)

const programMode = 0o700

// Wants reports whether the update is one to install. The very program that runs is none, whatever version it says.
func (p *Program) Wants(u *wire.Update, version string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return u != nil && u.Version != version && !p.state.Trial && !bytes.Equal(u.SHA256, p.state.Failed) && !bytes.Equal(u.SHA256, p.sum)
}

// Install fetches the update and makes it current. Switch then runs it.
func (p *Program) Install(u *wire.Update, fetch func(io.Writer) error) error {
	switch {
	case len(u.SHA256) != sha256.Size || u.Bytes <= 0 || u.Bytes > wire.MaxProgramBytes:
		return errors.New("update: the hub's offer has no digest, or no possible size")
	case p.key != nil && !u.SignedBy(p.key, p.platform):
		return fmt.Errorf("update: version %q is not signed by the release key of this host", u.Version)
	}
	path := p.path(programsDir, "millrace-agent-"+hex.EncodeToString(u.SHA256[:8]))
	if err := p.fetch(u, path, fetch); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	s.Previous, s.Current, s.Version, s.Trial, s.Fresh = s.Current, path, u.Version, true, true
	return p.save()
}

// fetch writes the program and checks it before it has its name.
func (p *Program) fetch(u *wire.Update, path string, fetch func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), programMode); err != nil {
		return err
	}
	out, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, programMode)
	if err != nil {
		return err
	}
	defer os.Remove(path + ".new")
	sum := sha256.New()
	count := &limited{w: io.MultiWriter(out, sum), left: u.Bytes}
	if err := errors.Join(fetch(count), out.Sync(), out.Close()); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), u.SHA256) {
		return fmt.Errorf("what came for version %q is not what the hub named", u.Version)
	}
	return os.Rename(path+".new", path)
}

// limited takes exactly so many bytes and no more.
type limited struct {
	w    io.Writer
	left int64
}

func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		return 0, errors.New("more came than the hub named")
	}
	l.left -= int64(len(p))
	return l.w.Write(p)
}
