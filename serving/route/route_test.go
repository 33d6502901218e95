package route

import (
	"testing"
	"time"

	"millrace/agents/wire"
	"millrace/internal/clock"
	"millrace/internal/fault"
	"millrace/internal/ids"
)

type bench struct {
	*Router
	clock *clock.Manual
	units []ids.ID
	model ids.ID
}

// newBench makes a router with n ready units, each with an engine and an empty cache.
func newBench(n int) *bench {
	c := clock.NewManual(time.Unix(1_800_000_000, 0))
	b := &bench{Router: New(c, nil), clock: c, model: ids.New()}
	for range n {
		id := ids.New()
		b.units = append(b.units, id)
		b.state(id, id, wire.StateReady)
		b.Apply(wire.Fact{KV: &wire.KV{Unit: id, Engine: id, Reset: true, BlockSize: 16}})
	}
	return b
}

func (b *bench) state(unit, engine ids.ID, state string) {
	b.Apply(wire.Fact{Load: &wire.Load{Unit: unit, Engine: engine, State: state}})
}

func (b *bench) store(unit ids.ID, seq int64, hashes ...uint64) bool {
	return b.Apply(wire.Fact{KV: &wire.KV{Unit: unit, Engine: unit, Seq: seq, BlockSize: 16, Stored: hashes}})
}

func (b *bench) request(hashes ...uint64) Request {
	r := Request{Model: b.model, Hashes: hashes, BlockSize: 16, PromptTokens: int64(16*len(hashes)) + 8, OutputTokens: 64}
	for _, u := range b.units {
		r.Candidates = append(r.Candidates, Candidate{Unit: u})
	}
	return r
}

func (b *bench) pick(t *testing.T, r Request) *Booking {
	t.Helper()
	got, err := b.Pick(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func chain(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		out[i] = uint64(i)*7919 + 1
	}
	return out
}

func TestARepeatedPrefixGoesWhereItIsCached(t *testing.T) {
	b := newBench(4)
	prompt := chain(100)
	b.store(b.units[2], 1, prompt[:90]...)
	for range 20 {
		got := b.pick(t, b.request(prompt...))
		if got.Unit != b.units[2] || got.HitTokens != 90*16 {
			t.Fatalf("went to %v with %d predicted hits", got.Unit, got.HitTokens)
		}
		got.Done(OK, 90*16)
	}
	if s := b.Stats(); s.Bookings != 0 || s.Off != 0 || s.PredictedTokens != s.ReportedTokens {
		t.Fatalf("%+v", s)
	}
}

// Affinity is bounded per request: a holder with a long queue loses to an idle unit, without a fleet-wide switch.
func TestAHotPrefixSpillsOver(t *testing.T) {
	b := newBench(2)
	prompt := chain(100)
	b.store(b.units[0], 1, prompt...)
	cold := b.request(chain(4000)...)
	cold.Candidates = cold.Candidates[:1]
	b.pick(t, cold) // 64,000 uncached tokens are now booked on the holder
	if got := b.pick(t, b.request(prompt...)); got.Unit != b.units[1] {
		t.Fatal("queued behind 64,000 tokens for a hit of 1,600")
	}
}

func TestLoadSpreads(t *testing.T) {
	b := newBench(4)
	seen := map[ids.ID]int{}
	for range 40 {
		seen[b.pick(t, b.request(chain(50)[40:]...)).Unit]++
	}
	for _, u := range b.units {
		if n := seen[u]; n < 8 || n > 12 {
			t.Fatalf("uneven: %v", seen)
		}
	}
}

func TestAUnitThatIsNotReadyGetsNothing(t *testing.T) {
	b := newBench(2)
	prompt := chain(50)
	b.store(b.units[0], 1, prompt...)
	for _, state := range []string{wire.StateDraining, wire.StateFaulted, wire.StateStarting, wire.StateStopped} {
		b.state(b.units[0], b.units[0], state)
		if got := b.pick(t, b.request(prompt...)); got.Unit == b.units[0] {
			t.Fatalf("sent to a %s unit", state)
		}
	}
	b.state(b.units[1], b.units[1], wire.StateStopped)
	if _, err := b.Pick(b.request(prompt...)); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("no unit left: %v", err)
	}
}

func TestStaleFactsNeverRejectTheLastUnit(t *testing.T) {
	b := newBench(2)
	b.clock.Advance(time.Hour)
	b.pick(t, b.request(chain(4)...))
	b.state(b.units[1], b.units[1], wire.StateReady)
	for range 5 {
		if got := b.pick(t, b.request(chain(4)...)); got.Unit != b.units[1] {
			t.Fatal("a fresh unit must win over a stale one")
		}
	}
}

