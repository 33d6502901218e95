package route

import (
	"testing"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine/kvevent"
)

// ranked makes a unit an engine with ranks, as an agent tells it.
func (b *bench) ranked(unit ids.ID, loads ...wire.RankLoad) {
	l := wire.Load{Unit: unit, Engine: unit, State: wire.StateReady}
	for i, r := range loads {
		r.Rank = i
		l.Running, l.Waiting, l.Ranks = l.Running+r.Running, l.Waiting+r.Waiting, append(l.Ranks, r)
	}
	b.Apply(wire.Fact{Load: &l})
}

func ofRank(hashes []uint64, rank int) []uint64 {
	out := make([]uint64, len(hashes))
	for i, h := range hashes {
		out[i] = kvevent.OfRank(h, rank)
	}
	return out
}

// A prompt goes to the rank that holds it, and is predicted to be cached only there: what another rank holds is no use.
func TestAPromptGoesToTheRankThatHoldsIt(t *testing.T) {
	b := newBench(2)
	b.ranked(b.units[1], wire.RankLoad{}, wire.RankLoad{}, wire.RankLoad{}, wire.RankLoad{})
	prompt := chain(100)
	b.store(b.units[1], 1, ofRank(prompt[:90], 2)...)
	for range 10 {
		got := b.pick(t, b.request(prompt...))
		if got.Unit != b.units[1] || got.Rank != 2 || got.HitTokens != 90*16 {
			t.Fatalf("went to rank %d of %v with %d predicted hits", got.Rank, got.Unit, got.HitTokens)
		}
		got.Done(OK, 90*16)
	}
	other := b.pick(t, b.request(ofRank(chain(50), 9)...))
	if other.HitTokens != 0 {
		t.Errorf("%d tokens of another prompt", other.HitTokens)
	}
	plain := b.request(prompt...)
	plain.Candidates = plain.Candidates[:1]
	if got := b.pick(t, plain); got.Rank != AnyRank {
		t.Errorf("an engine without ranks is sent to rank %d", got.Rank)
	}
}

// Waiting requests do not pile up on a few ranks: own bookings count at once, whatever the last report said, and ties rotate.
func TestRanksShareTheWork(t *testing.T) {
	b := newBench(1)
	b.ranked(b.units[0], wire.RankLoad{}, wire.RankLoad{}, wire.RankLoad{Running: 40, Waiting: 20, QueuedTokens: 50_000}, wire.RankLoad{})
	at := map[int]int{}
	var all []*Booking
	for i := range 90 {
		got := b.pick(t, b.request(ofRank(chain(20), 100+i)...))
		at[got.Rank]++
		all = append(all, got)
	}
	for _, rank := range []int{0, 1, 3} {
		if at[rank] < 20 || at[rank] > 40 {
			t.Errorf("%v", at)
		}
	}
	if at[2] > 5 {
		t.Errorf("the busy rank got %d: %v", at[2], at)
	}
	for _, one := range all {
		one.FirstToken()
		one.Done(OK, 0)
		one.Done(OK, 0)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for rank, w := range b.Router.units[b.units[0]].work {
		if w.requests != 0 || w.prefill != 0 || w.kv != 0 {
			t.Errorf("rank %d is left with %+v", rank, w)
		}
	}
}

// An engine that shrinks has ranks that are gone: nothing is sent there, and their bookings end all the same.
func TestARankThatIsGone(t *testing.T) {
	b := newBench(1)
	b.ranked(b.units[0], wire.RankLoad{Running: 50}, wire.RankLoad{Running: 50}, wire.RankLoad{Running: 50}, wire.RankLoad{})
	last := b.pick(t, b.request(chain(10)...))
	if last.Rank != 3 {
		t.Fatalf("rank %d", last.Rank)
	}
	b.ranked(b.units[0], wire.RankLoad{}, wire.RankLoad{})
	for range 10 {
		if got := b.pick(t, b.request(chain(10)...)); got.Rank > 1 || got.Rank < 0 {
			t.Fatalf("rank %d of two", got.Rank)
		}
	}
	last.Done(OK, 0)
	b.state(b.units[0], b.units[0], wire.StateReady) // without ranks
	if got := b.pick(t, b.request(chain(10)...)); got.Rank != AnyRank {
		t.Fatalf("rank %d of none", got.Rank)
	}
}

// Ranks of a replica over several hosts are told by each host, and requests go to its first.
func TestRanksOnOtherHosts(t *testing.T) {
	b := newBench(1)
	head, shard := b.units[0], ids.New()
	b.ranked(head, wire.RankLoad{}, wire.RankLoad{}, wire.RankLoad{}, wire.RankLoad{})
	prompt := chain(40)
	b.Apply(wire.Fact{KV: &wire.KV{Unit: shard, Engine: shard, Head: head, Reset: true, Seq: 1, BlockSize: 16, Stored: ofRank(prompt, 3)}})
	got := b.pick(t, b.request(prompt...))
	if got.Unit != head || got.Rank != 3 || got.HitTokens != 40*16 {
		t.Fatalf("rank %d of %v, %d hits", got.Rank, got.Unit, got.HitTokens)
	}
	got.Done(OK, 40*16)
	b.state(shard, shard, wire.StateReady)
	b.state(shard, ids.New(), wire.StateReady) // that host's engine has begun anew
	if got := b.pick(t, b.request(prompt...)); got.HitTokens != 0 {
		t.Errorf("%d hits of an engine that is gone", got.HitTokens)
	}
}
