package kvevent

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Root is the parent hash of a chain's first block. Gateway and agent compute it alike; an adapter's blocks have a root
// of their own.
func Root(salt, lora string) uint64 {
	if lora == "" {
		return xxhash.Sum64String(salt)
	}
	return xxhash.Sum64String(salt + "\x00" + lora)
}

// OfRank is a block's hash at a data-parallel rank. Ranks have caches of their own: what one holds is not what another
// holds, so the same block has another hash at each. Rank 0 is an engine without ranks.
func OfRank(hash uint64, rank int) uint64 { return hash ^ uint64(rank)*rankStep }

// rankStep is odd, so that no two ranks share a mask, and its multiples differ in many bits.
const rankStep = 0x9E37_79B9_7F4A_7C15

// Next is the hash of a block: of its parent's hash and its token ids, little endian.
func Next(parent uint64, tokens []uint32) uint64 {
	var space [8 + 4*64]byte // blocks of up to 64 tokens need no allocation
	b := binary.LittleEndian.AppendUint64(space[:0], parent)
	for _, id := range tokens {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return xxhash.Sum64(b)
}

// ChainHashes gives the hashes of the whole blocks of a prompt without an adapter, first to last: what a router looks up.
// blockSize is in tokens; a trailing part of a block has none.
func ChainHashes(salt string, tokens []uint32, blockSize int) []uint64 {
	return AppendChain(nil, Root(salt, ""), tokens, blockSize)
}

// AppendChain appends the hashes of the whole blocks of tokens that follow a parent.
func AppendChain(dst []uint64, parent uint64, tokens []uint32, blockSize int) []uint64 {
	if blockSize <= 0 {
		return dst
	}
	for ; len(tokens) >= blockSize; tokens = tokens[blockSize:] {
		parent = Next(parent, tokens[:blockSize])
		dst = append(dst, parent)
	}
	return dst
}
