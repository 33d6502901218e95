package sim

import (
	"net/http"
	"sync"

	"millrace/serving/engine/kvevent"
)

// polledEvents is a buffer of KV events that one reader empties, as TensorRT-LLM has it. When it is full the oldest are
// lost: the gap shows in the ids.
type polledEvents struct {
	mu     sync.Mutex
	events []map[string]any
	next   int64 // event id
}

const (
	maxPolled    = 65_536
	polledWindow = 1 << 20 // tokens of attention: longer than any context
)

// add takes in what a rank did.
func (p *polledEvents) add(rank int, events []kvevent.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range events {
		p.put(rank, polledData(&events[i]))
	}
}

// put is called with the lock held.
func (p *polledEvents) put(rank int, data map[string]any) {
	p.events = append(p.events, map[string]any{"event_id": p.next, "data": data, "window_size": polledWindow, "attention_dp_rank": rank, "hash_algo": "V1"})
	p.next++
	if over := len(p.events) - maxPolled; over > 0 {
		p.events = p.events[over:]
	}
}

func (p *polledEvents) take() []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.events
	p.events = nil
	if all == nil {
		all = []map[string]any{}
	}
	return all
}

func polledData(e *kvevent.Event) map[string]any {
	switch e.Kind {
	case kvevent.Removed:
		return map[string]any{"type": "removed", "block_hashes": polledHashes(e.Hashes)}
	case kvevent.Cleared:
		return map[string]any{"type": "created", "num_blocks_per_cache_level": []int{0, 0}}
	}
	blocks := make([]map[string]any, len(e.Hashes))
	for i, h := range e.Hashes {
		tokens := make([]map[string]any, e.BlockSize)
		for j, id := range e.Tokens[i*e.BlockSize : (i+1)*e.BlockSize] {
			tokens[j] = map[string]any{"type": "unique_token", "token_id": id, "token_extra_id": 0}
		}
		blocks[i] = map[string]any{"type": "stored_block", "block_hash": h.Int, "tokens": tokens, "cache_level": 0, "priority": 35, "mm_keys": []any{}}
	}
	var parent any
	if e.Parent != nil {
		parent = e.Parent.Int
	}
	return map[string]any{"type": "stored", "parent_hash": parent, "blocks": blocks}
}

func polledHashes(all []kvevent.Hash) []uint64 {
	out := make([]uint64, len(all))
	for i, h := range all {
		out[i] = h.Int
	}
	return out
}

func (e *Engine) servePoll(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, e.polled.take())
}
