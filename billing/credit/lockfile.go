package credit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"millrace/internal/ids"
)

// An epoch's data_lock is "host:path" of a file that its process keeps locked for life. The kernel frees the lock when the
// process ends, however it ends, so that another process on the host that can take it has proof of death.

func lockEpoch(dir string, id ids.ID) (lock *os.File, dataLock string, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, "", fmt.Errorf("credit: host name: %w", err)
	}
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, "", fmt.Errorf("credit: lock folder: %w", err)
	}
	path := filepath.Join(dir, "epoch-"+id.String()+".lock")
	lock, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("credit: lock file: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, "", fmt.Errorf("credit: lock %s: %w", path, err)
	}
	return lock, host + ":" + path, nil
}

// ProvenDead reports whether the process behind a gateway_epochs.data_lock is certainly gone. false says nothing: another
// host's process, or one whose file is missing, may live.
func ProvenDead(dataLock string) bool {
	path, here := lockPath(dataLock)
	if !here {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close() // frees the lock again
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// RemoveLock removes the file behind a data_lock of this host. Call it after the epoch is fenced: before, it is the proof.
func RemoveLock(dataLock string) error {
	path, here := lockPath(dataLock)
	if !here {
		return nil
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("credit: remove a lock file: %w", err)
	}
	return nil
}

// lockPath gives the path of a lock file on this host. Nothing but a lock file is ever touched, whatever a row says.
func lockPath(dataLock string) (path string, here bool) {
	host, path, ok := strings.Cut(dataLock, ":")
	name := filepath.Base(path)
	if own, err := os.Hostname(); !ok || err != nil || host != own || !filepath.IsAbs(path) ||
		!strings.HasPrefix(name, "epoch-") || !strings.HasSuffix(name, ".lock") {
		return "", false
	}
	return path, true
}
