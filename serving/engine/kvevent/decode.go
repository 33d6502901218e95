package kvevent

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

var errShape = errors.New("kvevent: not an event batch")

// Decode reads a payload: [time, [event…], rank?], events as tagged maps or as positional arrays. Unknown kinds, unknown
// members and missing members are fine. An event that cannot be read fails the batch.
func Decode(payload []byte) (Batch, error) {
	if len(payload) > MaxMessageBytes {
		return Batch{}, fmt.Errorf("kvevent: a batch of %d bytes", len(payload))
	}
	d := newDecoder(payload)
	b := Batch{Rank: -1}
	n, err := d.list(8)
	if err != nil || n < 2 {
		return b, errors.Join(errShape, err)
	}
	if b.Time, err = d.DecodeFloat64(); err != nil {
		return b, errors.Join(errShape, err)
	}
	events, err := d.list(maxEvents)
	if err != nil {
		return b, err
	}
	for range events {
		e, err := d.event()
		if err != nil {
			return b, err
		}
		if e.Kind != 0 {
			b.Events = append(b.Events, e)
		}
	}
	if n > 2 {
		rank, err := d.integer(-1)
		if err != nil {
			return b, err
		}
		b.Rank = int(int32(rank))
	}
	return b, nil
}

type decoder struct {
	*msgpack.Decoder
	all []byte
	r   *bytes.Reader
}

func newDecoder(b []byte) *decoder {
	r := bytes.NewReader(b)
	return &decoder{Decoder: msgpack.NewDecoder(r), all: b, r: r}
}

// list reads an array's length; nil is an empty one. It never exceeds limit or what the rest of the text could hold, so
// that it may be allocated.
func (d *decoder) list(limit int) (int, error) {
	n, err := d.DecodeArrayLen()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errShape, err)
	}
	if n > limit || n > d.r.Len() {
		return 0, fmt.Errorf("%w: an array of %d", errShape, n)
	}
	return max(n, 0), nil
}

func (d *decoder) event() (Event, error) {
	e := Event{Group: -1}
	code, err := d.PeekCode()
	if err != nil {
		return e, fmt.Errorf("%w: %w", errShape, err)
	}
	if msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32 {
		err = d.positional(&e)
	} else {
		err = d.tagged(&e)
	}
	if err == nil {
		err = e.check()
	}
	return e, err
}

// positions is the order of fields in the array shape of older engines, after the name.
var positions = map[Kind][]string{
	Stored:  {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"},
	Removed: {"block_hashes", "medium", "group_idx"},
	Cleared: {},
}

func (d *decoder) positional(e *Event) error {
	n, err := d.list(64)
	if err != nil || n == 0 {
		return errors.Join(errShape, err)
	}
	if err := d.kind(e); err != nil {
		return err
	}
	names := positions[e.Kind]
	for i := range n - 1 {
		if i >= len(names) {
			err = d.skip(maxDepth)
		} else {
			err = d.member(e, names[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) tagged(e *Event) error {
	n, err := d.DecodeMapLen()
	if err != nil || n > d.r.Len() {
		return errors.Join(errShape, err)
	}
	for range n {
		name, err := d.text()
		if err != nil {
			return err
		}
		if name == "type" {
			err = d.kind(e)
		} else {
			err = d.member(e, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) kind(e *Event) error {
	name, err := d.text()
	for k, known := range kindNames {
		if name == known {
			e.Kind = k
		}
	}
	return err
}

func (d *decoder) member(e *Event, name string) (err error) {
	switch name {
	case "block_hashes":
		e.Hashes, err = d.hashes()
	case "parent_block_hash":
		e.Parent, err = d.hash()
	case "token_ids":
		e.Tokens, err = d.tokens()
	case "block_size":
		var n int64
		n, err = d.integer(0)
		e.BlockSize = int(min(max(n, -1), maxBlockSize+1))
	case "group_idx":
		var n int64
		n, err = d.integer(-1)
		e.Group = int(int32(n))
	case "medium":
		e.Medium, err = d.optionalText()
	case "lora_name":
		e.LoRA, err = d.optionalText()
	case "cache_salt":
		e.CacheSalt, err = d.optionalText()
	case "kv_cache_spec_kind":
		e.Spec, err = d.optionalText()
	case "extra_keys":
		e.Extra, err = d.extra()
	default:
		err = d.skip(maxDepth)
	}
	if err != nil {
		return fmt.Errorf("kvevent: %s: %w", name, err)
	}
	return nil
}

// check refuses what cannot be true. Counts that disagree are the Mapper's business: it may know the blocks already.
func (e *Event) check() error {
	if e.BlockSize < 0 || e.BlockSize > maxBlockSize {
		return fmt.Errorf("kvevent: block size %d", e.BlockSize)
	}
	return nil
}
