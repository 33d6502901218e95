package engines

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	testengine.RunIfAsked()
	if deepInferIfAsked() {
		return
	}
	if dir := os.Getenv("ENGINES_TEST_AGENT"); dir != "" {
		agent(dir)
		return
	}
	os.Exit(m.Run())
}

func TestAnEngineLivesAndTells(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	if _, refused := b.Enter(unit); refused != wire.RefusedUnknown {
		t.Errorf("an unknown unit was refused with %q", refused)
	}
	d := testengine.Desired(unit)
	d.Generation = 7
	b.Apply([]wire.Desired{d})
	o := b.ready(t, unit)
	if o.Generation != 7 || !alive(o.PID) || o.Restarts != 0 || o.StartedMS == 0 {
		t.Errorf("%+v", o)
	}
	score := func(pid string) int {
		text, err := os.ReadFile("/proc/" + pid + "/oom_score_adj")
		n, wrong := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || wrong != nil {
			t.Error(err, wrong)
		}
		return n
	}
	if own, its := score("self"), score(strconv.Itoa(o.PID)); its != max(own, engineOOM) {
		t.Errorf("when memory is short: the agent %d, its engine %d", own, its)
	}
	if err := b.ask(t, unit, 3); err != nil {
		t.Fatal(err)
	}
	until(t, "the block that the request stored", func() bool { return b.board.holds(testengine.Block(1)) })
	until(t, "the engine's load", func() bool { return b.board.load(unit).KVUsage == 0.25 })
	if l := b.board.load(unit); l.Engine == ids.Nil || l.Engine != b.board.engine {
		t.Errorf("%+v", l)
	}
	b.Apply(nil)
	until(t, "the unit to be gone", func() bool { return len(b.Observed()) == 0 })
	if alive(o.PID) {
		t.Error("the engine outlived its unit")
	}
	if got := strings.Join(b.board.states, " "); got != "starting ready draining starting stopped" && got != "starting ready draining stopped" {
		t.Errorf("states: %s", got)
	}
}

func TestAKilledEngineIsToldAtOnceAndRestarted(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	b.Apply([]wire.Desired{testengine.Desired(unit, testengine.WithChild)})
	before := b.ready(t, unit)
	engineBefore := b.board.load(unit).Engine
	child := childOf(t, before.PID)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the death to be told", func() bool { return b.board.load(unit).State != wire.StateReady })
	if _, refused := b.Enter(unit); refused != wire.RefusedNotReady {
		t.Errorf("refused with %q", refused)
	}
	until(t, "another engine", func() bool { l := b.board.load(unit); return l.State == wire.StateReady && l.Engine != engineBefore })
	after := b.observed(unit)
	if after.PID == before.PID || after.Restarts != 1 {
		t.Errorf("%+v", after)
	}
	until(t, "the dead engine's child to be gone", func() bool { return !alive(child) })
	if err := b.ask(t, unit, 1); err != nil {
		t.Error(err)
	}
}

func childOf(t *testing.T, parent int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if at := bytes.LastIndexByte(stat, ')'); at > 0 {
			if f := strings.Fields(string(stat[at+2:])); len(f) > 1 && f[1] == strconv.Itoa(parent) {
				return pid
			}
		}
	}
	t.Fatalf("process %d has no child", parent)
	return 0
}

func TestADrainLetsRunningAttemptsEnd(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	d := testengine.Desired(unit, "--token-time=20ms")
	b.Apply([]wire.Desired{d})
	b.ready(t, unit)
	result := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		p, refused := b.Enter(unit)
		if refused != "" {
			result <- errors.New(refused)
			return
		}
		resp, err := http.Post("http://"+p.Address()+engine.ChatPath, "application/json", strings.NewReader(`{"stream":true,"max_tokens":30}`))
		if err == nil {
			_, _ = resp.Body.Read(make([]byte, 1))
			close(began)
			var rest []byte
			rest, err = io.ReadAll(resp.Body)
			if err == nil && !strings.HasSuffix(string(rest), "[DONE]\n\n") {
				err = fmt.Errorf("cut short: %q", rest)
			}
		}
		p.Leave(err != nil)
		result <- err
	}()
	<-began
	d.Wanted = draining
	b.Apply([]wire.Desired{d})
	until(t, "draining", func() bool { return b.board.load(unit).State == wire.StateDraining })
	if _, refused := b.Enter(unit); refused != wire.RefusedDraining {
		t.Errorf("refused with %q", refused)
	}
	d.Wanted = "serving" // changed their mind: the same engine goes on
	engineBefore := b.board.load(unit).Engine
	b.Apply([]wire.Desired{d})
	until(t, "ready again", func() bool { return b.board.load(unit).State == wire.StateReady })
	d.Wanted = stopped
	b.Apply([]wire.Desired{d})
	if err := <-result; err != nil {
		t.Errorf("the running attempt: %v", err)
	}
	until(t, "stopped", func() bool { return b.board.load(unit).State == wire.StateStopped })
	if o := b.observed(unit); o.PID != 0 || b.board.load(unit).Engine == engineBefore {
		t.Errorf("%+v", o)
	}
}

