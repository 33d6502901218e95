package host

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"millrace/agents/host/inventory"
	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/datafolder"
)

// looks is a source that gives what it is told to.
type looks struct {
	found inventory.Found
	err   error
}

func (l *looks) Look(context.Context, bool) (inventory.Found, error) { return l.found, l.err }

func openTestEye(t *testing.T, folder *datafolder.Folder, c clock.Clock, source inventory.Source) *eye {
	t.Helper()
	e, err := openEye(&Config{Clock: c, Log: slog.New(slog.DiscardHandler)}, folder)
	if err != nil {
		t.Fatal(err)
	}
	e.source = source
	return e
}

// After a restart on a machine whose tools hang, the GPUs from before are still told, and none of them is lost.
func TestToolsThatFailMakeNothingDisappear(t *testing.T) {
	folder, err := datafolder.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	c := clock.NewManual(time.Unix(1_800_000_000, 0))
	l := &looks{found: inventory.Found{Inventory: wire.Inventory{GPUs: []wire.GPU{{Index: 0, UUID: "a"}, {Index: 1, UUID: "b"}}}}}
	openTestEye(t, folder, c, l).look(t.Context(), true)
	l.found, l.err = inventory.Found{}, errors.New("nvidia-smi: it hangs")
	e := openTestEye(t, folder, c, l)
	for range 3 {
		e.look(t.Context(), true)
		c.Advance(time.Minute)
	}
	var o wire.Observed
	e.tell(&o)
	if len(o.GPUs) != 2 || o.GPUs[1].Fault != "" || len(o.Problems) != 1 || o.Problems[0].Subject != "host" || !strings.Contains(o.Problems[0].Message, "it hangs") {
		t.Errorf("%+v, %+v", o.GPUs, o.Problems)
	}
	if n, err := e.device(1); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	l.err = nil // the tools answer: there are none any more
	e.look(t.Context(), true)
	c.Advance(time.Minute)
	e.look(t.Context(), true)
	if e.tell(&o); len(o.GPUs) != 2 || o.GPUs[1].Fault == "" {
		t.Errorf("lost GPUs: %+v", o.GPUs)
	}
	if _, err := e.device(1); err == nil {
		t.Error("an engine is started on a GPU that is lost")
	}
}

// A skew counts when two exchanges in a row agree: one answer that was long on its way says nothing.
func TestOneSlowAnswerIsNoSkew(t *testing.T) {
	e := &eye{}
	for _, c := range []struct{ by, want time.Duration }{
		{9 * time.Second, 0}, {20 * time.Millisecond, 20 * time.Millisecond}, {8 * time.Second, 20 * time.Millisecond}, {7 * time.Second, 7 * time.Second},
		{-time.Second, -time.Second},
	} {
		if e.skewed(c.by); e.skew() != c.want {
			t.Errorf("after %s: %s, want %s", c.by, e.skew(), c.want)
		}
	}
}
