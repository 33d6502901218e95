package kvevent

import (
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// integer reads a whole number of any width; nil is missing.
func (d *decoder) integer(missing int64) (int64, error) {
	if d.isNil() {
		return missing, d.DecodeNil()
	}
	return d.DecodeInt64()
}

func (d *decoder) isNil() bool {
	code, err := d.PeekCode()
	return err == nil && code == msgpcode.Nil
}

// text reads a string without trusting its length.
func (d *decoder) text() (string, error) {
	n, err := d.DecodeBytesLen()
	if err != nil {
		return "", err
	}
	if n < 0 || n > d.r.Len() {
		return "", fmt.Errorf("%w: a string of %d bytes", errShape, n)
	}
	b := make([]byte, n)
	if err := d.ReadFull(b); err != nil {
		return "", err
	}
	return string(b), nil
}

func (d *decoder) optionalText() (string, error) {
	if d.isNil() {
		return "", d.DecodeNil()
	}
	return d.text()
}

func (d *decoder) hashes() ([]Hash, error) {
	n, err := d.list(MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	all := make([]Hash, 0, n)
	for range n {
		h, err := d.hash()
		if err != nil {
			return nil, err
		}
		if h == nil {
			return nil, errors.New("a hash that is nil")
		}
		all = append(all, *h)
	}
	return all, nil
}

// hash reads an integer of either sign, or bytes; nil is none.
func (d *decoder) hash() (*Hash, error) {
	code, err := d.PeekCode()
	switch {
	case err != nil:
		return nil, err
	case code == msgpcode.Nil:
		return nil, d.DecodeNil()
	case msgpcode.IsBin(code) || msgpcode.IsString(code):
		raw, err := d.text()
		if err == nil && (raw == "" || len(raw) > maxHashBytes) {
			err = fmt.Errorf("a hash of %d bytes", len(raw))
		}
		return &Hash{Raw: raw}, err
	}
	n, err := d.DecodeUint64() // signed ones keep their 64 bits
	return &Hash{Int: n}, err
}

func (d *decoder) tokens() ([]uint32, error) {
	n, err := d.list(MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	ids := make([]uint32, n)
	for i := range ids {
		id, err := d.DecodeInt64()
		if err != nil {
			return nil, err
		}
		if id < 0 || id > 1<<32-1 {
			return nil, fmt.Errorf("token id %d", id)
		}
		ids[i] = uint32(id)
	}
	return ids, nil
}

// extra reads one list of keys, or nil, per block. A key alone stands for a list of it.
func (d *decoder) extra() ([][]Key, error) {
	if d.isNil() {
		return nil, d.DecodeNil()
	}
	n, err := d.list(MaxMessageBytes)
	if err != nil {
		return nil, err
	}
	all := make([][]Key, n)
	for i := range all {
		code, err := d.PeekCode()
		if err != nil {
			return nil, err
		}
		keys := 1
		if msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32 || code == msgpcode.Nil {
			if keys, err = d.list(maxEvents); err != nil {
				return nil, err
			}
		}
		for range keys {
			k, err := d.extraKey()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], k)
		}
	}
	return all, nil
}

func (d *decoder) extraKey() (Key, error) {
	code, err := d.PeekCode()
	if err != nil {
		return Key{}, err
	}
	if msgpcode.IsString(code) {
		s, err := d.text()
		return Key{Text: s}, err
	}
	start := len(d.all) - d.r.Len()
	if err := d.skip(maxDepth); err != nil {
		return Key{}, err
	}
	return Key{Raw: append([]byte{}, d.all[start:len(d.all)-d.r.Len()]...)}, nil
}

// skip passes over a value. The library's own Skip recurses as deep as the text says.
func (d *decoder) skip(depth int) error {
	code, err := d.PeekCode()
	if err != nil {
		return err
	}
	n := 0
	switch {
	case msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32:
		if n, err = d.DecodeMapLen(); err == nil && n > d.r.Len() {
			err = errShape
		}
		n *= 2
	case msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32:
		n, err = d.list(MaxMessageBytes)
	case msgpcode.IsString(code) || msgpcode.IsBin(code):
		_, err = d.text()
	case msgpcode.IsExt(code):
		err = errors.New("an extension type")
	default:
		return d.Skip()
	}
	if err != nil {
		return err
	}
	if n > 0 && depth == 0 {
		return fmt.Errorf("%w: nested too deeply", errShape)
	}
	for range n {
		if err := d.skip(depth - 1); err != nil {
			return err
		}
	}
	return nil
}
