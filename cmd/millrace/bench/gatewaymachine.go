package bench

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strings"

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
}

func thisMachine(nginx string) Machine {
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
	return m
}
