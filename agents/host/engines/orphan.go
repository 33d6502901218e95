package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millrace/internal/clock"
	"millrace/internal/ids"
)

const (
	pidName      = "process.json"
	orphanWait   = 10 * time.Second // for killed orphans to be gone
	orphanPoll   = 10 * time.Millisecond
	bootIDPath   = "/proc/sys/kernel/random/boot_id"
	startField   = 19 // of /proc/<pid>/stat after the command: start time in clock ticks (field 22)
	statAfterCmd = 2  // bytes between the command's bracket and the next field
)

// pidFile tells a later agent which process an engine was. A number alone proves nothing: it may be reused, so the start
// time within one boot and the mark in the environment are compared.
type pidFile struct {
	Engine  ids.ID `json:"engine"`
	Program string `json:"program"`
	PID     int    `json:"pid,omitempty"`
	Start   string `json:"start,omitempty"` // clock ticks after boot
	Boot    string `json:"boot,omitempty"`
}

func observe(pid int, eng ids.ID, program string) pidFile {
	return pidFile{Engine: eng, Program: program, PID: pid, Start: startTime(pid), Boot: bootID()}
}

func writePID(dir string, p pidFile) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, pidName+".new")
	if err := os.WriteFile(tmp, text, secretMode); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, pidName))
}

func removePID(dir string) { _ = os.Remove(filepath.Join(dir, pidName)) }

// reclaim deals with the engines that an earlier, killed agent left running: they are killed, whole groups, before
// anything is started. Nobody relays through them any more, so nothing that they still do can be handed over.
// Adopting them instead is a decision to be made here: pidFile holds what it needs.
func reclaim(root string, c clock.Clock, log *slog.Logger) error {
	files, err := filepath.Glob(filepath.Join(root, "*", pidName))
	if err != nil || len(files) == 0 {
		return err
	}
	left := map[string]pidFile{} // by mark
	for _, path := range files {
		var p pidFile
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &p) == nil {
			left[envEngine+p.Engine.String()] = p
		}
	}
	for deadline := c.Now().Add(orphanWait); ; time.Sleep(orphanPoll) {
		orphans := find(left)
		if len(orphans) == 0 {
			break
		}
		for pid, p := range orphans {
			log.Warn("killing an engine that an earlier agent left running", "pid", pid, "program", p.Program)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if c.Now().After(deadline) {
			return fmt.Errorf("engines of an earlier agent cannot be killed: %d processes are left", len(orphans))
		}
	}
	for _, path := range files {
		removePID(filepath.Dir(path))
	}
	return nil
}

// find gives the living processes that carry an engine's mark, or are the very process that a pid file names.
func find(left map[string]pidFile) map[int]pidFile {
	out := map[int]pidFile{}
	boot := bootID()
	for _, p := range left {
		if p.PID > 0 && p.Boot == boot && p.Start != "" && startTime(p.PID) == p.Start {
			out[p.PID] = p
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
			if p, ok := left[string(kv)]; ok && startTime(pid) != "" {
				out[pid] = p
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
