package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"millrace/cmd/millrace/up"
)

// UpConfig is how to run `millrace up`.
type UpConfig struct {
	Binary    string
	Data      string
	ReadyFile string
	Args      []string  // further flags
	Env       []string  // KEY=value
	Log       io.Writer // what it says; nil = only the end is kept
}

// Up is a running `millrace up`.
type Up struct {
	*Process
	Ready up.Ready
}

// ErrEnded means that a process ended before it was ready. Its words are in the error.
var ErrEnded = errors.New("it ended before it was ready")

const readyPoll = 10 * time.Millisecond

// LaunchUp starts `up` and does not wait. Every address is chosen by the system unless Args say otherwise.
func LaunchUp(c UpConfig) (*Up, error) {
	if err := os.Remove(c.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	args := append([]string{"up", "--data", c.Data, "--ready-file", c.ReadyFile, "--listen", "127.0.0.1:0"}, c.Args...)
	p, err := StartProcess(c.Binary, args, c.Env, c.Log)
	if err != nil {
		return nil, err
	}
	return &Up{Process: p}, nil
}

// StartUp starts `up` and waits until it serves.
func StartUp(ctx context.Context, c UpConfig) (*Up, error) {
	u, err := LaunchUp(c)
	if err != nil {
		return nil, err
	}
	return u, u.AwaitReady(ctx, c.ReadyFile)
}

// AwaitReady waits for the ready file and reads it. When it does not come, the process is killed.
func (u *Up) AwaitReady(ctx context.Context, readyFile string) error {
	b, err := awaitFile(ctx, u.Process, readyFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &u.Ready); err != nil {
		return errors.Join(fmt.Errorf("ready file: %w", err), u.Kill())
	}
	return nil
}

// awaitFile waits until the process has written a file.
func awaitFile(ctx context.Context, p *Process, path string) ([]byte, error) {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 0 {
			return b, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, errors.Join(err, p.Kill())
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("process %d: %w; it said last:\n%s", p.PID, ErrEnded, p.Said())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("process %d is not ready: %w; it said last:\n%s", p.PID, ctx.Err(), p.Said()), p.Kill())
		case <-tick.C:
		}
	}
}
