package route

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"millrace/agents/wire"
	"millrace/internal/ids"
	"millrace/serving/engine/kvevent"
)

// pairs makes a router with one unit of p prefill and d decode engines, all ready.
func pairs(p, d int) (*bench, Candidate) {
	b := newBench(p + d)
	return b, Candidate{Unit: ids.New(), Prefill: b.units[:p], Decode: b.units[p:]}
}

func ask(c Candidate, hashes []uint64, output int64) Request {
	return Request{Candidates: []Candidate{c}, Hashes: hashes, BlockSize: 16, PromptTokens: int64(16*len(hashes)) + 8, OutputTokens: output}
}

// P is chosen by what it has cached and what waits there, D by its batch and its cache; both are booked.
func TestAPairIsChosen(t *testing.T) {
	b, c := pairs(3, 3)
	prompt := chain(500)
	b.store(c.Prefill[1], 1, prompt[:450]...)
	b.store(c.Decode[0], 1, prompt...) // of no use: the prompt comes with its cache
	b.Apply(wire.Fact{Load: &wire.Load{Unit: c.Decode[0], State: wire.StateReady, Running: 400}})
	b.Apply(wire.Fact{Load: &wire.Load{Unit: c.Decode[2], State: wire.StateReady, Running: 300}})
	got := b.pick(t, ask(c, prompt, 100))
	if got.Unit != c.Unit || got.Engine != c.Decode[1] || got.Prefill.Engine != c.Prefill[1] || got.HitTokens != 450*16 || got.Prefill.HitTokens != 450*16 {
		t.Errorf("%+v, prefill %+v", got, got.Prefill)
	}
	if s := b.Stats(); s.Bookings != 2 || s.Transfers != 1 {
		t.Errorf("%+v", s)
	}
	b.Apply(wire.Fact{Load: &wire.Load{Unit: c.Prefill[1], State: wire.StateReady, QueuedTokens: 100_000}})
	if other := b.pick(t, ask(c, prompt, 100)); other.Prefill.Engine == c.Prefill[1] {
		t.Error("a hit was worth a queue of 100,000 tokens")
	} else {
		other.Prefill.Done(Cancelled, -1)
		other.Done(Cancelled, -1)
	}
	got.Prefill.FirstToken()
	got.FirstToken()
	if s := b.Stats(); s.Transfers != 0 || s.Bookings != 2 {
		t.Errorf("after the first token: %+v", s)
	}
	for range 2 { // the second time does nothing
		got.Prefill.Done(OK, 450*16)
		got.Done(OK, -1)
	}
	if s := b.Stats(); s.Bookings != 0 || s.Requests != 1 || s.Off != 0 {
		t.Errorf("at the end: %+v", s)
	}
}

// Engines that are down are left out; without prefill a short prompt goes to decode alone, a long one nowhere.
func TestWithoutPrefill(t *testing.T) {
	b, c := pairs(1, 2)
	c.Alone = 1000
	b.state(c.Decode[0], c.Decode[0], wire.StateStopped)
	if got := b.pick(t, ask(c, chain(10), 100)); got.Engine != c.Decode[1] {
		t.Errorf("%+v", got)
	}
	b.state(c.Prefill[0], c.Prefill[0], wire.StateStopped)
	if got := b.pick(t, ask(c, chain(10), 100)); got.Prefill != nil || got.Engine != c.Decode[1] || got.Unit != c.Unit {
		t.Errorf("%+v", got)
	}
	if got, err := b.Pick(ask(c, chain(100), 100)); err == nil {
		t.Errorf("1,608 tokens went to %+v", got)
	}
	c.Whole = true
	if got := b.pick(t, ask(c, chain(100), 100)); got.Prefill != nil {
		t.Errorf("what is not handed over: %+v", got)
	}
	b.state(c.Decode[1], c.Decode[1], wire.StateStopped)
	if got, err := b.Pick(ask(c, chain(10), 100)); err == nil || Full(err) {
		t.Errorf("without decode: %+v %v", got, err)
	}
}

// More prompts than so many are not handed over at once; whoever waits is told when there is a place.
func TestHandOversAreCapped(t *testing.T) {
	b, c := pairs(1, 1)
	var all []*Booking
	for range maxTransfers {
		all = append(all, b.pick(t, ask(c, nil, 10)))
	}
	freed := b.Freed()
	if got, err := b.Pick(ask(c, nil, 10)); !Full(err) {
		t.Fatalf("%+v %v", got, err)
	}
	select {
	case <-freed:
		t.Fatal("a place was told of that is not there")
	default:
	}
	all[3].FirstToken()
	<-freed
	again := b.pick(t, ask(c, nil, 10))
	for _, k := range append(all, again) {
		k.Prefill.Done(OK, -1)
		k.Done(OK, -1)
	}
	if s := b.Stats(); s.Bookings != 0 || s.Transfers != 0 {
		t.Errorf("%+v", s)
	}
}

