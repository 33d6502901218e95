// Package facts is what the hub should know about this host now: each unit's load and the prefix blocks its engine holds.
// The supervisor writes it, the link reads it as a stream: the whole state first, then changes.
//
// It owns the block sets and the numbering of KV messages; it does not own where the facts come from or how they travel.
//
// Invariants: a reader that takes every message knows exactly what the board knows; a slow or absent reader costs bounded
// memory (its changes are replaced by a reset); a state change never waits for the next round.
package facts

import (
	"sync"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine/kvevent"
)

// Limits per unit.
const (
	maxBlocks  = 1 << 20  // blocks known of one engine: 16M tokens at 16 a block; further ones are not reported
	maxPending = 64 << 10 // changes waiting for the reader; above it the reader gets the whole state instead
)

// Board is safe for concurrent use.
type Board struct {
	mu    sync.Mutex
	units map[ids.ID]*unit
	wake  chan struct{} // capacity 1: something urgent is there
}

type unit struct {
	load wire.Load
	said string // the state the reader knows
	gone bool   // to be forgotten once the reader has been told
	kv   *cache // nil while the engine tells nothing of its cache
}

// cache is the blocks of one engine process.
type cache struct {
	engine    ids.ID
	seq       int64
	blockSize int
	held      map[uint64]uint8 // tiers by block
	pending   map[uint64]bool  // true: stored, false: removed
	reset     bool             // the reader needs the whole state
}

// NewBoard makes an empty board.
func NewBoard() *Board { return &Board{units: map[ids.ID]*unit{}, wake: make(chan struct{}, 1)} }

// Load sets a unit's load. Another state or engine than before is told at once, the rest with the next round.
func (b *Board) Load(l wire.Load) {
	b.mu.Lock()
	u := b.units[l.Unit]
	if u == nil {
		u = &unit{}
		b.units[l.Unit] = u
	}
	urgent := u.load.State != l.State || u.load.Engine != l.Engine
	u.load, u.gone = l, false
	b.mu.Unlock()
	if urgent {
		b.signal()
	}
}

// Remove forgets a unit. Its last state, which should be stopped, is told first.
func (b *Board) Remove(id ids.ID) {
	b.mu.Lock()
	if u := b.units[id]; u != nil {
		u.gone, u.kv = true, nil
	}
	b.mu.Unlock()
	b.signal()
}

// Cache begins the block set of a new engine process: empty.
func (b *Board) Cache(id, engine ids.ID) {
	b.mu.Lock()
	if u := b.units[id]; u != nil {
		u.kv = &cache{engine: engine, held: map[uint64]uint8{}, pending: map[uint64]bool{}, reset: true}
	}
	b.mu.Unlock()
	b.signal()
}

// Blocks applies what an engine said. Updates of an earlier process are dropped.
func (b *Board) Blocks(id, engine ids.ID, up kvevent.Update) {
	b.mu.Lock()
	if u := b.units[id]; u != nil && u.kv != nil && u.kv.engine == engine {
		u.kv.apply(up)
	}
	b.mu.Unlock()
	b.signal()
}

func (b *Board) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (c *cache) apply(up kvevent.Update) {
	if up.BlockSize > 0 && up.BlockSize != c.blockSize {
		c.blockSize, c.reset = up.BlockSize, true
	}
	if up.Reset {
		c.clear()
	}
	for _, blk := range up.Blocks {
		bit := uint8(1) << blk.Tier
		switch blk.Op {
		case kvevent.Store:
			tiers, known := c.held[blk.Hash]
			if !known && len(c.held) >= maxBlocks {
				continue
			}
			c.held[blk.Hash] = tiers | bit
			if !known {
				c.change(blk.Hash, true)
			}
		case kvevent.Remove:
			tiers, known := c.held[blk.Hash]
			if tiers &^= bit; tiers != 0 {
				c.held[blk.Hash] = tiers
			} else if known {
				delete(c.held, blk.Hash)
				c.change(blk.Hash, false)
			}
		case kvevent.Clear:
			c.clear()
		}
	}
}

func (c *cache) clear() {
	clear(c.held)
	clear(c.pending)
	c.reset = true
}

func (c *cache) change(hash uint64, stored bool) {
	if c.reset {
		return // the whole state will be told
	}
	c.pending[hash] = stored
	if len(c.pending) > maxPending {
		clear(c.pending)
		c.reset = true
	}
}
