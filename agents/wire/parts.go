package wire

import "slices"

// Parts cuts a message into ones of at most MaxKVHashes, to be numbered one after another. Only the first has Reset.
func (kv KV) Parts() []KV {
	if len(kv.Stored)+len(kv.Removed) <= MaxKVHashes {
		return []KV{kv}
	}
	var out []KV
	add := func(stored, removed []uint64) {
		part := kv
		part.Reset, part.Stored, part.Removed = kv.Reset && len(out) == 0, stored, removed
		out = append(out, part)
	}
	for part := range slices.Chunk(kv.Removed, MaxKVHashes) {
		add(nil, part)
	}
	for part := range slices.Chunk(kv.Stored, MaxKVHashes) {
		add(part, nil)
	}
	return out
}
