package route

import "github.com/cespare/xxhash/v2"

// ByteBlock is how many prompt bytes one approximate hash covers: about a KV block of tokens.
const ByteBlock = 256

// ApproxTokensPerByteBlock turns a run of matched byte blocks into tokens for the cost model.
const ApproxTokensPerByteBlock = 64

// ByteChain hashes a prompt's bytes in blocks, each chained to the one before, rooted in the organization's salt: the
// prefix key when nobody tells the prompt's tokens. A partial last block has no hash.
func ByteChain(salt string, prompt []byte) []uint64 {
	out := make([]uint64, 0, len(prompt)/ByteBlock)
	parent := xxhash.Sum64String(salt)
	var d xxhash.Digest
	for len(prompt) >= ByteBlock {
		d.ResetWithSeed(parent)
		_, _ = d.Write(prompt[:ByteBlock])
		parent = d.Sum64()
		out = append(out, parent)
		prompt = prompt[ByteBlock:]
	}
	return out
}
