package kvevent

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Op is what happened to a block.
type Op uint8

// The operations. Clear says that no block of the engine is left, in any tier.
const (
	Store Op = iota + 1
	Remove
	Clear
)

// Tier is where a copy of a block lies.
type Tier uint8

// The tiers, fastest first.
const (
	GPU Tier = iota
	CPU
	Storage
)

// Block is one change, in our own hashes. A block may lie in several tiers: each is stored and removed by itself.
type Block struct {
	Op     Op
	Tier   Tier
	Hash   uint64
	Parent uint64 // of a Store: the hash before it, Root at the chain's start
}

// Limits of what a Mapper remembers.
const (
	maxKnown   = 4 << 20 // blocks of one engine: 64M tokens at 16 a block
	maxOrphans = 4096    // events that wait for their parent
)

// Mapper translates one engine's events to our hashes. It learns which of its hashes stand for which of ours from stored
// events, so no hash seed has to agree. It is not safe for concurrent use. The zero value is ready.
type Mapper struct {
	known   map[uint64]knownBlock // by the engine's hash
	orphans map[uint64][]Event    // by the unknown parent's hash
	waiting int                   // events in orphans
	group   int                   // 1 + the group that is followed; 0 = none seen
}

type knownBlock struct {
	ours   uint64
	parent uint64
	tiers  uint8 // bit per Tier
}

// Reset forgets everything.
func (m *Mapper) Reset() { *m = Mapper{} }

// Apply appends what an event changes. Events about unknown blocks change nothing: a remove is idempotent, a store whose
// parent is unknown waits for the parent.
func (m *Mapper) Apply(dst []Block, e *Event) []Block {
	switch e.Kind {
	case Cleared:
		m.Reset()
		return append(dst, Block{Op: Clear})
	case Removed:
		if m.follows(e) {
			dst = m.remove(dst, e)
		}
	case Stored:
		if m.follows(e) {
			if len(m.known) >= maxKnown { // an engine that never removes: start anew rather than grow
				m.Reset()
				dst = append(dst, Block{Op: Clear})
			}
			dst = m.store(dst, e)
		}
	}
	return dst
}

// follows tells whether an event is of the cache group that decides prefix hits. Hybrid models have several groups;
// sliding windows and states keep no whole prefix, and of groups with full attention the first seen stands for all.
func (m *Mapper) follows(e *Event) bool {
	if e.Group < 0 {
		return true
	}
	if e.Kind == Removed {
		return m.group == 0 || m.group == e.Group+1
	}
	for _, partial := range []string{"sliding", "mamba", "chunked", "linear", "cross"} {
		if strings.Contains(e.Spec, partial) {
			return false
		}
	}
	if m.group == 0 {
		m.group = e.Group + 1
	}
	return m.group == e.Group+1
}

func tierOf(medium string) Tier {
	switch strings.ToUpper(medium) {
	case "", "GPU", "DEVICE":
		return GPU
	case "CPU", "HOST", "CPU_PINNED":
		return CPU
	}
	return Storage
}

func (m *Mapper) remove(dst []Block, e *Event) []Block {
	tier := tierOf(e.Medium)
	for _, h := range e.Hashes {
		b, ok := m.known[h.key()]
		if !ok && m.waiting > 0 {
			m.forget(h)
		}
		if !ok || b.tiers&(1<<tier) == 0 {
			continue
		}
		dst = append(dst, Block{Op: Remove, Tier: tier, Hash: b.ours})
		if b.tiers &^= 1 << tier; b.tiers == 0 {
			delete(m.known, h.key())
		} else {
			m.known[h.key()] = b
		}
	}
	return dst
}

func (m *Mapper) store(dst []Block, e *Event) []Block {
	if e.BlockSize <= 0 || len(e.Tokens) != len(e.Hashes)*e.BlockSize {
		return m.copied(dst, e)
	}
	parent := Root(e.Salt(), e.LoRA)
	if e.Parent != nil {
		b, ok := m.known[e.Parent.key()]
		if !ok {
			m.wait(e)
			return dst
		}
		parent = b.ours
	}
	return m.chain(dst, e, parent)
}

// chain adds an event's blocks after a known parent, then the events that waited for one of them. It works on a list
// instead of calling itself: a chain of waiting events may be long.
func (m *Mapper) chain(dst []Block, e *Event, parent uint64) []Block {
	type step struct {
		e      Event
		parent uint64
	}
	for todo := []step{{*e, parent}}; len(todo) > 0; {
		s := todo[0]
		todo = todo[1:]
		for i, h := range s.e.Hashes {
			ours := Next(s.parent, s.e.Tokens[i*s.e.BlockSize:(i+1)*s.e.BlockSize])
			if i < len(s.e.Extra) {
				ours = withExtra(ours, s.e.Extra[i])
			}
			dst = m.add(dst, h.key(), knownBlock{ours: ours, parent: s.parent}, tierOf(s.e.Medium))
			s.parent = ours
			if m.waiting > 0 {
				for _, o := range m.orphans[h.key()] {
					m.waiting--
					todo = append(todo, step{o, ours})
				}
				delete(m.orphans, h.key())
			}
		}
	}
	return dst
}

// withExtra mixes in what is neither salt nor adapter, such as an image's digest: placeholder tokens do not say what the
// block holds, and no router may take it for another.
func withExtra(hash uint64, keys []Key) uint64 {
	for _, k := range keys {
		if k.Raw != nil {
			hash ^= xxhash.Sum64(k.Raw)
			hash = hash<<1 | hash>>63
		}
	}
	return hash
}

func (m *Mapper) add(dst []Block, theirs uint64, b knownBlock, tier Tier) []Block {
	if m.known == nil {
		m.known = make(map[uint64]knownBlock)
	}
	if old, ok := m.known[theirs]; ok && old.ours == b.ours {
		b.tiers = old.tiers
	}
	if b.tiers&(1<<tier) != 0 {
		return dst
	}
	b.tiers |= 1 << tier
	m.known[theirs] = b
	return append(dst, Block{Op: Store, Tier: tier, Hash: b.ours, Parent: b.parent})
}

// copied handles events without tokens: copies of known blocks in another tier.
func (m *Mapper) copied(dst []Block, e *Event) []Block {
	if len(e.Tokens) > 0 {
		return dst // malformed: counts that disagree say nothing
	}
	for _, h := range e.Hashes {
		if b, ok := m.known[h.key()]; ok {
			dst = m.add(dst, h.key(), b, tierOf(e.Medium))
		}
	}
	return dst
}

// wait keeps an event until its parent is stored. When too many wait, all are dropped: their parents were lost.
func (m *Mapper) wait(e *Event) {
	if m.waiting >= maxOrphans {
		m.orphans, m.waiting = nil, 0
	}
	if m.orphans == nil {
		m.orphans = make(map[uint64][]Event)
	}
	m.orphans[e.Parent.key()] = append(m.orphans[e.Parent.key()], *e)
	m.waiting++
}

// forget cuts a removed block, and what follows it, off the waiting events.
func (m *Mapper) forget(h Hash) {
	for _, events := range m.orphans {
		for j := range events {
			if i := slices.Index(events[j].Hashes, h); i >= 0 {
				events[j].Hashes = events[j].Hashes[:i]
			}
		}
	}
}
