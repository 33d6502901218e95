package engines

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millrace/serving/engine"
)

// Marks in an engine's environment by which its processes are known again after the agent was killed.
const (
	envEngine = "MILLRACE_ENGINE="
	envUnit   = "MILLRACE_UNIT="
)

const (
	folderMode = 0o700
	secretMode = 0o600
)

// process is one engine process group, in a session of its own: what happens to the agent's terminal or group is none of
// its business.
type process struct {
	pid    int
	cmd    *exec.Cmd     // nil: adopted from an earlier agent
	exited chan struct{} // closed once the leader has been reaped; err is set then
	err    error
	// ends stops what signals to the group do not reach: a container. nil = there is none.
	ends func(within time.Duration)

	mu     sync.Mutex
	reaped bool // its number may be another's from now on
}

// spawn starts an engine as r says. Its output goes to the log file directly, so that it may outlive the agent.
func (s *Supervisor) spawn(dir string, r *record, c engine.Command) (*process, error) {
	for _, f := range c.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), folderMode); err != nil {
			return nil, err
		}
		_ = os.Remove(f.Path) // an earlier engine may have left a link there
		if err := os.WriteFile(f.Path, f.Data, f.Mode); err != nil {
			return nil, err
		}
	}
	out, err := openLog(dir)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own descriptor
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(append(inherited(), c.Env...), envEngine+r.Engine.String(), envUnit+r.Unit.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.cfg.DieWithAgent {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	// Written before the fork: an agent killed between fork and the second writing still finds the engine by its mark.
	if err := r.write(dir); err != nil {
		return nil, err
	}
	if err := s.forker.start(cmd); err != nil {
		return nil, fmt.Errorf("the engine's program cannot be started: %w", err)
	}
	expendable(cmd.Process.Pid)
	p := &process{pid: cmd.Process.Pid, cmd: cmd, exited: make(chan struct{}), ends: s.ends(r)}
	go p.reap() // ends with the process, which terminate and kill wait for
	r.found(p.pid)
	if err := r.write(dir); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// engineOOM makes an engine what the kernel ends first when the host's memory is used up. From the agent it would have the
// protection of a service (OOMScoreAdjust), and everything else would go before it.
const engineOOM = 200

// expendable marks an engine's leader, whose children take after it. One that has ended already needs no mark.
func expendable(pid int) {
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	text, err := os.ReadFile(path)
	if now, wrong := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && wrong == nil && now < engineOOM {
		_ = os.WriteFile(path, strconv.AppendInt(nil, engineOOM, 10), 0)
	}
}

// ends is how a container is stopped.
func (s *Supervisor) ends(r *record) func(within time.Duration) {
	if r.Container == "" || s.cfg.Runtime == nil {
		return nil
	}
	return func(within time.Duration) {
		if err := s.cfg.Runtime.end(r.Container, within); err != nil {
			s.cfg.Log.Warn("a container's stop command failed", "container", r.Container, "error", err)
		}
	}
}

// inherited is the agent's environment without its own settings, which may hold a join token.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MILLRACE_") })
}

// reap waits for the leader's end, kills what it left behind while its number is still its own, and takes its status.
func (p *process) reap() {
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	p.err = p.cmd.Wait()
	p.reaped = true
	p.mu.Unlock()
	close(p.exited)
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid, sig)
	}
}

// terminate asks the group to end, and kills it after the deadline. It returns once the leader is gone.
func (p *process) terminate(deadline time.Duration) {
	if p.ends != nil {
		p.ends(deadline)
	} else {
		p.signal(syscall.SIGTERM)
	}
	t := time.NewTimer(deadline)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
		p.kill()
	}
}

// kill ends the whole group at once.
func (p *process) kill() {
	select {
	case <-p.exited:
		return
	default:
	}
	if p.ends != nil {
		p.ends(0)
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// how says how the process ended.
func (p *process) how() string {
	var exit *exec.ExitError
	switch {
	case p.cmd == nil:
		return "ended"
	case p.err == nil:
		return "exited with status 0"
	case errors.As(p.err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return "was ended by the signal: " + ws.Signal().String()
		}
		return "exited with status " + fmt.Sprint(exit.ExitCode())
	}
	return p.err.Error()
}
