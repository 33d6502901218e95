package sim

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/clock"
)

// flat is a cost model whose sums are easy: 10 ms a step with prefill or decode, 1 ms a prefill token.
var flat = Cost{A0: 10e6, A1: 1e6, B0: 10e6}

// bench is a scheduler that runs in a bubble of fake time.
type bench struct {
	*Engine
	t     *testing.T
	start time.Time
}

// inBubble runs f with a running engine; all time in it is the bubble's.
func inBubble(t *testing.T, cfg Config, f func(*bench)) {
	synctest.Test(t, func(t *testing.T) {
		if cfg.Cost == (Cost{}) {
			cfg.Cost = flat
		}
		if cfg.Speed == 0 {
			cfg.Speed = 1
		}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = e.Run(ctx) })
		f(&bench{Engine: e, t: t, start: clock.System.Now()})
		cancel()
		wg.Wait()
	})
}

// ask queues a prompt of n tokens, different for every kind, with an answer of target tokens.
func (b *bench) ask(kind, n, target int) *sequence {
	s := b.sequence(kind, n, target)
	if !b.sched.submit([]*sequence{s}) {
		b.t.Fatal("the queue is full")
	}
	return s
}

func (b *bench) sequence(kind, n, target int) *sequence {
	s := &sequence{prompt: n, target: target, wake: make(chan struct{}, 1), answer: &script{}}
	for i := range n {
		s.ids = append(s.ids, uint32(kind*100000+i))
	}
	s.answer.extend(target)
	return s
}

// at checks how many tokens a sequence has after a while since the start.
func (b *bench) at(after time.Duration, s *sequence, want int64, what string) {
	b.t.Helper()
	time.Sleep(b.start.Add(after).Sub(clock.System.Now()))
	synctest.Wait()
	if got := s.produced.Load(); got != want {
		b.t.Errorf("%s: %d tokens after %v, want %d", what, got, after, want)
	}
}

const ms = time.Millisecond

// Of those that wait the lowest rank is next, however late it came; what runs is not sent away.
func TestRankOrdersTheQueue(t *testing.T) {
	inBubble(t, Config{Slots: 1}, func(b *bench) {
		running := b.ask(1, 20, 3) // 30 ms of prefill and 20 ms of decode
		b.at(31*ms, running, 1, "it runs")
		last, middle, first := b.sequence(2, 10, 1), b.sequence(3, 10, 1), b.sequence(4, 10, 1)
		last.rank, first.rank = 1, -1
		for _, s := range []*sequence{last, middle, first} {
			if !b.sched.submit([]*sequence{s}) {
				t.Fatal("the queue is full")
			}
		}
		for _, s := range []*sequence{running, first, middle, last} {
			for s.produced.Load() < int64(s.target) {
				time.Sleep(ms)
			}
			for _, later := range map[*sequence][]*sequence{running: {first, middle, last}, first: {middle, last}, middle: {last}}[s] {
				if later.produced.Load() > 0 {
					t.Fatal("one of a higher rank was served first")
				}
			}
		}
	})
}

func TestTimeFollowsTheCostModel(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		s := b.ask(1, 20, 3) // 10 + 20 ms of prefill, then 10 ms a token
		b.at(29*ms, s, 0, "in prefill")
		b.at(31*ms, s, 1, "after prefill")
		b.at(41*ms, s, 2, "one step later")
		b.at(51*ms, s, 3, "at the end")
		if !s.done.Load() || b.sched.cache.free != len(b.sched.cache.blocks) {
			t.Error("it has not ended, or its blocks are held")
		}
	})
}

func TestSpeedScalesTime(t *testing.T) {
	inBubble(t, Config{Speed: 10}, func(b *bench) {
		s := b.ask(1, 20, 3)
		b.at(3*ms+ms/2, s, 1, "ten times as fast")
	})
}

func TestRequestsJoinARunningBatch(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		first := b.ask(1, 10, 100) // first token at 20 ms
		b.at(45*ms, first, 3, "alone")
		second := b.ask(2, 10, 100) // joins the step that starts at 50 ms, which takes 10 + 10 ms for both
		b.at(69*ms, second, 0, "before the joint step ends")
		b.at(71*ms, second, 1, "after it")
		b.at(71*ms, first, 5, "slowed down by the other's prefill")
		b.at(81*ms, second, 2, "decoding together")
		b.at(81*ms, first, 6, "decoding together")
	})
}

