package sim_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/sim"
	"millrace/serving/engine/tok"
)

// index is what a router keeps of one engine: the blocks it holds.
type index struct {
	mu   sync.Mutex
	held map[uint64]bool
	size int
}

func (x *index) take(u kvevent.Update) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.size = u.BlockSize
	for _, b := range u.Blocks {
		switch b.Op {
		case kvevent.Store:
			x.held[b.Hash] = true
		case kvevent.Remove:
			delete(x.held, b.Hash)
		case kvevent.Clear:
			clear(x.held)
		}
	}
}

// hit is how many tokens of a prompt the index predicts to be cached.
func (x *index) hit(salt string, ids []uint32) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, h := range kvevent.ChainHashes(salt, ids, max(x.size, 1)) {
		if !x.held[h] {
			break
		}
		n++
	}
	return n * x.size
}

func (x *index) blocks() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.held)
}

// watch starts an engine that dials a subscriber, as an agent sets it up.
func watch(t *testing.T, cfg sim.Config) (*server, *index) {
	t.Helper()
	sub, err := kvevent.NewSubscriber(kvevent.SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true})
	if err != nil {
		t.Fatal(err)
	}
	x := &index{held: map[uint64]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = sub.Run(ctx, x.take) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	cfg.KVEndpoint = sub.Endpoint()
	s := start(t, cfg)
	for i := 0; x.blocks() == 0; i++ { // what is published before the subscription arrives is lost
		s.post(chatPath, ask(fmt.Sprint("warm up ", i, strings.Repeat(" x", 40)), `,"max_tokens":1}`))
		if i > 10_000 {
			t.Fatal("no events")
		}
		time.Sleep(time.Millisecond)
	}
	return s, x
}

// What a router predicts from events and its own tokenizer is what the engine then reports: the whole point of both.
func TestPredictedHitsAreReportedHits(t *testing.T) {
	for _, arrays := range []bool{false, true} {
		s, x := watch(t, sim.Config{KVArrays: arrays})
		history := `{"role":"system","content":"You are a patient miller. ` + strings.Repeat("Count the sacks. ", 30) + `"}`
		for turn := range 4 {
			history += fmt.Sprintf(`,{"role":"user","content":"Question %d, please."}`, turn)
			body := fmt.Sprintf(`{"model":"sim","messages":[%s],"cache_salt":"org-%v","max_tokens":60`, history, arrays)
			ids, err := s.drv.Tokens(t.Context(), nil, "", []byte(body+"}"))
			if err != nil {
				t.Fatal(err)
			}
			salt := fmt.Sprint("org-", arrays)
			predicted := x.hit(salt, ids)
			if (predicted > 0) != (turn > 0) {
				t.Errorf("turn %d: predicted %d", turn, predicted)
			}
			if x.hit("org-other", ids) != 0 || x.hit("", ids) != 0 {
				t.Error("another tenant would be predicted a hit")
			}
			got := s.stream(chatPath, body+withUsage)
			if cached := int(got.last.Vector[usage.Cached]); cached != predicted {
				t.Errorf("turn %d of %d tokens: predicted %d, reported %d", turn, len(ids), predicted, cached)
			}
			history += fmt.Sprintf(`,{"role":"assistant","content":%q}`, got.content[0])
			// All computed tokens' whole blocks are told of: the prompt's and the answer's, but for its last token.
			ids = tok.Append(ids, []byte(got.content[0]))
			eventually(t, "events arrive", func() bool { return x.hit(salt, ids) == (len(ids)-1)/16*16 })
		}
	}
}

func TestEvictedBlocksAreTold(t *testing.T) {
	s, x := watch(t, sim.Config{Context: 1000, Blocks: 80})
	for i := range 20 {
		s.post(chatPath, ask(fmt.Sprint(i, strings.Repeat(" other grain", 60)), `,"max_tokens":1}`))
	}
	// The last prompt is cached whole; of older ones only what fits.
	ids, err := s.drv.Tokens(t.Context(), nil, "", []byte(ask(fmt.Sprint(19, strings.Repeat(" other grain", 60)), "}")))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last prompt is told", func() bool { return x.hit("", ids) >= len(ids)-16 })
	if n := x.blocks(); n > 80 {
		t.Errorf("%d blocks are told of, the engine has 80", n)
	}
	s.post("/reset_prefix_cache", "")
	eventually(t, "the cache is cleared", func() bool { return x.blocks() == 0 })
}
