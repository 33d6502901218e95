// Package release is the channels by which agents are updated: a folder with one manifest per channel beside the programs
// that the manifests name. `millrace agent-release` writes it, the hub reads it, agents fetch over their links.
//
// It owns the folder's form; it does not own who follows which channel (the agent's own setting) or what an agent does
// with a program (agents/host/update).
//
// Invariants: a manifest appears whole or not at all, and after its program; a name in it never leads out of the folder.
package release

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"millrace/agents/wire"
	"millrace/internal/datafolder"
)

const (
	fileMode    = 0o644
	programMode = 0o755
	maxManifest = 1 << 20
)

var (
	channelName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
	versionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)
	fileName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,127}$`)
	platforms   = regexp.MustCompile(`^[a-z0-9]{1,16}/[a-z0-9]{1,16}$`)
)

// Channel is a manifest.
type Channel struct {
	Version  string             `json:"version"`
	Programs map[string]Program `json:"programs"` // by platform, such as linux/amd64
}

// Program is one file.
type Program struct {
	File      string `json:"file"`
	SHA256    []byte `json:"sha256"`
	Bytes     int64  `json:"bytes"`
	Signature []byte `json:"signature,omitempty"`
}

// Folder reads channels. It is safe for concurrent use.
type Folder struct {
	dir string

	mu     sync.Mutex
	cached map[string]cached
}

type cached struct {
	at      time.Time // the manifest's
	channel Channel
}

// Open makes a reader of a folder, which may be empty yet.
func Open(dir string) *Folder { return &Folder{dir: dir, cached: map[string]cached{}} }

// Offer gives what a channel has for a platform; ok is false when it has nothing.
func (f *Folder) Offer(channel, platform string) (u wire.Update, path string, ok bool, err error) {
	if !channelName.MatchString(channel) {
		return u, "", false, nil
	}
	c, err := f.read(channel)
	if errors.Is(err, os.ErrNotExist) {
		return u, "", false, nil
	}
	if err != nil {
		return u, "", false, fmt.Errorf("the manifest of channel %s: %w", channel, err)
	}
	p, ok := c.Programs[platform]
	if !ok || !fileName.MatchString(p.File) || !versionName.MatchString(c.Version) {
		return u, "", false, nil
	}
	return wire.Update{Version: c.Version, SHA256: p.SHA256, Bytes: p.Bytes, Signature: p.Signature}, filepath.Join(f.dir, p.File), true, nil
}

func (f *Folder) read(channel string) (Channel, error) {
	path := manifest(f.dir, channel)
	info, err := os.Stat(path)
	if err != nil {
		return Channel{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.cached[channel]; ok && old.at.Equal(info.ModTime()) {
		return old.channel, nil
	}
	c, err := load(path)
	if err != nil {
		return Channel{}, err
	}
	f.cached[channel] = cached{info.ModTime(), c}
	return c, nil
}

func manifest(dir, channel string) string { return filepath.Join(dir, channel+".json") }

func load(path string) (c Channel, err error) {
	in, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// Publish puts a program into a channel for a platform. Another version than the channel's replaces the channel: publish
// every platform of a version, one after the other. key may be nil: the program is then trusted by its digest alone.
func Publish(dir, channel, version, platform, program string, key ed25519.PrivateKey) error {
	switch {
	case !channelName.MatchString(channel):
		return fmt.Errorf("a channel's name has small letters, digits and -: not %q", channel)
	case !versionName.MatchString(version):
		return fmt.Errorf("a version has letters, digits and .+_-: not %q", version)
	case !platforms.MatchString(platform):
		return fmt.Errorf("a platform is such as linux/amd64: not %q", platform)
	}
	if err := os.MkdirAll(dir, programMode); err != nil {
		return err
	}
	p := Program{File: "millrace-agent-" + version + "-" + filepath.Base(filepath.Dir("/"+platform)) + "-" + filepath.Base(platform)}
	if err := store(program, filepath.Join(dir, p.File), &p); err != nil {
		return err
	}
	if key != nil {
		u := wire.Update{Version: version, SHA256: p.SHA256}
		p.Signature = ed25519.Sign(key, u.Signed(platform))
	}
	c, err := load(manifest(dir, channel))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if c.Version != version {
		c = Channel{Version: version}
	}
	if c.Programs == nil {
		c.Programs = map[string]Program{}
	}
	c.Programs[platform] = p
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return datafolder.WriteFile(manifest(dir, channel), append(text, '\n'), fileMode)
}

// store copies a program and learns its digest.
func store(from, to string, p *Program) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, programMode)
	if err != nil {
		return err
	}
	sum := sha256.New()
	p.Bytes, err = io.Copy(io.MultiWriter(out, sum), io.LimitReader(in, wire.MaxProgramBytes+1))
	if err == nil && p.Bytes > wire.MaxProgramBytes {
		err = fmt.Errorf("the program is above %d bytes", int64(wire.MaxProgramBytes))
	}
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	p.SHA256 = sum.Sum(nil)
	return os.Rename(to+".new", to)
}
