package engines

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millrace/internal/ids"
)

const (
	orphanWait   = 10 * time.Second // for killed orphans to be gone
	orphanPoll   = 10 * time.Millisecond
	bootIDPath   = "/proc/sys/kernel/random/boot_id"
	startField   = 19 // of /proc/<pid>/stat after the command: start time in clock ticks (field 22)
	statAfterCmd = 2  // bytes between the command's bracket and the next field
)

// reclaim deals with the engines that an earlier agent left running. An agent that keeps engines adopts those that live: it
// gets their records. All others are killed, whole groups, before anything is started: nobody relays through them.
func (s *Supervisor) reclaim() (map[ids.ID]record, error) {
	all, err := records(s.cfg.Dir, s.cfg.Log)
	if err != nil {
		return nil, err
	}
	kept := map[ids.ID]record{}
	var gone []record
	for dir, r := range all {
		if s.cfg.Keep && r.alive() && filepath.Base(dir) == r.Unit.String() {
			kept[r.Unit] = r
			continue
		}
		gone = append(gone, r)
	}
	if err := s.destroy(gone); err != nil {
		return nil, err
	}
	for dir, r := range all {
		if _, ok := kept[r.Unit]; !ok {
			removeRecord(dir)
		}
	}
	return kept, nil
}

// destroy kills every process of engines that nobody is to go on with.
func (s *Supervisor) destroy(all []record) error {
	left := map[string]record{} // by mark
	for _, r := range all {
		left[envEngine+r.Engine.String()] = r
		if r.Container != "" && s.cfg.Runtime != nil {
			_ = s.cfg.Runtime.end(r.Container, 0)
		}
	}
	if len(left) == 0 {
		return nil
	}
	for deadline := s.cfg.Clock.Now().Add(orphanWait); ; time.Sleep(orphanPoll) {
		orphans := find(left)
		if len(orphans) == 0 {
			return nil
		}
		for pid, r := range orphans {
			s.cfg.Log.Warn("killing an engine that an earlier agent left running", "pid", pid, "program", r.Program)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if s.cfg.Clock.Now().After(deadline) {
			return fmt.Errorf("engines of an earlier agent cannot be killed: %d processes are left", len(orphans))
		}
	}
}

// find gives the living processes that carry an engine's mark, or are the very process that a record names.
func find(left map[string]record) map[int]record {
	out := map[int]record{}
	for _, r := range left {
		if r.alive() {
			out[r.PID] = r
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return out
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // gone, or another user's
		}
		for kv := range bytes.SplitSeq(environ, []byte{0}) {
			if r, ok := left[string(kv)]; ok && startTime(pid) != "" {
				out[pid] = r
			}
		}
	}
	return out
}

// startTime is when a living process began, "" when there is none or it is a zombie.
func startTime(pid int) string {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	at := bytes.LastIndexByte(stat, ')') // the command may hold anything
	if at < 0 || at+statAfterCmd > len(stat) {
		return ""
	}
	fields := strings.Fields(string(stat[at+statAfterCmd:]))
	if len(fields) <= startField || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[startField]
}

func bootID() string {
	b, _ := os.ReadFile(bootIDPath) // "" where there is none: then the mark alone decides
	return strings.TrimSpace(string(b))
}
