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
	told wire.Load
	gone bool   // to be forgotten once the reader has been told
	kv   *cache // nil while the engine tells nothing of its cache
}

// cache is the blocks of one engine process.
type cache struct {
	engine    ids.ID
	head      ids.ID // the unit that answers for this one; Nil = it does itself
	seq       int64
	blockSize int
	ranks     map[int]map[uint64]uint8 // tiers by block, by data-parallel rank
	blocks    int                      // of all ranks
	pending   map[uint64]bool          // true: stored, false: removed; by the hash at the rank (kvevent.OfRank)
	reset     bool                     // the reader needs the whole state
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

// Cache begins the block set of a new engine process: empty. head is the unit of a replica's first host, Nil where this is it.
func (b *Board) Cache(id, engine, head ids.ID) {
	b.mu.Lock()
	if u := b.units[id]; u != nil {
		u.kv = &cache{engine: engine, head: head, ranks: map[int]map[uint64]uint8{}, pending: map[uint64]bool{}, reset: true}
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
		c.clear(up.Rank)
	}
	held := c.ranks[up.Rank]
	if held == nil {
		held = map[uint64]uint8{}
		c.ranks[up.Rank] = held
	}
	for _, blk := range up.Blocks {
		bit := uint8(1) << blk.Tier
		switch blk.Op {
		case kvevent.Store:
			tiers, known := held[blk.Hash]
			if !known && c.blocks >= maxBlocks {
				continue
			}
			held[blk.Hash] = tiers | bit
			if !known {
				c.blocks++
				c.change(kvevent.OfRank(blk.Hash, up.Rank), true)
			}
		case kvevent.Remove:
			tiers, known := held[blk.Hash]
			if tiers &^= bit; tiers != 0 {
				held[blk.Hash] = tiers
			} else if known {
				delete(held, blk.Hash)
				c.blocks--
				c.change(kvevent.OfRank(blk.Hash, up.Rank), false)
			}
		case kvevent.Clear:
			c.clear(up.Rank)
		}
	}
}

// clear forgets what one rank held. Others' blocks stay.
func (c *cache) clear(rank int) {
	held := c.ranks[rank]
	c.blocks -= len(held)
	clear(held)
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
