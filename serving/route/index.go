package route

import (
	"sync"

	"millrace/agents/wire"
	"millrace/internal/ids"
)

// Limits of the index.
const (
	maxSlots      = 64        // units in the index at a time; a further one routes without prefix knowledge
	maxBlocksUnit = 4 << 20   // blocks of one unit: 64M tokens at 16 a block
	maxLearned    = 256 << 10 // approximate blocks remembered, oldest forgotten first
)

// indexes maps a block to the units that hold it, as a bit per unit. exact is fed by engines' KV events; learned only by
// this gateway's own routing of prompts whose tokens nobody tells.
type indexes struct {
	mu      sync.RWMutex
	slot    map[ids.ID]int
	used    uint64
	held    [maxSlots]holding
	shards  map[ids.ID]uint64 // of a unit over several hosts: the slots of what its other hosts tell of their ranks
	exact   map[uint64]uint64
	learned map[uint64]uint64
	order   []uint64 // ring of learned blocks
	next    int
}

// holding is what the index follows of one unit's event stream.
type holding struct {
	engine ids.ID
	seq    int64
	synced bool // every event since the last reset was seen
	blocks int
}

func newIndexes() *indexes {
	return &indexes{slot: map[ids.ID]int{}, shards: map[ids.ID]uint64{}, exact: map[uint64]uint64{}, learned: map[uint64]uint64{},
		order: make([]uint64, 0, 1024)}
}

// match gives, per candidate, how many prompt tokens it holds from the start.
func (x *indexes) match(req *Request) []int64 {
	hits := make([]int64, len(req.Candidates))
	if len(req.Hashes) == 0 || req.BlockSize <= 0 {
		return hits
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	bits := make([]uint64, len(req.Candidates))
	var alive uint64
	for i := range req.Candidates {
		if s, ok := x.slot[req.Candidates[i].Unit]; ok {
			bits[i] = 1 << s
			alive |= bits[i]
		}
	}
	table := x.exact
	if req.Approximate {
		table = x.learned
	}
	for n, h := range req.Hashes {
		still := alive & table[h]
		for i, b := range bits {
			if b&alive != 0 && b&still == 0 {
				hits[i] = int64(n) * int64(req.BlockSize)
			}
		}
		if alive = still; alive == 0 {
			return hits
		}
	}
	for i, b := range bits {
		if b&alive != 0 {
			hits[i] = int64(len(req.Hashes)) * int64(req.BlockSize)
		}
	}
	return hits
}

// apply takes one KV message; false means that events were missed and a full state is needed.
func (x *indexes) apply(kv *wire.KV) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.slotOf(kv.Unit)
	if !ok {
		return true // no room: this unit routes without prefix knowledge, a snapshot would not help
	}
	if kv.Head != ids.Nil {
		x.shards[kv.Head] |= 1 << s
	}
	h := &x.held[s]
	switch {
	case kv.Reset:
		x.clear(s)
		*h = holding{engine: kv.Engine, seq: kv.Seq, synced: true}
	case !h.synced || h.engine != kv.Engine:
		return false
	case kv.Seq <= h.seq:
		return true // already applied
	case kv.Seq != h.seq+1:
		x.clear(s)
		*h = holding{engine: kv.Engine}
		return false
	default:
		h.seq = kv.Seq
	}
	bit := uint64(1) << s
	for _, b := range kv.Removed {
		if m := x.exact[b]; m&bit != 0 {
			h.blocks--
			set(x.exact, b, m&^bit)
		}
	}
	for _, b := range kv.Stored {
		if m := x.exact[b]; m&bit == 0 && h.blocks < maxBlocksUnit {
			h.blocks++
			x.exact[b] = m | bit
		}
	}
	return true
}

// learn remembers where a prompt of unknown tokens went.
func (x *indexes) learn(_ ids.ID, unit ids.ID, hashes []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.slotOf(unit)
	if !ok {
		return
	}
	for _, h := range hashes {
		m, known := x.learned[h]
		x.learned[h] = m | 1<<s
		if known {
			continue
		}
		if len(x.order) < maxLearned {
			x.order = append(x.order, h)
			continue
		}
		delete(x.learned, x.order[x.next])
		x.order[x.next] = h
		x.next = (x.next + 1) % maxLearned
	}
}

// forget drops everything a unit held: its engine restarted or it is gone. What the engine process named except
// published is kept: its events may arrive before the report that tells of the restart.
func (x *indexes) forget(unit, except ids.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.slot[unit]
	if !ok || except != ids.Nil && x.held[s].engine == except {
		return
	}
	x.clear(s)
	for h, m := range x.learned {
		if m&(1<<s) != 0 {
			x.learned[h] = m &^ (1 << s)
		}
	}
	x.held[s] = holding{}
	x.used &^= 1 << s
	delete(x.slot, unit)
	for head, shards := range x.shards {
		if shards &^= 1 << s; shards == 0 {
			delete(x.shards, head)
		} else {
			x.shards[head] = shards
		}
	}
}

func (x *indexes) slotOf(unit ids.ID) (int, bool) {
	if s, ok := x.slot[unit]; ok {
		return s, true
	}
	for s := range maxSlots {
		if x.used&(1<<s) == 0 {
			x.used |= 1 << s
			x.slot[unit] = s
			return s, true
		}
	}
	return 0, false
}

func (x *indexes) clear(s int) {
	if x.held[s].blocks == 0 {
		return
	}
	bit := uint64(1) << s
	for h, m := range x.exact {
		if m&bit != 0 {
			set(x.exact, h, m&^bit)
		}
	}
	x.held[s].blocks = 0
}

func set(table map[uint64]uint64, h, mask uint64) {
	if mask == 0 {
		delete(table, h)
		return
	}
	table[h] = mask
}
