package engines

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// agent is another process with a supervisor, for the tests that kill it.
func agent(dir string) {
	board := newBoard()
	s, err := New(Config{Dir: dir, Drain: time.Second, Clock: clock.System, Board: board, DieWithAgent: os.Getenv("ENGINES_TEST_DIE") != "",
		Keep: os.Getenv("ENGINES_TEST_KEEP") != "", Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Client: func(ids.ID, engine.Driver) *http.Client { return http.DefaultClient }})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	flags := []string{testengine.WithChild}
	unit := ids.New()
	if name := os.Getenv("ENGINES_TEST_KEEP"); name != "" {
		if unit, err = ids.Parse(ids.Unit, name); err != nil {
			panic(err)
		}
	} else {
		flags = append(flags, testengine.IgnoreTerm)
	}
	s.Apply([]wire.Desired{testengine.Desired(unit, flags...)})
	for board.load(unit).State != wire.StateReady {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(s.Observed()[0].PID)
	select {}
}

// startAgent gives the agent's process and its engine's.
func startAgent(t *testing.T, dir string, env ...string) (cmd *exec.Cmd, enginePID int) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "ENGINES_TEST_AGENT="+dir), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(out, &enginePID); err != nil {
		t.Fatal(err)
	}
	return cmd, enginePID
}

func TestEnginesDieWithAKilledAgent(t *testing.T) {
	t.Parallel()
	cmd, pid := startAgent(t, t.TempDir(), "ENGINES_TEST_DIE=1")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	until(t, "the kernel to kill the engine", func() bool { return !alive(pid) })
}

func TestOrphansAreKilledAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, pid := startAgent(t, dir)
	child := childOf(t, pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !alive(pid) {
		t.Fatal("the engine did not outlive its agent: nothing to test")
	}
	// A number in a record that has become another process's is left alone.
	other := exec.Command("sleep", "300")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	stranger := filepath.Join(dir, ids.New().String())
	if err := os.Mkdir(stranger, folderMode); err != nil {
		t.Fatal(err)
	}
	r := record{Engine: ids.New(), Program: "sleep"}
	r.found(other.Process.Pid)
	r.Start += "1"
	if err := r.write(stranger); err != nil {
		t.Fatal(err)
	}
	newBench(t, dir)
	if alive(pid) || alive(child) {
		t.Error("an orphan lives on")
	}
	if !alive(other.Process.Pid) {
		t.Error("a stranger was killed")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+recordEnd)); len(left) != 0 {
		t.Errorf("records are left: %v", left)
	}
}

func TestLogsAreBounded(t *testing.T) {
	dir := t.TempDir()
	out, err := openLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	line := bytes.Repeat([]byte("x"), 1<<20)
	for range maxLogBytes>>20 + 3 {
		if _, err := out.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = out.WriteString("newest\n")
	if err := rotate(dir); err != nil {
		t.Fatal(err)
	}
	_, _ = out.WriteString("after\n") // the engine goes on writing to the same file
	now, _ := os.ReadFile(filepath.Join(dir, logName))
	old, _ := os.ReadFile(filepath.Join(dir, oldLogName))
	if string(now) != "after\n" || len(old) != maxLogBytes || !bytes.HasSuffix(old, []byte("newest\n")) {
		t.Errorf("now %d bytes, old %d bytes", len(now), len(old))
	}
	if end := logEnd(dir); !strings.HasSuffix(end, "xnewest\nafter") || len(end) > lastLines {
		t.Errorf("%q", end)
	}
}
