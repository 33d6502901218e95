package engines

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/ids"
)

// An engine writes to its log itself, so the file is never moved under it: when it is too large, it is copied to the
// older one and cut. What the engine writes in between is lost; it is a log.
const (
	logName     = "engine.log"
	oldLogName  = "engine.log.1"
	maxLogBytes = 16 << 20
	lastLines   = 600 // bytes of the log quoted in a unit's message
)

func openLog(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, secretMode)
}

// rotate bounds the log's size.
func rotate(dir string) error {
	path := filepath.Join(dir, logName)
	info, err := os.Stat(path)
	if err != nil || info.Size() < maxLogBytes {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	if excess := info.Size() - maxLogBytes; excess > 0 { // keep the newest part
		if _, err := in.Seek(excess, io.SeekStart); err != nil {
			return err
		}
	}
	old, err := os.OpenFile(filepath.Join(dir, oldLogName), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, secretMode)
	if err != nil {
		return err
	}
	defer old.Close()
	if _, err := io.Copy(old, io.LimitReader(in, maxLogBytes)); err != nil {
		return err
	}
	return os.Truncate(path, 0) // the engine appends: its next line is the first
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
	f, err := os.Open(path)
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
