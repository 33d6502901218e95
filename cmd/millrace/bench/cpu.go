package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuUse is CPU time by what it was spent in. On a machine that others use too, it says more than requests a second.
type cpuUse struct {
	Client   time.Duration // this process
	Engine   time.Duration
	Program  time.Duration // what stands between: nginx, or Millrace's one process
	Agent    time.Duration
	Database time.Duration
}

// clockTick is the unit of /proc's CPU times, the same on every Linux.
const clockTick = 10 * time.Millisecond

// cpuOf reads the CPU time of this process and of the trees below the given ones. Processes that have ended are missing.
func cpuOf(roots ...int) (u cpuUse) {
	u.Client = cpuSelf()
	parent, spent := processTable()
	for pid, cpu := range spent {
		if !below(pid, roots, parent) {
			continue
		}
		title, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")) // it may just have ended
		argv := bytes.SplitN(title, []byte{0}, 3)
		sub := ""
		if len(argv) > 1 {
			sub = string(argv[1])
		}
		switch {
		case sub == "raw-upstream", sub == "sim-engine":
			u.Engine += cpu
		case sub == "agent":
			u.Agent += cpu
		case bytes.Contains(argv[0], []byte("postgres")):
			u.Database += cpu
		default:
			u.Program += cpu
		}
	}
	return u
}

func below(pid int, roots []int, parent map[int]int) bool {
	for ; pid > 1; pid = parent[pid] {
		for _, r := range roots {
			if pid == r {
				return true
			}
		}
	}
	return false
}

// processTable reads /proc/PID/stat: "pid (name) state ppid …", fields 14 and 15 are CPU ticks.
func processTable() (parent map[int]int, spent map[int]time.Duration) {
	parent, spent = map[int]int{}, map[int]time.Duration{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || len(fields) < 13 {
			continue
		}
		parent[pid], _ = strconv.Atoi(string(fields[1]))
		for _, ticks := range fields[11:13] {
			n, _ := strconv.ParseInt(string(ticks), 10, 64)
			spent[pid] += time.Duration(n) * clockTick
		}
	}
	return parent, spent
}

// add and sub work by part.
func (u cpuUse) add(v cpuUse) cpuUse {
	return cpuUse{u.Client + v.Client, u.Engine + v.Engine, u.Program + v.Program, u.Agent + v.Agent, u.Database + v.Database}
}

func (u cpuUse) sub(v cpuUse) cpuUse {
	return cpuUse{u.Client - v.Client, u.Engine - v.Engine, u.Program - v.Program, u.Agent - v.Agent, u.Database - v.Database}
}

// cpuSelf is the CPU time of this process so far.
func cpuSelf() time.Duration {
	var own unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &own) != nil {
		return 0
	}
	return time.Duration(own.Utime.Nano() + own.Stime.Nano())
}
