package facts

import (
	"context"
	"reflect"
	"time"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine/kvevent"
)

// Stream tells everything, then every change, until ctx ends or write fails. One stream at a time: a new one begins with
// the whole state again.
func (b *Board) Stream(ctx context.Context, write func(wire.Fact) error) error {
	b.restart()
	round := time.NewTicker(wire.LoadInterval)
	defer round.Stop()
	for say, n := everything, 0; ; {
		for _, f := range b.loads(say) {
			if err := write(f); err != nil {
				return err
			}
		}
		if err := b.caches(write); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-round.C:
			say = moved
			if n++; n%wire.LoadRepeat == 0 {
				say = everything
			}
		case <-b.wake:
			say = urgent
		}
	}
}

// restart forgets what an earlier reader was told.
func (b *Board) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, u := range b.units {
		if u.gone {
			delete(b.units, id)
			continue
		}
		u.said = ""
		if u.kv != nil {
			u.kv.reset = true
		}
	}
}

// Which loads are told.
type which uint8

const (
	urgent     which = iota // of units whose state the reader does not know
	moved                   // and those that are others than it was told
	everything              // all
)

func (b *Board) loads(w which) []wire.Fact {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []wire.Fact
	for id, u := range b.units {
		state := u.load.State + u.load.Engine.String()
		if w == everything || u.said != state || u.gone || w == moved && !same(u.load, u.told) {
			l := u.load
			out = append(out, wire.Fact{Load: &l})
			u.said, u.told = state, l
		}
		if u.gone {
			delete(b.units, id)
		}
	}
	return out
}

// same reports whether nothing but time went by between two loads.
func same(a, b wire.Load) bool {
	a.AtMS = b.AtMS
	return reflect.DeepEqual(a, b)
}

// caches tells what changed in every cache.
func (b *Board) caches(write func(wire.Fact) error) error {
	b.mu.Lock()
	var changed []ids.ID
	for id, u := range b.units {
		if u.kv != nil && (u.kv.reset || len(u.kv.pending) > 0) {
			changed = append(changed, id)
		}
	}
	b.mu.Unlock()
	for _, id := range changed {
		for _, kv := range b.take(id) {
			if err := write(wire.Fact{KV: &kv}); err != nil {
				return err
			}
		}
	}
	return nil
}

// take gives a cache's change, or its whole state, as messages of bounded size.
func (b *Board) take(id ids.ID) []wire.KV {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.units[id]
	if u == nil || u.kv == nil {
		return nil
	}
	c := u.kv
	var stored, removed []uint64
	if c.reset {
		stored = make([]uint64, 0, c.blocks)
		for rank, held := range c.ranks {
			for h := range held {
				stored = append(stored, kvevent.OfRank(h, rank))
			}
		}
	} else {
		for h, in := range c.pending {
			if in {
				stored = append(stored, h)
			} else {
				removed = append(removed, h)
			}
		}
	}
	reset := c.reset
	c.reset = false
	clear(c.pending)
	if !reset && len(stored)+len(removed) == 0 {
		return nil
	}
	kv := wire.KV{Unit: id, Engine: c.engine, Head: c.head, BlockSize: c.blockSize, Reset: reset, Stored: stored, Removed: removed}
	out := kv.Parts()
	for i := range out {
		c.seq++
		out[i].Seq = c.seq
	}
	return out
}
