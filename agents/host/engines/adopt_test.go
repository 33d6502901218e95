package engines

import (
	"context"
	"log/slog"
	"net/http"
	"syscall"
	"testing"

	"millrace/agents/internal/testengine"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
)

// newKeeper is a bench whose engines outlive its agent, but not the test.
func newKeeper(t *testing.T, dir string) *bench {
	t.Helper()
	b := openKeeper(t, dir)
	t.Cleanup(func() {
		b.Apply(nil)
		until(t, "the engines to be gone", func() bool { return len(b.Observed()) == 0 })
		b.Stop(context.Background())
	})
	return b
}

func openKeeper(t *testing.T, dir string) *bench {
	t.Helper()
	b := &bench{board: newBoard(), dir: dir}
	var err error
	b.Supervisor, err = New(Config{Dir: dir, Drain: patience, Clock: clock.System, Board: b.board, Keep: true, Log: slog.New(slog.DiscardHandler),
		Client: func(ids.ID, engine.Driver) *http.Client { return http.DefaultClient }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// killedAgent leaves an engine behind.
func killedAgent(t *testing.T, dir string, unit ids.ID) (enginePID int) {
	t.Helper()
	cmd, pid := startAgent(t, dir, "ENGINES_TEST_KEEP="+unit.String())
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !alive(pid) {
		t.Fatal("the engine did not outlive its agent")
	}
	return pid
}

func TestAnEngineOutlivesAKilledAgent(t *testing.T) {
	t.Parallel()
	dir, unit := t.TempDir(), ids.New()
	pid := killedAgent(t, dir, unit)
	child := childOf(t, pid)
	left, err := readRecord(dir + "/" + unit.String())
	if err != nil || left.PID != pid {
		t.Fatalf("%+v, %v", left, err)
	}
	b := newKeeper(t, dir)
	d := testengine.Desired(unit, testengine.WithChild)
	d.Generation = 9 // said again: nothing about the engine has changed
	b.Apply([]wire.Desired{d})
	b.Settle(t.Context())
	if l := b.board.load(unit); l.State != wire.StateReady || l.Engine != left.Engine {
		t.Fatalf("after settling: %+v, want engine %s", l, left.Engine)
	}
	if o := b.observed(unit); o.PID != pid || o.Restarts != 0 || o.Generation != 9 || o.StartedMS != left.StartedMS {
		t.Errorf("%+v, want process %d", o, pid)
	}
	if err := b.ask(t, unit, 3); err != nil {
		t.Fatal(err)
	}
	until(t, "the blocks of the adopted engine", func() bool { return b.board.holds(testengine.Block(1)) })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // its death is noticed as any other's
		t.Fatal(err)
	}
	until(t, "another engine", func() bool { l := b.board.load(unit); return l.State == wire.StateReady && l.Engine != left.Engine })
	if o := b.observed(unit); o.PID == pid || o.Restarts != 1 {
		t.Errorf("%+v", o)
	}
	until(t, "the dead engine's child to be gone", func() bool { return !alive(child) })
}

func TestAnAdoptedEngineThatIsNotDesiredIsStopped(t *testing.T) {
	t.Parallel()
	for name, desired := range map[string]func(unit ids.ID) []wire.Desired{
		"gone": func(ids.ID) []wire.Desired { return nil },
		"stopped": func(unit ids.ID) []wire.Desired {
			d := testengine.Desired(unit, testengine.WithChild)
			d.Wanted = stopped
			return []wire.Desired{d}
		},
		"another": func(unit ids.ID) []wire.Desired { return []wire.Desired{testengine.Desired(unit)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, unit := t.TempDir(), ids.New()
			pid := killedAgent(t, dir, unit)
			b := newKeeper(t, dir)
			b.Apply(desired(unit))
			until(t, "the old engine to be gone", func() bool { return !alive(pid) })
			if name == "another" {
				if o := b.ready(t, unit); o.PID == pid || o.PID == 0 {
					t.Errorf("%+v", o)
				}
			}
		})
	}
}

// An agent that is told to stop lets its attempts end and leaves its engines; the next one, here in the same process as after
// an update, goes on with them.
func TestAnAgentThatStopsKeepsItsEngines(t *testing.T) {
	t.Parallel()
	dir, unit := t.TempDir(), ids.New()
	d := []wire.Desired{testengine.Desired(unit)}
	first := openKeeper(t, dir)
	first.Apply(d)
	pid := first.ready(t, unit).PID
	first.Stop(t.Context())
	if _, refused := first.Enter(unit); refused != wire.RefusedDraining {
		t.Errorf("refused with %q", refused)
	}
	if !alive(pid) {
		t.Fatal("the engine was stopped")
	}
	b := newKeeper(t, dir)
	b.Apply(d)
	b.Settle(t.Context())
	if o := b.observed(unit); o.PID != pid || o.State != wire.StateReady {
		t.Errorf("%+v, want process %d", o, pid)
	}
	b.Apply(nil)
	until(t, "the engine to be gone", func() bool { return !alive(pid) })
}
