package kvevent

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func tokens(n, seed int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(seed*1000 + i)
	}
	return ids
}

func ints(from, n int) []Hash {
	all := make([]Hash, n)
	for i := range all {
		all[i] = Hash{Int: uint64(from + i)}
	}
	return all
}

func stored(parent int, hashes []Hash, ids []uint32, salt string) *Event {
	e := &Event{Kind: Stored, Hashes: hashes, Tokens: ids, BlockSize: len(ids) / len(hashes), Medium: "GPU", Group: -1}
	if parent > 0 {
		e.Parent = &Hash{Int: uint64(parent)}
	} else if salt != "" {
		e.Extra = make([][]Key, len(hashes))
		e.Extra[0] = []Key{{Text: salt}}
	}
	return e
}

func hashesOf(blocks []Block) (all []uint64) {
	for _, b := range blocks {
		all = append(all, b.Hash)
	}
	return all
}

func TestStoredBlocksGetTheHashesThatARouterComputes(t *testing.T) {
	var m Mapper
	ids := tokens(64, 1)
	first := m.Apply(nil, stored(0, ints(1, 2), ids[:32], "org-a"))
	rest := m.Apply(nil, stored(2, ints(3, 2), ids[32:], ""))
	if got, want := append(hashesOf(first), hashesOf(rest)...), ChainHashes("org-a", ids, 16); !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	if first[0].Parent != Root("org-a", "") || first[1].Parent != first[0].Hash || rest[0].Parent != first[1].Hash || first[0].Op != Store {
		t.Errorf("%+v", first)
	}
	for _, other := range []string{"", "org-b"} {
		if slices.Equal(ChainHashes(other, ids, 16)[:1], hashesOf(first)[:1]) {
			t.Errorf("salt %q has org-a's hashes", other)
		}
	}
	if len(ChainHashes("", ids[:31], 16)) != 1 || len(ChainHashes("", ids, 0)) != 0 {
		t.Error("partial blocks have hashes")
	}
}

func TestAdaptersAndImagesKeepBlocksApart(t *testing.T) {
	ids := tokens(16, 1)
	lora := stored(0, ints(1, 1), ids, "salt")
	lora.LoRA, lora.Extra[0] = "ad", []Key{{Text: "ad"}, {Text: "salt"}}
	image := stored(0, ints(2, 1), ids, "")
	image.Extra = [][]Key{{{Raw: []byte("digest of a cat")}}}
	var m Mapper
	a, b := m.Apply(nil, lora)[0].Hash, m.Apply(nil, image)[0].Hash
	if lora.Salt() != "salt" || image.Salt() != "" || a != Next(Root("salt", "ad"), ids) {
		t.Errorf("%q %q %x", lora.Salt(), image.Salt(), a)
	}
	if plain := ChainHashes("", ids, 16)[0]; b == plain || a == plain {
		t.Error("an image's or adapter's block is taken for text")
	}
}

func TestRemovesAreIdempotentAndPerTier(t *testing.T) {
	var m Mapper
	blocks := m.Apply(nil, stored(0, ints(1, 2), tokens(32, 1), ""))
	onCPU := &Event{Kind: Stored, Hashes: ints(1, 1), Medium: "CPU", Group: -1} // an offloaded copy: no tokens
	if got := m.Apply(nil, onCPU); len(got) != 1 || got[0].Tier != CPU || got[0].Hash != blocks[0].Hash {
		t.Errorf("%+v", got)
	}
	gone := &Event{Kind: Removed, Hashes: append(ints(77, 1), ints(1, 2)...), Medium: "GPU", Group: -1} // an unknown one first
	got := m.Apply(nil, gone)
	if len(got) != 2 || got[0] != (Block{Op: Remove, Hash: blocks[0].Hash}) || got[1].Hash != blocks[1].Hash {
		t.Errorf("%+v", got)
	}
	if again := m.Apply(nil, gone); len(again) != 0 {
		t.Errorf("removed twice: %+v", again)
	}
	gone.Medium = "CPU"
	if got := m.Apply(nil, gone); len(got) != 1 || got[0].Tier != CPU || len(m.known) != 0 {
		t.Errorf("%+v, %d known", got, len(m.known))
	}
}

