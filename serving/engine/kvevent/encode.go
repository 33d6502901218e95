package kvevent

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
)

// Shape is how events are written.
type Shape uint8

// The shapes that engines have used.
const (
	Tagged     Shape = iota // maps with a "type": vLLM since 2026
	Positional              // arrays, trailing defaults left out
	Named                   // maps of what is there, the salt by name and hashes signed: SGLang
)

// Encode writes a payload as vLLM does.
func Encode(b Batch, shape Shape) ([]byte, error) {
	var buf bytes.Buffer
	e := encoder{Encoder: msgpack.NewEncoder(&buf)}
	n := 3
	if b.Rank < 0 {
		n = 2
	}
	e.do(e.EncodeArrayLen(n))
	e.do(e.EncodeFloat64(b.Time))
	e.do(e.EncodeArrayLen(len(b.Events)))
	for i := range b.Events {
		switch v := &b.Events[i]; shape {
		case Positional:
			e.positional(v)
		case Named:
			e.named(v)
		default:
			e.tagged(v)
		}
	}
	if b.Rank >= 0 {
		e.do(e.EncodeInt(int64(b.Rank)))
	}
	if e.err != nil {
		return nil, fmt.Errorf("kvevent: encode: %w", e.err)
	}
	return buf.Bytes(), nil
}

// encoder keeps the first error, so that writing reads as a list.
type encoder struct {
	*msgpack.Encoder
	err error
}

func (e *encoder) do(err error) {
	if e.err == nil {
		e.err = err
	}
}

// names lists the members of a kind's map, in vLLM's order.
func (v *Event) names() []string {
	switch v.Kind {
	case Stored:
		return positions[Stored]
	case Removed:
		return positions[Removed]
	}
	return nil
}

func (e *encoder) tagged(v *Event) {
	names := v.names()
	if v.Group < 0 && len(names) > 0 { // group_idx and what follows are newer: left out when not said
		names = names[:indexOf(names, "group_idx")]
	}
	e.do(e.EncodeMapLen(1 + len(names)))
	e.do(e.EncodeString("type"))
	e.do(e.EncodeString(kindNames[v.Kind]))
	for _, name := range names {
		e.do(e.EncodeString(name))
		e.value(v, name)
	}
}

func (e *encoder) positional(v *Event) {
	names := v.names()
	for len(names) > 0 && v.isDefault(names[len(names)-1]) {
		names = names[:len(names)-1]
	}
	e.do(e.EncodeArrayLen(1 + len(names)))
	e.do(e.EncodeString(kindNames[v.Kind]))
	for _, name := range names {
		e.value(v, name)
	}
}

// named writes an event as SGLang does.
func (e *encoder) named(v *Event) {
	m := []struct {
		name string
		text string
	}{{"medium", v.Medium}, {"cache_salt", v.Salt()}, {"lora_name", v.LoRA}}
	if v.Kind != Stored {
		m = m[:1]
	}
	m = slices.DeleteFunc(m, func(one struct{ name, text string }) bool { return one.text == "" })
	n := 1 + len(m)
	switch v.Kind {
	case Stored:
		n += len(namedStored)
	case Removed:
		n++
	}
	e.do(e.EncodeMapLen(n))
	e.do(e.EncodeString("type"))
	e.do(e.EncodeString(kindNames[v.Kind]))
	if v.Kind != Cleared {
		e.do(e.EncodeString("block_hashes"))
		e.do(e.EncodeArrayLen(len(v.Hashes)))
		for _, h := range v.Hashes {
			e.do(e.EncodeInt(int64(h.key())))
		}
	}
	if v.Kind == Stored {
		e.do(e.EncodeString("parent_block_hash"))
		if v.Parent == nil {
			e.do(e.EncodeNil())
		} else {
			e.do(e.EncodeInt(int64(v.Parent.key())))
		}
		for _, name := range namedStored[2:] {
			e.do(e.EncodeString(name))
			e.value(v, name)
		}
	}
	for _, one := range m {
		e.do(e.EncodeString(one.name))
		e.do(e.EncodeString(one.text))
	}
}

// namedStored are the members that are always there.
var namedStored = [...]string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id"}

func indexOf(names []string, name string) int {
	for i, n := range names {
		if n == name {
			return i
		}
	}
	return len(names)
}

// isDefault tells which trailing fields the array shape leaves out.
func (v *Event) isDefault(name string) bool {
	switch name {
	case "medium":
		return v.Medium == ""
	case "lora_name":
		return v.LoRA == ""
	case "extra_keys":
		return v.Extra == nil
	case "group_idx":
		return v.Group < 0
	case "kv_cache_spec_kind":
		return v.Spec == ""
	}
	return false
}

func (e *encoder) value(v *Event, name string) {
	switch name {
	case "block_hashes":
		e.do(e.EncodeArrayLen(len(v.Hashes)))
		for _, h := range v.Hashes {
			e.hash(&h)
		}
	case "parent_block_hash":
		e.hash(v.Parent)
	case "token_ids":
		e.do(e.EncodeArrayLen(len(v.Tokens)))
		for _, id := range v.Tokens {
			e.do(e.EncodeUint(uint64(id)))
		}
	case "block_size":
		e.do(e.EncodeUint(uint64(v.BlockSize)))
	case "medium":
		e.optional(v.Medium)
	case "lora_name":
		e.optional(v.LoRA)
	case "kv_cache_spec_kind":
		e.optional(v.Spec)
	case "extra_keys":
		e.extra(v.Extra)
	case "group_idx":
		if v.Group < 0 {
			e.do(e.EncodeNil())
		} else {
			e.do(e.EncodeUint(uint64(v.Group)))
		}
	default: // lora_id, deprecated
		e.do(e.EncodeNil())
	}
}

func (e *encoder) hash(h *Hash) {
	switch {
	case h == nil:
		e.do(e.EncodeNil())
	case h.Raw != "":
		e.do(e.EncodeBytes([]byte(h.Raw)))
	default:
		e.do(e.EncodeUint(h.Int))
	}
}

func (e *encoder) optional(s string) {
	if s == "" {
		e.do(e.EncodeNil())
	} else {
		e.do(e.EncodeString(s))
	}
}

func (e *encoder) extra(blocks [][]Key) {
	if blocks == nil {
		e.do(e.EncodeNil())
		return
	}
	e.do(e.EncodeArrayLen(len(blocks)))
	for _, keys := range blocks {
		if keys == nil {
			e.do(e.EncodeNil())
			continue
		}
		e.do(e.EncodeArrayLen(len(keys)))
		for _, k := range keys {
			if k.Raw == nil {
				e.do(e.EncodeString(k.Text))
			} else {
				e.do(e.Encode(msgpack.RawMessage(k.Raw)))
			}
		}
	}
}
