package kvevent

import (
	"fmt"
	"slices"
	"testing"
)

func polledAt(first int64, events ...Event) Polled {
	return Polled{First: first, Last: first + int64(len(events)) - 1, Events: events}
}

func storedAt(rank int, engineHash uint64, tokens ...uint32) Event {
	return Event{Kind: Stored, Group: -1, Rank: rank, Hashes: []Hash{{Int: engineHash}}, Tokens: tokens, BlockSize: len(tokens)}
}

// Ranks hold what they hold and nothing of each other; lost events and an engine that began anew forget everything.
func TestPollerKeepsRanksApartAndNoticesGaps(t *testing.T) {
	var p Poller
	held := map[int]map[uint64]bool{}
	take := func(polled Polled) (resets int) {
		for _, u := range p.Take(polled) {
			if u.Reset {
				delete(held, u.Rank)
				resets++
			}
			for _, b := range u.Blocks {
				if held[u.Rank] == nil {
					held[u.Rank] = map[uint64]bool{}
				}
				switch b.Op {
				case Store:
					held[u.Rank][b.Hash] = true
				case Remove:
					delete(held[u.Rank], b.Hash)
				case Clear:
					delete(held, u.Rank)
				}
			}
		}
		return resets
	}
	const one, two = 1, 2
	block := ChainHashes("", []uint32{7, 8}, 2)[0]
	if n := take(polledAt(0, storedAt(one, 11, 7, 8), storedAt(two, 11, 7, 8))); n != 0 || !held[one][block] || !held[two][block] {
		t.Fatalf("%v", held)
	}
	take(Polled{First: -1, Last: -1}) // nothing happened
	if n := take(polledAt(2, Event{Kind: Removed, Group: -1, Rank: one, Hashes: []Hash{{Int: 11}}, Medium: "GPU"})); n != 0 || held[one][block] || !held[two][block] {
		t.Fatalf("%v", held)
	}
	take(polledAt(3, Event{Kind: Cleared, Rank: one}))
	if !held[two][block] {
		t.Fatal("one rank's clearing cleared another")
	}
	if n := take(polledAt(9, storedAt(one, 12, 1, 2))); n != 2 || len(held[two]) != 0 || len(held[one]) != 1 {
		t.Fatalf("after a gap: %d resets, %v", n, held)
	}
	if n := take(polledAt(0, storedAt(two, 13, 1, 2))); n == 0 || len(held[one]) != 0 || len(held[two]) != 1 {
		t.Fatalf("after a restart: %d resets, %v", n, held)
	}
	if got := p.Take(polledAt(1, storedAt(-3, 1, 1), storedAt(100_000, 1, 1))); len(got) != 0 {
		t.Errorf("ranks that cannot be: %v", got)
	}
}

// The same block is another at each rank, and none of them is another block.
func TestRanksNeverShareAHash(t *testing.T) {
	seen := map[uint64]string{}
	for _, h := range ChainHashes("salt", slices.Repeat([]uint32{1, 2, 3, 4}, 50), 2) {
		for rank := range 512 {
			at := OfRank(h, rank)
			if was, twice := seen[at]; twice {
				t.Fatalf("%s and %x at rank %d", was, h, rank)
			}
			seen[at] = fmt.Sprintf("%x at rank %d", h, rank)
		}
	}
	if OfRank(5, 0) != 5 {
		t.Error("rank 0 is an engine without ranks")
	}
}
