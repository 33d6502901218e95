package engines

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"millrace/internal/ids"
)

// An engine writes to its log itself, so the file is never moved under it: when it is too large, it is copied to the
// older one and cut. What the engine writes in between is lost; it is a log. The folder may be the engine's own, also of one
// in a container: what it puts there in place of a log leads the agent nowhere else.
const (
	logName     = "engine.log"
	oldLogName  = "engine.log.1"
	maxLogBytes = 16 << 20
	lastLines   = 600 // bytes of the log quoted in a unit's message
)

func openLog(dir string) (*os.File, error) {
	return openHere(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
}

// openHere opens a file of a unit's folder, and nothing that a link names or that would have to be waited for.
func openHere(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, how|unix.O_NOFOLLOW|unix.O_NONBLOCK, secretMode)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, fmt.Errorf("%s is no plain file: remove it", path)
	}
	return f, nil
}

// rotate bounds the log's size.
func rotate(dir string) error {
	in, err := openHere(filepath.Join(dir, logName), os.O_RDWR)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil || info.Size() < maxLogBytes {
		return err
	}
	if excess := info.Size() - maxLogBytes; excess > 0 { // keep the newest part
		if _, err := in.Seek(excess, io.SeekStart); err != nil {
			return err
		}
	}
	old, err := openHere(filepath.Join(dir, oldLogName), os.O_CREATE|os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer old.Close()
	if _, err := io.Copy(old, io.LimitReader(in, maxLogBytes)); err != nil {
		return err
	}
	return in.Truncate(0) // the engine appends: its next line is the first
}

// logEnd is the log's last lines, for a person who wants to know why an engine does not start.
func logEnd(dir string) string {
	text, _ := tail(dir, lastLines) // "" where there is none
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
}

// tail is the end of a log; it begins in the older one when the newer is short.
func tail(dir string, n int64) ([]byte, error) {
	now, err := fileEnd(filepath.Join(dir, logName), n)
	if err != nil || int64(len(now)) >= n {
		return now, err
	}
	before, err := fileEnd(filepath.Join(dir, oldLogName), n-int64(len(now)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return now, err
	}
	return append(before, now...), nil
}

func fileEnd(path string, n int64) ([]byte, error) {
	f, err := openHere(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(-n, io.SeekEnd); err != nil {
		if _, err := f.Seek(0, io.SeekStart); err != nil { // shorter than that
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, n))
}

// Log is the end of a unit's engine log. It may hold what customers wrote: for operators alone.
func (s *Supervisor) Log(unit ids.ID, n int64) ([]byte, error) {
	return tail(s.dirOf(unit), n)
}
