package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is where figures were taken: without it they mean nothing.
type Machine struct {
	Cores  int    `json:"cores"`
	CPU    string `json:"cpu"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Nginx  string `json:"nginx,omitempty"`
	Load   string `json:"load"` // average of the last minutes before the run: others use the machine too
	// What the disk takes for an answer to be safe: a sync of a small append, in microseconds.
	SyncP50 float64 `json:"sync_p50_us"`
	SyncP99 float64 `json:"sync_p99_us"`
}

// line is the machine for people.
func (m Machine) line(at time.Time) string {
	with := ""
	if m.Nginx != "" {
		with = ", nginx " + m.Nginx
	}
	return fmt.Sprintf("%s, %d cores (%s), kernel %s, %s%s\nload average before %s; a sync of 1 KB takes %.0f us (p99 %.0f)",
		at.Format("2006-01-02 15:04 MST"), m.Cores, m.CPU, m.Kernel, m.Go, with, m.Load, m.SyncP50, m.SyncP99)
}

func thisMachine(dir, nginx string) Machine {
	m := Machine{Cores: runtime.NumCPU(), CPU: "unknown", Go: runtime.Version()}
	info, _ := os.ReadFile("/proc/cpuinfo") // no file, no name
	for line := range bytes.Lines(info) {
		if name, value, found := bytes.Cut(line, []byte(":")); found && string(bytes.TrimSpace(name)) == "model name" {
			m.CPU = string(bytes.TrimSpace(value))
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if nginx != "" {
		out, _ := exec.Command(nginx, "-v").CombinedOutput() // no version, no mention
		_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "nginx/")
		m.Nginx = version
	}
	m.SyncP50, m.SyncP99 = syncTimes(filepath.Join(dir, "sync"))
	return m
}

const (
	syncs     = 200
	syncBytes = 1 << 10 // about one event
)

// syncTimes appends and syncs. 0 = it could not.
func syncTimes(path string) (p50, p99 float64) {
	f, err := os.Create(path)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	took := make([]float64, syncs)
	for i := range took {
		if _, err := f.Write(make([]byte, syncBytes)); err != nil {
			return 0, 0
		}
		began := time.Now()
		if f.Sync() != nil {
			return 0, 0
		}
		took[i] = micros(time.Since(began))
	}
	slices.Sort(took)
	return took[syncs/2], took[syncs*99/100]
}
