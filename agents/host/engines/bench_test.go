package engines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/ids"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
)

// board records what would be told to the hub.
type board struct {
	mu     sync.Mutex
	loads  map[ids.ID]wire.Load
	states []string
	blocks map[uint64]bool
	engine ids.ID // whose cache it is
	head   ids.ID
	at     time.Time
}

func newBoard() *board { return &board{loads: map[ids.ID]wire.Load{}, blocks: map[uint64]bool{}} }

func (b *board) Load(l wire.Load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.loads[l.Unit].State != l.State {
		b.states, b.at = append(b.states, l.State), time.Now()
	}
	b.loads[l.Unit] = l
}

func (b *board) Remove(unit ids.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.loads, unit)
}

func (b *board) Cache(_, engine, head ids.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.engine, b.head, b.blocks = engine, head, map[uint64]bool{}
}

func (b *board) Blocks(_, engine ids.ID, up kvevent.Update) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, blk := range up.Blocks {
		if engine == b.engine && blk.Op == kvevent.Store {
			b.blocks[kvevent.OfRank(blk.Hash, up.Rank)] = true
		}
	}
}

func (b *board) load(unit ids.ID) wire.Load {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.loads[unit]
}

func (b *board) holds(block uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.blocks[block]
}

type bench struct {
	*Supervisor
	board *board
	dir   string
}

func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	b := &bench{board: newBoard(), dir: dir}
	var err error
	b.Supervisor, err = New(Config{Dir: dir, Drain: patience, Clock: clock.System, Board: b.board, DieWithAgent: true,
		Log:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		Client: func(ids.ID, engine.Driver) *http.Client { return http.DefaultClient }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Stop(context.Background()) })
	return b
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// ready waits for the unit and gives what is observed of it.
func (b *bench) ready(t *testing.T, unit ids.ID) wire.UnitObserved {
	t.Helper()
	until(t, "a ready engine", func() bool { return b.board.load(unit).State == wire.StateReady })
	return b.observed(unit)
}

func (b *bench) observed(unit ids.ID) wire.UnitObserved {
	for _, o := range b.Observed() {
		if o.Unit == unit {
			return o
		}
	}
	return wire.UnitObserved{}
}

// ask streams n tokens from the engine as the relay would.
func (b *bench) ask(t *testing.T, unit ids.ID, n int) error {
	t.Helper()
	p, refused := b.Enter(unit)
	if refused != "" {
		return errors.New(refused)
	}
	resp, err := http.Post("http://"+p.Address()+engine.ChatPath, "application/json", strings.NewReader(fmt.Sprintf(`{"stream":true,"max_tokens":%d}`, n)))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	p.Leave(err != nil)
	return err
}

func alive(pid int) bool { return startTime(pid) != "" }