func TestAnotherSpecIsAnotherEngine(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	d := testengine.Desired(unit)
	b.Apply([]wire.Desired{d})
	first := b.ready(t, unit)
	d.Generation++ // the generation alone restarts nothing
	b.Apply([]wire.Desired{d})
	until(t, "the generation to be observed", func() bool { return b.observed(unit).Generation == d.Generation })
	if o := b.observed(unit); o.PID != first.PID {
		t.Error("restarted without a reason")
	}
	changed := testengine.Desired(unit, "--token-time=2ms")
	b.Apply([]wire.Desired{changed})
	until(t, "another process", func() bool {
		o := b.observed(unit)
		return o.State == wire.StateReady && o.PID != first.PID
	})
	if o := b.observed(unit); o.Restarts != 0 {
		t.Errorf("a wanted change counts as a failure: %+v", o)
	}
	// Gone and wanted again before the old engine has ended.
	second := b.observed(unit).PID
	b.Apply(nil)
	b.Apply([]wire.Desired{changed})
	until(t, "a third process", func() bool {
		o := b.observed(unit)
		return o.State == wire.StateReady && o.PID != second
	})
}

func TestAnEngineThatIgnoresSIGTERMIsKilled(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	b.Apply([]wire.Desired{testengine.Desired(unit, testengine.IgnoreTerm)})
	o := b.ready(t, unit)
	p := &process{pid: o.PID, exited: make(chan struct{})}
	p.signal(syscall.SIGTERM)
	if !alive(o.PID) {
		t.Fatal("the test engine does not ignore SIGTERM")
	}
	b.Apply(nil)
	until(t, "the engine to be gone", func() bool { return !alive(o.PID) })
}

func TestFaultedAfterQuickFailures(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	b.Apply([]wire.Desired{testengine.Desired(unit, testengine.ExitAtOnce)})
	until(t, "faulted", func() bool { return b.board.load(unit).State == wire.StateFaulted })
	o := b.observed(unit)
	if o.Restarts != faultedAfter || !strings.Contains(o.Message, "exited with status 3") || !strings.Contains(o.Message, "no weights here") {
		t.Errorf("%+v", o)
	}
	b.Apply([]wire.Desired{testengine.Desired(unit)}) // mended: tried at once, not in a minute
	b.ready(t, unit)
	if o := b.observed(unit); o.Message != "" {
		t.Errorf("a ready unit still complains: %q", o.Message)
	}
	bad := testengine.Desired(ids.New())
	bad.Engine = "no such engine"
	b.Apply([]wire.Desired{bad})
	until(t, "a message about the family", func() bool { return strings.Contains(b.observed(bad.Unit).Message, "no such engine") })
}

// A process that listens and does not work: stopped by a signal, as a hung one is.
func TestAHungEngineGetsNothingNewAndRecovers(t *testing.T) {
	t.Parallel()
	b, unit := newBench(t, t.TempDir()), ids.New()
	b.Apply([]wire.Desired{testengine.Desired(unit)})
	o := b.ready(t, unit)
	if err := syscall.Kill(o.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "the hang to be noticed", func() bool { return b.board.load(unit).State == wire.StateStarting })
	if err := syscall.Kill(o.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "ready again", func() bool { return b.board.load(unit).State == wire.StateReady })
	if after := b.observed(unit); after.PID != o.PID || after.Restarts != 0 {
		t.Errorf("a pause became a restart: %+v", after)
	}
}