func TestLongPromptsAreComputedInChunks(t *testing.T) {
	inBubble(t, Config{BatchTokens: 100}, func(b *bench) {
		short := b.ask(1, 10, 100)
		b.at(25*ms, short, 1, "alone")
		long := b.ask(2, 250, 10)
		// Steps from 30 ms on: 99 tokens (109 ms), 99 (109 ms), 52 (62 ms): the short one gets a token in each.
		b.at(138*ms, short, 2, "before the first chunk ends")
		b.at(140*ms, short, 3, "after the first chunk")
		b.at(249*ms, short, 4, "after the second chunk")
		b.at(311*ms, long, 1, "after the last chunk")
	})
}

func TestSlotsBoundTheBatch(t *testing.T) {
	inBubble(t, Config{Slots: 1, Queue: 2}, func(b *bench) {
		first, second := b.ask(1, 10, 3), b.ask(2, 10, 3) // first ends at 40 ms
		if b.sched.submit([]*sequence{b.sequence(3, 1, 1), b.sequence(4, 1, 1)}) {
			t.Error("a queue of two took a third and a fourth")
		}
		b.at(41*ms, first, 3, "first")
		b.at(59*ms, second, 0, "second waits")
		b.at(61*ms, second, 1, "second")
	})
}

func TestACachedPrefixIsNotComputedAgain(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		first := b.ask(1, 100, 1)
		b.at(111*ms, first, 1, "cold")
		second := b.ask(1, 100, 1) // 96 of 100 tokens are found: 10 + 4 ms
		b.at(124*ms, second, 0, "warm")
		b.at(126*ms, second, 1, "warm")
		if first.cached.Load() != 0 || second.cached.Load() != 96 {
			t.Errorf("%d and %d tokens cached", first.cached.Load(), second.cached.Load())
		}
		other := b.sequence(1, 100, 1)
		other.salt = "another tenant"
		b.sched.submit([]*sequence{other})
		b.at(250*ms, other, 1, "salted")
		if other.cached.Load() != 0 {
			t.Error("a prefix was found across salts")
		}
	})
}

func TestATransferredPromptIsFree(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		s := b.sequence(1, 1000, 2)
		s.remote = true
		b.sched.submit([]*sequence{s})
		b.at(12*ms, s, 1, "after one step of one token")
		b.at(22*ms, s, 2, "decoding")
		if s.cached.Load() != 0 {
			t.Errorf("%d tokens reported as cached", s.cached.Load())
		}
		again := b.ask(1, 1000, 1) // its blocks are in the cache now
		b.at(60*ms, again, 1, "found")
	})
}

func TestAbortFreesTheSlotAtOnce(t *testing.T) {
	inBubble(t, Config{Slots: 1}, func(b *bench) {
		first, second, third := b.ask(1, 10, 1000), b.ask(2, 10, 5), b.ask(3, 10, 5)
		b.at(45*ms, first, 3, "running")
		b.sched.abort([]*sequence{first, second})
		if r, w, tokens, usage := b.sched.load(); r != 0 || w != 1 || tokens != 10 || usage != 0 {
			t.Errorf("%d running, %d waiting with %d tokens, %v of the cache", r, w, tokens, usage)
		}
		b.at(75*ms, third, 1, "the third took the slot") // the step under way ends at 50 ms
		if first.produced.Load() != 3 || second.produced.Load() != 0 || !second.done.Load() {
			t.Error("an aborted request went on")
		}
		b.sched.abort([]*sequence{first}) // twice is once
	})
}

func TestWhenBlocksRunOutTheYoungestWaits(t *testing.T) {
	inBubble(t, Config{Context: 60, BlockSize: 4, Blocks: 16}, func(b *bench) { // 64 tokens of cache
		first := b.ask(1, 20, 30)
		second := b.ask(2, 20, 30)
		b.at(10*time.Second, first, 30, "first")
		b.at(10*time.Second, second, 30, "second")
		if b.stats.preempted.Load() == 0 {
			t.Error("nothing was preempted, though both together need 100 tokens")
		}
		if b.sched.cache.free != len(b.sched.cache.blocks) {
			t.Error("blocks are lost")
		}
	})
}

func TestStoppingEndsEverySequence(t *testing.T) {
	var s, waiting *sequence
	inBubble(t, Config{Slots: 1}, func(b *bench) {
		s, waiting = b.ask(1, 10, 1000), b.ask(2, 10, 10)
		b.at(25*ms, s, 1, "running")
	})
	if !s.done.Load() || !waiting.done.Load() || s.produced.Load() >= 1000 {
		t.Error("sequences outlive the engine")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{{Context: 1}, {Speed: -1}, {Blocks: 3}, {Slots: -1}, {KVEndpoint: "nowhere"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}
