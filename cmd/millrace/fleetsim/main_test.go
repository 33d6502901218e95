// Package fleetsim is a simulated fleet, tested as a whole: a control plane and gateways as processes of their own, and an
// agent process for every host, on hosts whose hardware is a file and whose engines make up their text. Hosts, agents, the
// control plane and providers' networks fail under load.
//
// What holds throughout: no GPU is given to two engines; no request is lost that had not begun to stream. What holds in the
// end, after each fault: what agents observe is what is planned, every demand is met, each model serves; the books are clean.
package fleetsim

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Times.
const (
	startLimit    = 3 * time.Minute // of a program, on a busy machine
	stopLimit     = time.Minute
	convergeLimit = 3 * time.Minute
	poll          = 100 * time.Millisecond
	sayEvery      = 15 * time.Second // why something takes long
)

// watchEnv makes this program the watchdog of a folder: engines outlive their agents, and must not outlive a killed test.
const (
	watchEnv   = "FLEETSIM_WATCH"
	networkEnv = "FLEETSIM_NETWORK" // prefix of the namespaces; "" = there are none
)

// millrace is the program, built once.
var millrace string

func TestMain(m *testing.M) {
	if dir := os.Getenv(watchEnv); dir != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test is gone
		killEngines(filepath.Join(dir, "*"))
		if prefix := os.Getenv(networkEnv); prefix != "" {
			(&namespaces{prefix: prefix}).remove()
		}
		return
	}
	if millrace = os.Getenv("FLEETSIM_BINARY"); millrace != "" || os.Getenv("MILLRACE_SLOW") == "" { // built already, or not needed
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "millrace-fleetsim-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
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

// watch starts the watchdog of a folder of agents.
func watch(t *testing.T, dir string, n network) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), watchEnv+"="+dir)
	if spaces, ok := n.(*namespaces); ok {
		cmd.Env = append(cmd.Env, networkEnv+"="+spaces.prefix)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = hold.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// within waits until what is right, and says at the end what was not.
func within(t testing.TB, limit time.Duration, what string, wrong func() string) time.Duration {
	t.Helper()
	begun := time.Now()
	for told := begun; ; {
		why := wrong()
		if why == "" {
			return time.Since(begun)
		}
		if time.Since(begun) > limit {
			t.Fatalf("%s: not within %v: %s", what, limit, why)
		}
		if time.Since(told) > sayEvery {
			told = time.Now()
			t.Logf("%s: not yet: %s", what, why)
		}
		time.Sleep(poll)
	}
}