func TestFailuresEjectForAWhile(t *testing.T) {
	b := newBench(2)
	prompt := chain(50)
	b.store(b.units[0], 1, prompt...)
	b.pick(t, b.request(prompt...)).Done(Failed, -1)
	if got := b.pick(t, b.request(prompt...)); got.Unit == b.units[0] {
		t.Fatal("sent to a unit that just failed")
	}
	b.clock.Advance(ejectFirst)
	b.state(b.units[0], b.units[0], wire.StateReady)
	b.state(b.units[1], b.units[1], wire.StateReady)
	if got := b.pick(t, b.request(prompt...)); got.Unit != b.units[0] {
		t.Fatal("not taken back")
	}
	only := b.request(prompt...)
	only.Candidates = only.Candidates[:1]
	b.pick(t, only).Done(Failed, -1)
	b.pick(t, only) // ejected, but the only one
}

func TestARestartedEngineStartsEmpty(t *testing.T) {
	b := newBench(2)
	prompt := chain(50)
	b.store(b.units[0], 1, prompt...)
	b.state(b.units[0], ids.New(), wire.StateReady)
	if got := b.pick(t, b.request(prompt...)); got.HitTokens != 0 {
		t.Fatal("predicted a hit in a cache that died with its engine")
	}
}

func TestMissedEventsAskForASnapshot(t *testing.T) {
	b := newBench(1)
	u := b.units[0]
	if b.store(u, 1, 1) || !b.store(u, 3, 2) || !b.store(u, 4, 3) {
		t.Fatal("a gap must ask for a snapshot until one arrives")
	}
	b.Apply(wire.Fact{KV: &wire.KV{Unit: u, Engine: u, Seq: 9, Reset: true, Stored: []uint64{1, 2, 3}}})
	for range 2 {
		if b.store(u, 10, 4) {
			t.Fatal("in step again, repeats are harmless")
		}
	}
	if got := b.pick(t, b.request(1, 2, 3, 4)); got.HitTokens != 64 {
		t.Fatalf("hit %d", got.HitTokens)
	}
}

func TestSessionsStayTogetherWhenNothingElseDecides(t *testing.T) {
	b := newBench(8)
	r := b.request()
	r.PromptTokens, r.Affinity = 100, 42
	first := b.pick(t, r)
	first.Done(OK, 0)
	for range 10 {
		got := b.pick(t, r)
		if got.Unit != first.Unit {
			t.Fatal("the session moved between idle units")
		}
		got.Done(OK, 0)
	}
}

func TestApproximatePrefixesAreLearnedFromRouting(t *testing.T) {
	b := newBench(4)
	prompt := make([]byte, 10*ByteBlock)
	req := func(salt string) Request {
		r := b.request()
		r.Hashes, r.Approximate, r.BlockSize, r.PromptTokens = ByteChain(salt, prompt), true, ApproxTokensPerByteBlock, 700
		return r
	}
	first := b.pick(t, req("org-a"))
	first.Done(OK, -1)
	again := b.pick(t, req("org-a"))
	if again.Unit != first.Unit || again.HitTokens != 10*ApproxTokensPerByteBlock {
		t.Fatal("not learned")
	}
	again.Done(OK, -1)
	if other := b.pick(t, req("org-b")); other.HitTokens != 0 {
		t.Fatal("another organization saw the hit")
	}
}

func TestBookingsEndOnce(t *testing.T) {
	b := newBench(1)
	k := b.pick(t, b.request(chain(10)...))
	k.FirstToken()
	k.FirstToken()
	k.Done(Cancelled, -1)
	k.Done(Failed, -1)
	u := b.Router.units[b.units[0]]
	if u.prefill != 0 || u.kv != 0 || len(u.bookings) != 0 || u.failures != 0 {
		t.Fatalf("%+v", u)
	}
	b.pick(t, b.request(chain(10)...))
	b.clock.Advance(bookingExpiry + time.Second)
	b.pick(t, b.request(chain(10)...)).Done(OK, -1)
	if u.prefill != 0 || len(u.bookings) != 0 {
		t.Fatalf("a lost booking still weighs: %+v", u)
	}
}

func TestSpareCountsWhoIsReadyAndHeard(t *testing.T) {
	b := newBench(3)
	load := func(i, waiting int, state string) {
		b.Apply(wire.Fact{Load: &wire.Load{Unit: b.units[i], Engine: b.units[i], State: state, Waiting: waiting}})
	}
	load(0, 2, wire.StateReady)
	load(1, 5, wire.StateStarting)
	if s := b.Spare(append(b.units, ids.New())); s != (Spare{Ready: 2, Waiting: 2}) {
		t.Errorf("%+v", s)
	}
	b.clock.Advance(factsFresh)
	load(2, 1, wire.StateReady)
	if s := b.Spare(b.units); s != (Spare{Ready: 1, Waiting: 1}) {
		t.Errorf("stale reports count: %+v", s)
	}
}

func TestUnheardCountsThoseAskedFor(t *testing.T) {
	r := New(clock.System, nil)
	old, fresh := ids.New(), ids.New()
	r.Apply(wire.Fact{Load: &wire.Load{Unit: old, State: wire.StateStopped}})
	if n := r.Unheard([]ids.ID{fresh}); n != 1 {
		t.Errorf("%d", n)
	}
	r.Apply(wire.Fact{Load: &wire.Load{Unit: fresh, State: wire.StateReady}})
	if n := r.Unheard([]ids.ID{fresh, old}); n != 0 {
		t.Errorf("%d", n)
	}
}
