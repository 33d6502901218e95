package sim

import (
	"testing"

	"pgregory.net/rapid"

	"millrace/serving/engine/kvevent"
)

// holder is a sequence as the cache sees one.
type holder struct {
	ids    []uint32
	salt   string
	held   []int32
	hashes []uint64
}

// checkCache compares the cache with what holders hold, and the free list with itself.
func checkCache(t *rapid.T, c *cache, holders []*holder) {
	want := make([]int32, len(c.blocks))
	for _, h := range holders {
		for _, i := range h.held {
			want[i]++
		}
	}
	free := 0
	for i := c.oldest; i != none; i = c.blocks[i].next {
		if free++; free > len(c.blocks) {
			t.Fatal("the free list runs in a circle")
		}
		if want[i] != 0 {
			t.Fatalf("block %d is free and held", i)
		}
	}
	if free != c.free {
		t.Fatalf("%d blocks on the free list, %d counted", free, c.free)
	}
	for i, b := range c.blocks {
		if b.holders != want[i] {
			t.Fatalf("block %d has %d holders, not %d", i, b.holders, want[i])
		}
		if at, ok := c.byHash[b.hash]; b.hash != 0 && (!ok || at != int32(i)) {
			t.Fatalf("block %d has a hash that finds another", i)
		}
		if want[i] == 0 {
			free--
		}
	}
	if free != 0 {
		t.Fatalf("%d free blocks are not on the list", -free)
	}
	for h, i := range c.byHash {
		if c.blocks[i].hash != h {
			t.Fatal("a hash finds a block without it")
		}
	}
}

func TestBlocksAreNeverLostOrShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4
		c := newCache(rapid.IntRange(1, 12).Draw(t, "blocks"), size, 1, true)
		var holders []*holder
		held := map[uint64]bool{} // by the engine's hash, as its events tell
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			if len(holders) > 0 && rapid.Bool().Draw(t, "leave") {
				n := rapid.IntRange(0, len(holders)-1).Draw(t, "who")
				c.release(holders[n].held)
				holders = append(holders[:n], holders[n+1:]...)
			} else {
				h := &holder{ids: rapid.SliceOfN(rapid.Uint32Range(1, 2), 1, 24).Draw(t, "ids"), salt: rapid.SampledFrom([]string{"", "a"}).Draw(t, "salt")}
				h.held, h.hashes = c.match(c.root(h.salt), h.ids, len(h.ids)-1, nil, nil)
				if len(h.hashes)*size >= len(h.ids) {
					t.Fatal("the whole prompt was found: nothing is left to compute")
				}
				var ok bool
				if h.held, ok = c.grow(h.held, (len(h.ids)+size-1)/size-len(h.held)); ok {
					h.hashes = c.commit(c.root(h.salt), h.salt, h.ids, len(h.ids), h.held, h.hashes)
					holders = append(holders, h)
				} else {
					c.release(h.held)
				}
			}
			checkCache(t, c, holders)
			follow(t, held, c.drain())
			if len(held) != len(c.byHash) {
				t.Fatalf("events tell of %d blocks, the cache has %d", len(held), len(c.byHash))
			}
		}
	})
}

func follow(t *rapid.T, held map[uint64]bool, events []kvevent.Event) {
	for _, e := range events {
		if e.Kind == kvevent.Stored && (len(e.Tokens) != len(e.Hashes)*e.BlockSize || e.Extra != nil && len(e.Extra) != len(e.Hashes)) {
			t.Fatalf("%+v", e)
		}
		for _, h := range e.Hashes {
			if held[h.Int] == (e.Kind == kvevent.Stored) {
				t.Fatalf("%d is told twice", h.Int)
			}
			if held[h.Int] = true; e.Kind == kvevent.Removed {
				delete(held, h.Int)
			}
		}
	}
}

func TestThePrefixFoundIsTheOneStored(t *testing.T) {
	c := newCache(8, 4, 7, false)
	ids := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	held, ok := c.grow(nil, 3)
	hashes := c.commit(c.root("a"), "a", ids, len(ids), held, nil)
	if !ok || len(hashes) != 2 {
		t.Fatalf("%d whole blocks", len(hashes))
	}
	for _, w := range []struct {
		salt string
		ids  []uint32
		want int
	}{{"a", ids, 2}, {"a", ids[:8], 1}, {"b", ids, 0}, {"a", []uint32{1, 2, 3, 4, 9, 9, 9, 9, 9}, 1}, {"a", ids[4:], 0}} {
		got, _ := c.match(c.root(w.salt), w.ids, len(w.ids)-1, nil, nil)
		if c.release(got); len(got) != w.want {
			t.Errorf("salt %s, %v: %d blocks, want %d", w.salt, w.ids, len(got), w.want)
		}
	}
	c.release(held)
	if c.clear(); len(c.byHash) != 0 {
		t.Error("cleared prefixes are found")
	}
}
