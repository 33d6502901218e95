// Package trial runs the real program from outside, as the people and programs around it do: `up` and `serve` as
// processes that may be stopped, paused or killed at any moment, and clients that remember exactly what they were told.
//
// It owns starting, ending and calling. It does not decide what is right: the crash bench and the tests of the whole
// program do. Invariants: no process outlives the one that started it; everything waits with a bound.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is a running program of ours.
type Process struct {
	PID int

	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; set before done is closed
	said tail
}

// StartProcess runs binary. What it writes is kept at its end, and goes to log too when that is not nil. The process dies
// with this one.
func StartProcess(binary string, args, env []string, log io.Writer) (*Process, error) {
	p := &Process{cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout = &p.said
	if log != nil {
		p.cmd.Stdout = io.MultiWriter(&p.said, log)
	}
	p.cmd.Stderr = p.cmd.Stdout
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = pipeWait
	started := make(chan error, 1)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked ends: this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	p.PID = p.cmd.Process.Pid
	return p, nil
}

// pipeWait bounds how long the end of a process is held up by a child of it that still holds its output.
const pipeWait = 2 * time.Second

// Signal sends a signal to the process alone. One that has ended is not an error.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to process %d: %w", s, p.PID, err)
	}
	return nil
}

// Kill ends the process at once, with no chance to say anything, and waits for its end.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop asks the process to end and waits for it. One that does not end before ctx is killed.
func (p *Process) Stop(ctx context.Context) (code int, err error) {
	if err := p.Signal(syscall.SIGINT); err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Wait waits for the process's end and gives its exit code; -1 = a signal ended it. One that does not end before ctx is
// killed, and that is an error.
func (p *Process) Wait(ctx context.Context) (code int, err error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return -1, errors.Join(fmt.Errorf("process %d did not end; it said last:\n%s", p.PID, p.Said()), p.Kill())
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Said is the end of what the process wrote.
func (p *Process) Said() string { return p.said.String() }

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 64 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if n := len(t.text); n > 2*tailBytes {
		t.text = append(t.text[:0], t.text[n-tailBytes:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
