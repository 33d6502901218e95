package llamacpp

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killAfter is how long a stopped step may take to end before it is killed.
const killAfter = 3 * time.Second

// command runs in a process group of its own, so that what it starts ends with it, and without the user's Python settings.
func command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "PYTHONNOUSERSITE=1", "PYTHONUNBUFFERED=1", "PYTHONPATH=", "PYTHONHOME=", "PIP_REQUIRE_VIRTUALENV=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
	cmd.WaitDelay = killAfter
	return cmd
}

// lastLines is how many lines of output an error shows.
const lastLines = 4

// maxLine bounds a line that is kept, in bytes.
const maxLine = 300

// output reads what pip prints: "Progress 123 of 456" is a download's state, "Downloading …" names it.
type output struct {
	progress func(Progress)
	rest     []byte
	step     string
	last     []string
}

// Write takes output; lines may come in parts.
func (o *output) Write(b []byte) (int, error) {
	o.rest = append(o.rest, b...)
	for {
		line, rest, whole := bytes.Cut(o.rest, []byte("\n"))
		if !whole {
			if len(o.rest) > maxLine {
				o.rest = o.rest[:maxLine]
			}
			return len(b), nil
		}
		o.rest = rest
		o.line(strings.TrimSpace(string(line)))
	}
}

func (o *output) line(line string) {
	if state, ok := strings.CutPrefix(line, "Progress "); ok {
		done, total, _ := strings.Cut(state, " of ")
		d, err1 := strconv.ParseInt(done, 10, 64)
		t, err2 := strconv.ParseInt(total, 10, 64)
		if err1 == nil && err2 == nil && t > 0 {
			o.progress(Progress{Step: o.step, Done: d, Total: t})
		}
		return
	}
	if line == "" {
		return
	}
	if o.last = append(o.last, line[:min(len(line), maxLine)]); len(o.last) > lastLines {
		o.last = o.last[1:]
	}
	if file, ok := strings.CutPrefix(line, "Downloading "); ok {
		file, _, _ = strings.Cut(file, " ")
		name, _, _ := strings.Cut(file, "-")
		o.step = "downloading " + name
		o.progress(Progress{Step: o.step})
	}
}