func TestUnknownParentsAreWaitedFor(t *testing.T) {
	var m Mapper
	ids := tokens(48, 3)
	if got := m.Apply(nil, stored(2, ints(3, 1), ids[32:], "")); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if got := m.Apply(nil, stored(1, ints(2, 1), ids[16:32], "")); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	got := m.Apply(nil, stored(0, ints(1, 1), ids[:16], ""))
	if !slices.Equal(hashesOf(got), ChainHashes("", ids, 16)) || m.waiting != 0 || len(m.orphans) != 0 {
		t.Errorf("%+v, %d waiting", got, m.waiting)
	}
	// What was removed while it waited does not come back.
	m.Apply(nil, stored(9, ints(10, 2), tokens(32, 5), ""))
	m.Apply(nil, &Event{Kind: Removed, Hashes: ints(11, 1), Group: -1})
	if got := m.Apply(nil, stored(0, ints(9, 1), tokens(16, 4), "")); len(got) != 2 || got[1].Hash != Next(got[0].Hash, tokens(32, 5)[:16]) {
		t.Errorf("%+v", got)
	}
	for i := range 3 * maxOrphans {
		m.Apply(nil, stored(1_000_000+i, ints(2_000_000+i, 1), tokens(16, i), ""))
	}
	if m.waiting > maxOrphans {
		t.Errorf("%d events wait", m.waiting)
	}
}

func TestClearAndNonsense(t *testing.T) {
	var m Mapper
	m.Apply(nil, stored(0, ints(1, 2), tokens(32, 1), ""))
	bad := stored(0, ints(5, 2), tokens(32, 1), "")
	bad.Tokens = bad.Tokens[:31]
	twice := stored(0, []Hash{{Int: 8}, {Int: 8}}, tokens(32, 2), "")
	if got := m.Apply(nil, bad); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	for _, b := range m.Apply(nil, twice) {
		if b.Op != Store {
			t.Errorf("a repeated hash became %+v", b)
		}
	}
	if got := m.Apply(nil, &Event{Kind: Cleared, Group: -1}); !reflect.DeepEqual(got, []Block{{Op: Clear}}) || len(m.known) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestHybridModelsFollowOneFullGroup(t *testing.T) {
	var m Mapper
	event := func(group int, spec string, kind Kind) *Event {
		e := stored(0, ints(1, 1), tokens(16, group), "")
		e.Kind, e.Group, e.Spec = kind, group, spec
		return e
	}
	for i, c := range []struct {
		e    *Event
		want int
	}{
		{event(0, "sliding_window", Stored), 0}, {event(1, "full_attention", Stored), 1}, {event(2, "full_attention", Stored), 0},
		{event(0, "", Removed), 0}, {event(2, "", Removed), 0}, {event(1, "", Removed), 1},
	} {
		if got := m.Apply(nil, c.e); len(got) != c.want {
			t.Errorf("event %d: %+v", i, got)
		}
	}
}

// A model: sets of stored blocks by tier. The mapper's output, replayed, must agree with it, whatever the order.
func TestOutputReplaysToWhatTheEngineHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Mapper
		held, said := map[int]bool{}, map[uint64]bool{}
		chain := ChainHashes("s", tokens(16*20, 7), 16)
		var out []Block
		for _, i := range rapid.SliceOf(rapid.IntRange(0, 19)).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				out = m.Apply(out, &Event{Kind: Removed, Hashes: ints(i+1, 1), Group: -1})
				delete(held, i)
				continue
			}
			n := 0 // an engine stores blocks whose parents it holds
			for held[n] && n < 19 {
				n++
			}
			out = m.Apply(out, stored(n, ints(n+1, 1), tokens(16*20, 7)[16*n:16*n+16], "s"))
			held[n] = true
		}
		for _, b := range out {
			if said[b.Hash] == (b.Op == Store) {
				t.Fatalf("%+v is told twice", b)
			}
			said[b.Hash] = b.Op == Store
		}
		for i, h := range chain {
			if said[h] != held[i] {
				t.Fatalf("block %d: held %v, told %v", i, held[i], said[h])
			}
		}
	})
}