// Beside a unit that does all itself, the prompt's length and the load decide: short prompts are not worth a hand-over to
// an idle pair, long ones do not go between the answers of a busy engine.
func TestUnitsOfBothKindsBesideEachOther(t *testing.T) {
	for _, tt := range []struct {
		name           string
		tokens         int
		whole, d       int // running there
		prefilled      int64
		pair, anything bool
	}{
		{"a long prompt, busy engines", 4000, 64, 64, 0, true, false},
		{"a short prompt, busy pair", 5, 0, 800, 0, false, false},
		{"a short prompt, idle", 5, 0, 0, 0, false, true},
		{"a long prompt, a queue before prefill", 2000, 0, 0, 60_000, false, false},
	} {
		b := newBench(3)
		pair, whole := Candidate{Unit: ids.New(), Prefill: b.units[:1], Decode: b.units[1:2]}, Candidate{Unit: b.units[2]}
		b.Apply(wire.Fact{Load: &wire.Load{Unit: whole.Unit, State: wire.StateReady, Running: tt.whole}})
		b.Apply(wire.Fact{Load: &wire.Load{Unit: pair.Decode[0], State: wire.StateReady, Running: tt.d}})
		b.Apply(wire.Fact{Load: &wire.Load{Unit: pair.Prefill[0], State: wire.StateReady, QueuedTokens: tt.prefilled}})
		req := ask(pair, chain(tt.tokens), 200)
		req.Candidates = append(req.Candidates, whole)
		if got := b.pick(t, req); !tt.anything && (got.Unit == pair.Unit) != tt.pair {
			t.Errorf("%s: the pair: %v", tt.name, got.Unit == pair.Unit)
		}
	}
}

// Whatever happens to bookings, in any order and more than once, nothing of them is left.
func TestBookingsOfPairsEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, c := pairs(2, 2)
		c.Alone = 500
		var all []*Booking
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if k, err := b.Pick(ask(c, chain(rapid.IntRange(0, 60).Draw(t, "blocks")), 10)); err == nil {
				all = append(all, k)
			}
			k := rapid.SampledFrom(append(all, nil)).Draw(t, "booking")
			if k == nil {
				continue
			}
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				k.FirstToken()
			case 1:
				k.Done(rapid.SampledFrom([]Outcome{OK, Failed, Cancelled}).Draw(t, "outcome"), 3)
			case 2:
				k.DoesAll()
			case 3:
				if k.Prefill != nil {
					k.Prefill.Done(Cancelled, -1)
				}
			case 4:
				b.clock.Advance(time.Minute)
			}
		}
		for _, k := range all {
			k.Done(OK, -1)
			if k.Prefill != nil {
				k.Prefill.Done(OK, -1)
			}
		}
		if s := b.Stats(); s.Bookings != 0 || s.Transfers != 0 {
			t.Fatalf("%+v", s)
		}
		for id, u := range b.Router.units {
			if u.prefill != 0 || u.kv != 0 || u.incoming != 0 {
				t.Fatalf("%v: %+v", id, u)
			}
		}
	})
}

// Where prefill engines have ranks, the one that holds the prompt computes it.
func TestRanksOfPrefillEngines(t *testing.T) {
	b, c := pairs(1, 1)
	loads := []wire.RankLoad{{Rank: 0}, {Rank: 1}, {Rank: 2}}
	b.Apply(wire.Fact{Load: &wire.Load{Unit: c.Prefill[0], Engine: c.Prefill[0], State: wire.StateReady, Ranks: loads}})
	prompt := chain(50)
	held := make([]uint64, len(prompt))
	for i, h := range prompt {
		held[i] = kvevent.OfRank(h, 2)
	}
	b.store(c.Prefill[0], 1, held...)
	got := b.pick(t, ask(c, prompt, 10))
	if got.Prefill.Rank != 2 || got.Rank != AnyRank || got.HitTokens != 50*16 {
		t.Errorf("%+v, prefill %+v", got, got.Prefill)
	}
	got.Prefill.Done(OK, -1)
	got.Done(OK, -1)
}
