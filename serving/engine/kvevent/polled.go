package kvevent

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Polled is what one poll of TensorRT-LLM's event endpoint gave. Events are numbered without gaps: one that is missing before
// First was lost, and numbers that begin anew are another engine's.
type Polled struct {
	First, Last int64 // event ids; -1 = there were none
	Events      []Event
}

type polledEvent struct {
	ID     int64      `json:"event_id"`
	Data   polledData `json:"data"`
	Window int64      `json:"window_size"`
	Rank   *int       `json:"attention_dp_rank"`
}

type polledData struct {
	Type   string        `json:"type"`
	Parent *polledHash   `json:"parent_hash"`
	Blocks []polledBlock `json:"blocks"`
	Hashes []polledHash  `json:"block_hashes"`
	Hash   *polledHash   `json:"block_hash"`  // of updated
	Level  *polledLevel  `json:"cache_level"` // of updated
}

type polledBlock struct {
	Hash   polledHash `json:"block_hash"`
	Tokens []struct {
		ID    uint32 `json:"token_id"`
		Extra int64  `json:"token_extra_id"`
	} `json:"tokens"`
	Level int               `json:"cache_level"`
	Keys  []json.RawMessage `json:"mm_keys"`
}

type polledLevel struct {
	Old int `json:"old_value"`
	New int `json:"new_value"`
}

// polledHash is a number, or hexadecimal text.
type polledHash Hash

// UnmarshalJSON implements json.Unmarshaler.
func (h *polledHash) UnmarshalJSON(raw []byte) error {
	text := string(raw)
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		h.Int = n
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		h.Int = uint64(n) // keeps its 64 bits
		return nil
	}
	b, err := hex.DecodeString(strings.Trim(text, `"`))
	if err != nil || len(b) == 0 || len(b) > maxHashBytes {
		return fmt.Errorf("kvevent: a hash that is none: %.80s", text)
	}
	h.Raw = string(b)
	return nil
}

// DecodePolled reads a poll's answer. blockSize is in tokens: blocks that are not full are left out, they will be filled. Of
// several attention windows the largest is followed, which holds whole prefixes.
func DecodePolled(answer []byte, blockSize int) (Polled, error) {
	var all []polledEvent
	if err := json.Unmarshal(answer, &all); err != nil {
		return Polled{}, fmt.Errorf("%w: %w", errShape, err)
	}
	if len(all) > maxEvents {
		return Polled{}, fmt.Errorf("%w: %d events at once", errShape, len(all))
	}
	p := Polled{First: -1, Last: -1}
	var window int64
	for i := range all {
		window = max(window, all[i].Window)
	}
	for i := range all {
		if e := &all[i]; e.Window == window || e.Window == 0 {
			from := len(p.Events)
			p.Events = e.Data.events(p.Events, blockSize)
			for ; e.Rank != nil && from < len(p.Events); from++ {
				p.Events[from].Rank = *e.Rank
			}
		}
	}
	if len(all) > 0 {
		p.First, p.Last = all[0].ID, all[len(all)-1].ID
	}
	return p, nil
}

func (d *polledData) events(dst []Event, blockSize int) []Event {
	switch d.Type {
	case "created": // the cache is new
		return append(dst, Event{Kind: Cleared, Group: -1})
	case "stored":
		return d.stored(dst, blockSize)
	case "removed":
		e := Event{Kind: Removed, Group: -1, Medium: "GPU"}
		for _, h := range d.Hashes {
			e.Hashes = append(e.Hashes, Hash(h))
		}
		host := e
		host.Medium = levels[1] // whichever level it was in: removing what is not there changes nothing
		return append(dst, e, host)
	case "updated":
		if d.Hash != nil && d.Level != nil {
			h := []Hash{Hash(*d.Hash)}
			return append(dst, Event{Kind: Stored, Group: -1, Hashes: h, Medium: medium(d.Level.New)},
				Event{Kind: Removed, Group: -1, Hashes: h, Medium: medium(d.Level.Old)})
		}
	}
	return dst
}

// levels are the tiers by TensorRT-LLM's number.
var levels = [...]string{"GPU", "CPU"}

func medium(level int) string { return levels[min(max(level, 0), len(levels)-1)] }

// stored makes an event of a run of full blocks in one tier; the next begins where the tier changes.
func (d *polledData) stored(dst []Event, blockSize int) []Event {
	parent := (*Hash)(d.Parent)
	var run *Event
	for i := range d.Blocks {
		b := &d.Blocks[i]
		if len(b.Tokens) != blockSize {
			break // what follows hangs on it
		}
		if run == nil || run.Medium != medium(b.Level) {
			dst = append(dst, Event{Kind: Stored, Group: -1, BlockSize: blockSize, Parent: parent, Medium: medium(b.Level)})
			run = &dst[len(dst)-1]
		}
		h := Hash(b.Hash)
		run.Hashes, run.Extra = append(run.Hashes, h), append(run.Extra, b.extra())
		for _, t := range b.Tokens {
			run.Tokens = append(run.Tokens, t.ID)
		}
		parent = &h
	}
	return dst
}

// extra is what else is in a block: media and adapters, which no router can tell from the tokens.
func (b *polledBlock) extra() (keys []Key) {
	for _, k := range b.Keys {
		keys = append(keys, Key{Raw: k})
	}
	for _, t := range b.Tokens {
		if t.Extra != 0 {
			return append(keys, Key{Raw: strconv.AppendInt(nil, t.Extra, 10)})
		}
	}
	return keys
}
