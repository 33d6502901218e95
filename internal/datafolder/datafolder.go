// Package datafolder is the folder that `millrace up` keeps everything in: the database, the usage log, the agents'
// state, the master key and the CA.
//
// One process at a time owns it, by a lock that the kernel drops when the process dies, however it dies. Holding the lock
// therefore proves that every earlier owner is dead: what it left running is an orphan and may be dealt with.
package datafolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// marker says that a folder is ours: --fresh removes nothing without it.
const marker = "millrace-data"

// Modes: the folder can be crossed (the database runs as another user when we are root), its secrets cannot be read.
const (
	folderMode = 0o711
	secretMode = 0o600
)

// Folder is an open data folder.
type Folder struct {
	path string
	lock *os.File
}

// ErrBusy means that another process owns the folder.
var ErrBusy = errors.New("another millrace process is using this data folder")

// Default is the folder used when none is named: /var/lib/millrace for root, else the user's state folder.
func Default() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/millrace", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "millrace"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no data folder: set --data (%w)", err)
	}
	return filepath.Join(home, ".local", "state", "millrace"), nil
}

// Open takes the folder, creating it when it does not exist. It fails with ErrBusy while another process owns it.
func Open(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := prepare(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, secretMode)
	if err != nil {
		return nil, fmt.Errorf("data folder %s: %w", path, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", path, ErrBusy)
		}
		return nil, fmt.Errorf("data folder %s cannot be locked: %w", path, err)
	}
	return &Folder{path: path, lock: lock}, nil
}

// prepare makes the folder ours: an existing one must be empty or carry our marker.
func prepare(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if _, err := os.Stat(filepath.Join(path, marker)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lock" {
			return fmt.Errorf("data folder %s holds files that are not Millrace's (%s): choose an empty or new folder with --data", path, e.Name())
		}
	}
	if err := os.Chmod(path, folderMode); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return os.WriteFile(filepath.Join(path, marker), []byte("This folder belongs to Millrace. See `millrace up --help`.\n"), 0o644)
}

// Path joins names to the folder's path.
func (f *Folder) Path(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// Dir makes a sub-folder and gives its path.
func (f *Folder) Dir(names ...string) (string, error) {
	p := f.Path(names...)
	return p, os.MkdirAll(p, 0o700)
}

// Secret reads a small secret file, making it with create when it is missing.
func (f *Folder) Secret(name string, create func() (string, error)) (string, error) {
	b, err := os.ReadFile(f.Path(name))
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	value, err := create()
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(value), WriteFile(f.Path(name), []byte(value+"\n"), secretMode)
}

// Clear removes everything but the lock and the marker: a fresh start under the same lock.
func (f *Folder) Clear() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lock" || e.Name() == marker {
			continue
		}
		if err := os.RemoveAll(f.Path(e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Close gives the folder up.
func (f *Folder) Close() error { return f.lock.Close() }

// WriteFile writes a whole file or nothing: a reader never sees half of it.
func WriteFile(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := tmp.Chmod(mode); err != nil {
		tmp.Close()
		return err
	}
	if _, err := tmp.Write(data); err != nil {
		tmp.Close()
		return err
	}
	if err := errors.Join(tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
