package engines

import (
	"io"
	"os"
	"path/filepath"
	"strings"
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
	f, err := os.Open(filepath.Join(dir, logName))
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(-lastLines, io.SeekEnd); err != nil {
		_, _ = f.Seek(0, io.SeekStart) // shorter than that
	}
	text, _ := io.ReadAll(io.LimitReader(f, lastLines))
	return strings.TrimSpace(strings.ToValidUTF8(string(text), "?"))
}
