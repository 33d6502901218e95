package pg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// orphanFast is how long an orphaned server may take for an orderly shutdown before it is stopped at once.
	orphanFast = 30 * time.Second
	// orphanPoll is how often we look whether it has gone.
	orphanPoll = 20 * time.Millisecond
)

// clearLeftovers ends every process that still works on the cluster and removes what it would trip over. The caller's
// lock on the data folder makes them ours: their parent is dead. A process belongs to a cluster when its working folder
// is the cluster's, which is so for the postmaster, each backend and a single-user server; a recycled process id is not.
func (f folder) clearLeftovers(ctx context.Context) error {
	if err := endProcesses(ctx, f.data(), orphanFast); err != nil {
		return err
	}
	if err := endProcesses(ctx, f.making(), 0); err != nil {
		return err
	}
	if err := os.RemoveAll(f.making()); err != nil {
		return fmt.Errorf("half-made cluster: %w", err)
	}
	// Only now, with no backend left on the shared memory, is it safe to drop the lock file. Left in place it would
	// stop the next start when its process id has been given to somebody else.
	if err := os.Remove(filepath.Join(f.data(), "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("stale lock file: %w", err)
	}
	if dir := f.socketDir(); dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("stale socket: %w", err)
		}
	}
	return nil
}

// endProcesses stops what runs on dir: the postmaster by a fast shutdown, and past grace everything at once.
func endProcesses(ctx context.Context, dir string, grace time.Duration) error {
	hard := time.Now().Add(grace)
	asked := map[int]syscall.Signal{}
	for {
		pids := processesIn(dir)
		if len(pids) == 0 {
			return nil
		}
		sig := syscall.SIGINT
		if time.Now().After(hard) {
			sig = syscall.SIGKILL
		}
		target := pids
		if pm, err := readPostmaster(filepath.Join(dir, "postmaster.pid")); err == nil && slices.Contains(pids, pm.pid) && sig == syscall.SIGINT {
			target = []int{pm.pid} // it ends its own backends
		} else if sig == syscall.SIGINT {
			sig = syscall.SIGTERM // backends without a postmaster: end the session, not just its statement
		}
		for _, pid := range target {
			if asked[pid] != sig {
				asked[pid] = sig
				_ = syscall.Kill(pid, sig)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("an earlier PostgreSQL (process %d) still runs on %s: %w", pids[0], dir, ctx.Err())
		case <-time.After(orphanPoll):
		}
	}
}

// processesIn lists the processes whose working folder is dir, zombies left out.
func processesIn(dir string) []int {
	want, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	var pids []int
	for _, link := range links {
		got, err := os.Stat(link)
		if err != nil || !os.SameFile(want, got) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err == nil && pid != os.Getpid() && isPostgres(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isPostgres keeps a shell that somebody opened inside the folder out of it.
func isPostgres(pid int) bool {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	name := strings.TrimSpace(string(comm))
	return err == nil && (name == "postgres" || name == "initdb" || name == "postmaster")
}

// postmaster is what postmaster.pid says.
type postmaster struct {
	pid, port int
	status    string // starting, ready, stopping, standby
}

// readPostmaster reads the lock file: process id, folder, start, port, socket folder, address, shared memory, status.
func readPostmaster(path string) (postmaster, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return postmaster{}, err
	}
	lines := strings.Split(string(b), "\n")
	var pm postmaster
	if pm.pid, err = strconv.Atoi(strings.TrimSpace(lines[0])); err != nil {
		return postmaster{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(lines) > 3 {
		pm.port, _ = strconv.Atoi(strings.TrimSpace(lines[3]))
	}
	if len(lines) > 7 {
		pm.status = strings.TrimSpace(lines[7])
	}
	return pm, nil
}
