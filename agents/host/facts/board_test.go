package facts

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine/kvevent"
	"pgregory.net/rapid"
)

// reader is a router's view: it must equal the engine's state whenever the stream is idle.
type reader struct {
	states map[ids.ID]string
	held   map[uint64]bool
	seq    int64
	broken string
	resets int
}

func (r *reader) take(f wire.Fact) error {
	if text, err := json.Marshal(f); err != nil || len(text) > wire.MaxFactBytes {
		return errors.New("a fact is too large")
	}
	if f.Load != nil {
		r.states[f.Load.Unit] = f.Load.State
	}
	if kv := f.KV; kv != nil {
		switch {
		case kv.Reset:
			r.held = map[uint64]bool{}
			r.resets++
		case kv.Seq != r.seq+1:
			r.broken = "a gap without a reset"
		}
		r.seq = kv.Seq
		for _, h := range kv.Removed {
			delete(r.held, h)
		}
		for _, h := range kv.Stored {
			r.held[h] = true
		}
	}
	return nil
}

func newReader() *reader { return &reader{states: map[ids.ID]string{}, held: map[uint64]bool{}} }

// Whatever the engine does and whenever the reader breaks off and comes back, the reader ends up knowing the engine's
// blocks, tiers folded together and ranks apart.
func TestTheReaderKnowsWhatTheEngineHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, unit, engine := NewBoard(), ids.New(), ids.New()
		b.Load(wire.Load{Unit: unit, Engine: engine, State: wire.StateReady})
		b.Cache(unit, engine, ids.Nil)
		models := [3]map[uint64]map[kvevent.Tier]bool{{}, {}, {}} // of three ranks
		r := newReader()
		b.restart()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // the reader breaks off
				r = newReader()
				b.restart()
			case 1, 2, 3:
				if err := b.caches(r.take); err != nil {
					t.Fatal(err)
				}
			default:
				rank := rapid.IntRange(0, len(models)-1).Draw(t, "rank")
				up := draw(t, models[rank])
				up.Rank = rank
				b.Blocks(unit, engine, up)
			}
		}
		b.Blocks(unit, ids.New(), kvevent.Update{Blocks: []kvevent.Block{{Op: kvevent.Clear}}}) // an engine that is gone
		if err := b.caches(r.take); err != nil {
			t.Fatal(err)
		}
		want := map[uint64]bool{}
		for rank, model := range models {
			for h, tiers := range model {
				if len(tiers) > 0 {
					want[kvevent.OfRank(h, rank)] = true
				}
			}
		}
		if !maps.Equal(want, r.held) || r.broken != "" {
			t.Fatalf("the reader knows %v, the engine holds %v; %s", r.held, want, r.broken)
		}
	})
}

// draw makes an update and applies it to the model.
func draw(t *rapid.T, model map[uint64]map[kvevent.Tier]bool) kvevent.Update {
	up := kvevent.Update{BlockSize: 16, Reset: rapid.IntRange(0, 12).Draw(t, "reset") == 0}
	if up.Reset {
		clear(model)
	}
	for range rapid.IntRange(0, 6).Draw(t, "blocks") {
		blk := kvevent.Block{Op: kvevent.Op(rapid.IntRange(1, 3).Draw(t, "op")), Hash: rapid.Uint64Range(1, 9).Draw(t, "hash"),
			Tier: kvevent.Tier(rapid.IntRange(0, 2).Draw(t, "tier"))}
		up.Blocks = append(up.Blocks, blk)
		switch blk.Op {
		case kvevent.Store:
			if model[blk.Hash] == nil {
				model[blk.Hash] = map[kvevent.Tier]bool{}
			}
			model[blk.Hash][blk.Tier] = true
		case kvevent.Remove:
			delete(model[blk.Hash], blk.Tier)
		case kvevent.Clear:
			clear(model)
		}
	}
	return up
}

func TestALargeStateComesInPartsAndABacklogAsAReset(t *testing.T) {
	b, unit, engine := NewBoard(), ids.New(), ids.New()
	b.Load(wire.Load{Unit: unit, Engine: engine, State: wire.StateReady})
	b.Cache(unit, engine, ids.Nil)
	store := func(from, to uint64) {
		up := kvevent.Update{BlockSize: 16}
		for h := from; h < to; h++ {
			up.Blocks = append(up.Blocks, kvevent.Block{Op: kvevent.Store, Hash: h + 1<<60})
		}
		b.Blocks(unit, engine, up)
	}
	r := newReader()
	store(0, 3*wire.MaxKVHashes)
	if err := b.caches(r.take); err != nil || len(r.held) != 3*wire.MaxKVHashes || r.resets != 1 {
		t.Fatalf("%d blocks, %d resets, %v", len(r.held), r.resets, err)
	}
	store(1<<40, 1<<40+maxPending+1) // nobody reads meanwhile
	if n := len(b.units[unit].kv.pending); n > maxPending {
		t.Errorf("%d changes wait", n)
	}
	if err := b.caches(r.take); err != nil || len(r.held) != 3*wire.MaxKVHashes+maxPending+1 || r.resets != 2 {
		t.Fatalf("%d blocks, %d resets, %v", len(r.held), r.resets, err)
	}
	store(1<<41, 1<<41+2*maxBlocks)
	if n := len(b.units[unit].kv.ranks[0]); n != maxBlocks {
		t.Errorf("%d blocks are known, the bound is %d", n, maxBlocks)
	}
}

func TestStateChangesDoNotWaitForTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, unit, engine := NewBoard(), ids.New(), ids.New()
		var mu sync.Mutex
		var at []time.Time
		r := newReader()
		told := func(state string) (n int, last time.Time, known bool) {
			mu.Lock()
			defer mu.Unlock()
			return len(at), at[len(at)-1], r.states[unit] == state
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- b.Stream(ctx, func(f wire.Fact) error {
				mu.Lock()
				defer mu.Unlock()
				if f.Load != nil {
					at = append(at, time.Now())
				}
				return r.take(f)
			})
		}()
		synctest.Wait()
		for _, s := range []string{wire.StateStarting, wire.StateReady, wire.StateStarting} {
			began := time.Now()
			b.Load(wire.Load{Unit: unit, Engine: engine, State: s})
			synctest.Wait()
			if _, last, known := told(s); !known || !last.Equal(began) {
				t.Errorf("%s was told after %v", s, last.Sub(began))
			}
			time.Sleep(10 * time.Millisecond)
		}
		n, _, _ := told("")
		b.Load(wire.Load{Unit: unit, Engine: engine, State: wire.StateStarting, Running: 3}) // no change of state: next round
		synctest.Wait()
		if now, _, _ := told(""); now != n {
			t.Error("a load without a change of state was told at once")
		}
		time.Sleep(2 * wire.LoadInterval)
		synctest.Wait()
		if now, _, _ := told(""); now <= n {
			t.Error("a load was not told with the next round")
		}
		b.Load(wire.Load{Unit: unit, Engine: engine, State: wire.StateStopped})
		b.Remove(unit)
		synctest.Wait()
		_, _, known := told(wire.StateStopped)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if !known || len(b.units) != 0 {
			t.Errorf("after removal: told %v, %d units left", known, len(b.units))
		}
	})
}

func TestAReaderThatFailsEndsTheStream(t *testing.T) {
	b := NewBoard()
	b.Load(wire.Load{Unit: ids.New(), State: wire.StateReady})
	broken := errors.New("broken")
	if err := b.Stream(t.Context(), func(wire.Fact) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestPartsKeepEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kv := wire.KV{Reset: rapid.Bool().Draw(t, "reset")}
		for i := range rapid.IntRange(0, 3*wire.MaxKVHashes).Draw(t, "stored") {
			kv.Stored = append(kv.Stored, uint64(i))
		}
		for i := range rapid.IntRange(0, 3*wire.MaxKVHashes).Draw(t, "removed") {
			kv.Removed = append(kv.Removed, uint64(i))
		}
		var stored, removed []uint64
		for i, p := range kv.Parts() {
			if len(p.Stored)+len(p.Removed) > wire.MaxKVHashes || p.Reset != (kv.Reset && i == 0) {
				t.Fatalf("part %d: %d stored, %d removed, reset %v", i, len(p.Stored), len(p.Removed), p.Reset)
			}
			stored, removed = append(stored, p.Stored...), append(removed, p.Removed...)
		}
		if !slices.Equal(stored, kv.Stored) || !slices.Equal(removed, kv.Removed) {
			t.Fatal("hashes were lost")
		}
	})
}

// A load that moves is told with the next look; one that does not, once in LoadRepeat looks.
func TestALoadAtRestIsSeldomTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const looks = 10 * wire.LoadRepeat
		for running, want := range map[int]int{0: 1 + looks/wire.LoadRepeat, 1: 1 + looks} {
			b, unit, engine := NewBoard(), ids.New(), ids.New()
			told := 0
			ctx, stop := context.WithCancel(t.Context())
			load := wire.Load{Unit: unit, Engine: engine, State: wire.StateReady, Ranks: []wire.RankLoad{{Running: 1}, {Rank: 1}}}
			b.Load(load)
			<-b.wake // the beginning of the stream tells it
			done := make(chan error, 1)
			go func() { done <- b.Stream(ctx, func(wire.Fact) error { told++; return nil }) }()
			time.Sleep(wire.LoadInterval / 2)
			for range looks {
				load.AtMS, load.Ranks = load.AtMS+1, []wire.RankLoad{{Running: load.Ranks[0].Running + running}, {Rank: 1}}
				b.Load(load)
				time.Sleep(wire.LoadInterval)
			}
			synctest.Wait()
			stop()
			<-done
			if told != want {
				t.Errorf("a load that moves by %d was told %d times, want %d", running, told, want)
			}
		}
	})
}
