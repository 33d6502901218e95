// Tests of the whole program, as its users meet it: the real binary, its data folder, its ports.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"millrace/cmd/millrace/trial"
)

// Times.
const (
	startLimit = 2 * time.Minute // of a program, on a busy machine
	stopLimit  = time.Minute
	soon       = 30 * time.Second // for what must happen, however busy the machine is
	poll       = 10 * time.Millisecond
)

// millrace is the program, built once.
var millrace string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "millrace-e2e-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		defer stopShared()
		millrace = filepath.Join(dir, "millrace")
		build := exec.Command("go", "build", "-o", millrace, "millrace/cmd/millrace")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

func slow() bool { return os.Getenv("MILLRACE_SLOW") != "" }

// folder is a folder that the database's user can cross when the tests run as root.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func config(dir string, args ...string) trial.UpConfig {
	return trial.UpConfig{Binary: millrace, Data: filepath.Join(dir, "data"), ReadyFile: filepath.Join(dir, "ready.json"), Args: args}
}

// startUp starts `up` in dir and stops it at the test's end, when the test has not done so.
func startUp(t testing.TB, c trial.UpConfig) *trial.Up {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	u, err := trial.StartUp(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopUp(t, u) })
	return u
}

// stopUp ends `up` as ctrl-C does.
func stopUp(t testing.TB, u *trial.Up) {
	t.Helper()
	select {
	case <-u.Done():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if code, err := u.Stop(ctx); err != nil || code != 0 {
		t.Errorf("ctrl-C: exit code %d, %v\n%s", code, err, u.Said())
	}
}

// shared is an `up` that tests use together when they do it no harm.
var shared struct {
	once sync.Once
	up   *trial.Up
	dir  string
	err  error
}

func sharedUp(t testing.TB) *trial.Up {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "millrace-e2e-"); shared.err != nil {
			return
		}
		if shared.err = os.Chmod(shared.dir, 0o711); shared.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		shared.up, shared.err = trial.StartUp(ctx, config(shared.dir))
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.up
}

func stopShared() {
	if shared.up != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if code, err := shared.up.Stop(ctx); err != nil || code != 0 {
			fmt.Fprintf(os.Stderr, "the shared up ended with %d, %v\n", code, err)
		}
	}
	os.RemoveAll(shared.dir)
}

// eventually waits until what is true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	within(t, soon, what, is)
}

func within(t testing.TB, limit time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !is(); time.Sleep(poll) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
