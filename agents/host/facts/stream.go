package facts

import (
	"context"
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
	for all := true; ; {
		for _, f := range b.loads(all) {
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
			all = true
		case <-b.wake:
			all = false
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

// loads gives the loads of all units, or of those whose state the reader does not know.
func (b *Board) loads(all bool) []wire.Fact {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []wire.Fact
	for id, u := range b.units {
		state := u.load.State + u.load.Engine.String()
		if all || u.said != state || u.gone {
			l := u.load
			out = append(out, wire.Fact{Load: &l})
			u.said = state
		}
		if u.gone {
			delete(b.units, id)
		}
	}
	return out
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
