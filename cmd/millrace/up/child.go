package up

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is a process of ours (an agent) that is started again whenever it ends before it should.
type child struct {
	name string
	args []string
	env  []string
	log  io.Writer

	cancel context.CancelFunc
	done   chan struct{}
}

// Times of a child's life.
const (
	restartFirst = 200 * time.Millisecond // after an unexpected end; doubles
	restartMax   = 10 * time.Second
	steadyAfter  = 30 * time.Second // a child that ran so long starts again at restartFirst
	childStop    = 60 * time.Second // after SIGTERM; then it is killed
)

// start runs the child until stop.
func (c *child) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go func() {
		defer close(c.done)
		// The kernel sends the parent-death signal when the thread that forked ends: this one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		c.keep(ctx)
	}()
}

// stop ends the child and waits for it.
func (c *child) stop() {
	c.cancel()
	<-c.done
}

func (c *child) keep(ctx context.Context) {
	wait := restartFirst
	for ctx.Err() == nil {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steadyAfter {
			wait = restartFirst
		}
		slog.Warn("a child process ended and is started again", "process", c.name, "error", err, "in", wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, restartMax)
	}
}

// once runs the process and ends it by SIGTERM when ctx ends. Its own group keeps a terminal's ctrl-C from reaching it:
// we end it in order.
func (c *child) once(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, c.args...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = childStop
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return fmt.Errorf("%s ended", c.name)
}
