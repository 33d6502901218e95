// Package kvevent carries an engine's KV-cache events: vLLM's wire format over ZeroMQ, and their translation to block
// hashes of our own that gateway and agent both compute.
//
// It owns the codec, the sockets (Subscriber, Publisher), the detection of lost messages and restarted engines, and the
// hash chain. It owns no index and picks no replica. Invariants: a Block's hash depends on salt, LoRA and token ids only,
// never on an engine's hash seed; after a Reset nothing learned before is true; a malformed event loses itself, never what
// other events said; nothing an engine sends makes memory grow beyond the limits named here.
package kvevent

// Kind is what an event says.
type Kind uint8

// The kinds of events. Unknown ones of newer engines are skipped.
const (
	Stored Kind = iota + 1
	Removed
	Cleared
)

var kindNames = map[Kind]string{Stored: "BlockStored", Removed: "BlockRemoved", Cleared: "AllBlocksCleared"}

// Hash is an engine's own block hash: an unsigned 64-bit integer (Raw is ""), or bytes, 32 as a rule.
type Hash struct {
	Int uint64
	Raw string
}

// key folds a hash to 64 bits. Of bytes it takes the low ones, as vLLM does when it is told to send integers.
func (h Hash) key() uint64 {
	if h.Raw == "" {
		return h.Int
	}
	var k uint64
	for i := max(0, len(h.Raw)-8); i < len(h.Raw); i++ {
		k = k<<8 | uint64(h.Raw[i])
	}
	return k
}

// Event is one change of an engine's cache, as the engine told it.
type Event struct {
	Kind      Kind
	Hashes    []Hash
	Parent    *Hash    // of the first block; nil = the chain's start
	Tokens    []uint32 // of all blocks; may be empty when an offloaded copy is announced
	BlockSize int      // tokens per block
	LoRA      string   // adapter name; "" = none
	CacheSalt string   // where the engine tells it by name, as SGLang does; Salt gives it wherever it stands
	Medium    string   // "GPU", "CPU", …; "" = not said
	Extra     [][]Key  // per block: what else is in its hash; nil = nothing
	Group     int      // KV cache group of hybrid models; -1 = not said
	Spec      string   // kind of the group, for example "full_attention"; "" = not said
	Rank      int      // data-parallel rank, of polled events; else the batch says
}

// Key is an element of a block's extra keys: a string (a LoRA name, the cache salt), or anything else as its raw
// MessagePack bytes (image identifiers, digests).
type Key struct {
	Text string
	Raw  []byte // nil for a string
}

// Salt is the cache salt of an event's first block, "" when it has none. SGLang names it; vLLM puts it among the extra keys,
// after the adapter's name.
func (e *Event) Salt() string {
	if len(e.Extra) == 0 || e.CacheSalt != "" {
		return e.CacheSalt
	}
	lora := e.LoRA
	for _, k := range e.Extra[0] {
		switch {
		case k.Raw != nil:
		case lora != "" && k.Text == lora:
			lora = "" // the name stands once; a salt may be equal to it
		default:
			return k.Text
		}
	}
	return ""
}

// Batch is one message's payload.
type Batch struct {
	Time   float64 // seconds since 1970 by the engine's clock
	Events []Event
	Rank   int // data-parallel rank; -1 = not said
}

// Limits of what is accepted from an engine.
const (
	MaxMessageBytes = 64 << 20 // a 1M-token prompt stored at once is about 6 MB
	maxEvents       = 1 << 16  // in a batch
	maxBlockSize    = 1 << 16  // tokens
	maxDepth        = 8        // nesting of values that are skipped or kept raw
	maxHashBytes    = 64
)
