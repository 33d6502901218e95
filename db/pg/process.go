package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const (
	// stopGrace is how long an immediate shutdown may take before the process is killed.
	stopGrace = 5 * time.Second
	// outputGrace is how long output of grandchildren is waited for after the process itself ended.
	outputGrace = time.Second
)

// process is a child that dies with us.
type process struct {
	pid  int
	done chan struct{}
	err  error // read after done
}

// spawn starts a child in its own process group, so that a terminal's ctrl-C does not reach it, with a signal from the
// kernel for the moment this process dies. Linux sends that signal when the *thread* that forked ends: hence a goroutine
// that keeps its thread until the child is gone.
func spawn(cmd *exec.Cmd, onDeath syscall.Signal) (*process, error) {
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = onDeath
	cmd.WaitDelay = outputGrace
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// stop asks for a fast shutdown; past ctx an immediate one; then kills. It returns when the process is gone.
func (p *process) stop(ctx context.Context) error {
	_ = syscall.Kill(p.pid, syscall.SIGINT)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	_ = syscall.Kill(p.pid, syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.done
	}
	return fmt.Errorf("stopped without a checkpoint: %w", ctx.Err())
}

// command prepares a program of PostgreSQL: run as the folder's user, in /, with an environment that holds none of our
// secrets and none of the caller's PG* variables.
func (f folder) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.user.credential()}
	return cmd
}

// giveData hands a cluster's folder to cmd and returns the name by which the child finds it: its path, or, where the
// child's user cannot walk there, the opened folder itself. The closer is for after the start.
func (f folder) giveData(cmd *exec.Cmd, dir string) (string, io.Closer, error) {
	if f.reachable {
		return dir, io.NopCloser(nil), nil
	}
	opened, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	cmd.ExtraFiles = []*os.File{opened} // becomes descriptor 3
	return "/proc/self/fd/3", opened, nil
}

// runTool runs initdb or a single-user server to its end. When ctx ends first it is killed.
func (f folder) runTool(ctx context.Context, cmd *exec.Cmd, out *tail) error {
	cmd.Stdout, cmd.Stderr = out, out
	p, err := spawn(cmd, syscall.SIGKILL)
	if err != nil {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = syscall.Kill(-p.pid, syscall.SIGKILL)
		<-p.done
		return ctx.Err()
	}
	if p.err != nil && !errors.Is(p.err, exec.ErrWaitDelay) {
		return fmt.Errorf("%w\n%s", p.err, out)
	}
	return nil
}
