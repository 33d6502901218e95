package sim

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"millrace/serving/engine/kvevent"
)

// cache is the paged KV cache: a fixed number of blocks, each held by sequences, or free and still holding a prefix until
// it is needed. Blocks of one prefix are found by a chain of hashes whose root is the engine's seed and the cache salt,
// so two salts never share. It is not safe for concurrent use: the scheduler's lock covers it.
type cache struct {
	blockSize int
	seed      uint64
	blocks    []block
	byHash    map[uint64]int32
	oldest    int32 // free blocks in the order of reuse; none = -1
	newest    int32
	free      int
	events    []kvevent.Event // since the last drain; nil unless recording
	recording bool
}

type block struct {
	hash       uint64 // 0: holds nothing that can be found
	holders    int32
	prev, next int32 // among free blocks
}

const none = -1

func newCache(blocks, blockSize int, seed uint64, recording bool) *cache {
	c := &cache{blockSize: blockSize, seed: seed, blocks: make([]block, blocks), byHash: make(map[uint64]int32, blocks), recording: recording,
		oldest: none, newest: none}
	for i := range c.blocks {
		c.putNewest(int32(i))
	}
	return c
}

// root starts the hash chain of a salt.
func (c *cache) root(salt string) uint64 {
	return nonzero(xxhash.Sum64String(salt) ^ c.seed)
}

func (c *cache) next(parent uint64, tokens []uint32) uint64 {
	var space [8 + 4*64]byte
	b := binary.LittleEndian.AppendUint64(space[:0], parent^c.seed)
	for _, id := range tokens {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return nonzero(xxhash.Sum64(b))
}

func nonzero(h uint64) uint64 {
	if h == 0 {
		return 1
	}
	return h
}

// usage is the share of blocks that sequences hold.
func (c *cache) usage() float64 { return 1 - float64(c.free)/float64(len(c.blocks)) }

// match takes hold of the blocks of the longest cached prefix of ids, at most limit tokens of it, and appends them to
// held and their hashes to hashes.
func (c *cache) match(root uint64, ids []uint32, limit int, held []int32, hashes []uint64) ([]int32, []uint64) {
	parent := root
	for n := c.blockSize; n <= min(limit, len(ids)); n += c.blockSize {
		h := c.next(parent, ids[n-c.blockSize:n])
		i, ok := c.byHash[h]
		if !ok {
			break
		}
		c.hold(i)
		held, hashes, parent = append(held, i), append(hashes, h), h
	}
	return held, hashes
}

func (c *cache) hold(i int32) {
	if c.blocks[i].holders == 0 {
		c.unlink(i)
	}
	c.blocks[i].holders++
}

// grow takes n blocks for new tokens, evicting the longest unused prefixes; false when there are not enough.
func (c *cache) grow(held []int32, n int) ([]int32, bool) {
	if n > c.free {
		return held, false
	}
	for range n {
		i := c.oldest
		c.unlink(i)
		b := &c.blocks[i]
		if b.hash != 0 {
			delete(c.byHash, b.hash)
			c.recordRemoved(b.hash)
			b.hash = 0
		}
		b.holders = 1
		held = append(held, i)
	}
	return held, true
}

// commit makes the blocks that a sequence has filled since the last commit findable. hashes has one entry per block
// committed so far; it returns it extended to all whole blocks within computed tokens.
func (c *cache) commit(root uint64, salt string, ids []uint32, computed int, held []int32, hashes []uint64) []uint64 {
	parent := root
	if n := len(hashes); n > 0 {
		parent = hashes[n-1]
	}
	run := none // the event that the next block extends
	for n := len(hashes); (n+1)*c.blockSize <= computed; n++ {
		tokens := ids[n*c.blockSize : (n+1)*c.blockSize]
		h := c.next(parent, tokens)
		if _, twin := c.byHash[h]; twin { // another sequence computed the same meanwhile: this copy is not findable
			run = none
		} else {
			c.byHash[h] = held[n]
			c.blocks[held[n]].hash = h
			if run == none {
				run = c.startStored(parent, n == 0, salt)
			}
			c.extendStored(run, h, tokens)
		}
		hashes, parent = append(hashes, h), h
	}
	return hashes
}

// startStored records a stored event without blocks and returns its place.
func (c *cache) startStored(parent uint64, first bool, salt string) int {
	e := kvevent.Event{Kind: kvevent.Stored, BlockSize: c.blockSize, Medium: "GPU", Group: 0, Spec: "full_attention"}
	switch {
	case !first:
		e.Parent = &kvevent.Hash{Int: parent}
	case salt != "":
		e.Extra = [][]kvevent.Key{{{Text: salt}}}
	}
	c.record(e)
	return len(c.events) - 1
}

func (c *cache) extendStored(run int, h uint64, tokens []uint32) {
	if !c.recording {
		return
	}
	e := &c.events[run]
	if e.Hashes = append(e.Hashes, kvevent.Hash{Int: h}); len(e.Extra) < len(e.Hashes) {
		e.Extra = append(e.Extra, nil)
	}
	e.Tokens = append(e.Tokens, tokens...)
}

// release lets go of a sequence's blocks. The last ones are reused first, so that shared beginnings live longest.
func (c *cache) release(held []int32) {
	for n := len(held) - 1; n >= 0; n-- {
		i := held[n]
		b := &c.blocks[i]
		if b.holders--; b.holders > 0 {
			continue
		}
		if b.hash == 0 {
			c.putOldest(i)
		} else {
			c.putNewest(i)
		}
	}
}

// clear forgets all prefixes that no sequence holds, and makes held ones unfindable.
func (c *cache) clear() {
	for i := range c.blocks {
		c.blocks[i].hash = 0
	}
	clear(c.byHash)
	c.record(kvevent.Event{Kind: kvevent.Cleared, Group: -1})
}

func (c *cache) record(e kvevent.Event) {
	if c.recording {
		c.events = append(c.events, e)
	}
}

// recordRemoved adds to the last event when that is a removal too.
func (c *cache) recordRemoved(h uint64) {
	if n := len(c.events); n > 0 && c.events[n-1].Kind == kvevent.Removed {
		c.events[n-1].Hashes = append(c.events[n-1].Hashes, kvevent.Hash{Int: h})
		return
	}
	c.record(kvevent.Event{Kind: kvevent.Removed, Hashes: []kvevent.Hash{{Int: h}}, Medium: "GPU", Group: 0})
}

// drain hands over the recorded events.
func (c *cache) drain() []kvevent.Event {
	e := c.events
	c.events = nil
	return e
}

func (c *cache) putNewest(i int32) {
	c.blocks[i].prev, c.blocks[i].next = c.newest, none
	if c.newest == none {
		c.oldest = i
	} else {
		c.blocks[c.newest].next = i
	}
	c.newest = i
	c.free++
}

func (c *cache) putOldest(i int32) {
	c.blocks[i].prev, c.blocks[i].next = none, c.oldest
	if c.oldest == none {
		c.newest = i
	} else {
		c.blocks[c.oldest].prev = i
	}
	c.oldest = i
	c.free++
}

func (c *cache) unlink(i int32) {
	b := &c.blocks[i]
	if b.prev == none {
		c.oldest = b.next
	} else {
		c.blocks[b.prev].next = b.next
	}
	if b.next == none {
		c.newest = b.prev
	} else {
		c.blocks[b.next].prev = b.prev
	}
	c.free--
}
