package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/sim"
)

// Blocks that an engine tells of are those that a router looks up for the same tokens.
func TestEventsTellTheBlocksThatRoutersLookUp(t *testing.T) {
	for _, p := range pairs {
		if p.family == engine.OpenAI {
			continue
		}
		t.Run(string(p.family)+" before "+p.personality, func(t *testing.T) {
			held, cfg := newBlocks(t), sim.Config{}
			if driver(t, p.family).Caps().KVEvents {
				cfg.KVEndpoint = held.listen(t)
			}
			r := p.start(t, cfg)
			salt := ""
			if r.d.Caps().KVEvents {
				salt = "org" // polled events do not tell it
			}
			body := fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":3}`, strings.Repeat("the river flows past the mill ", 40))
			ids := r.tokens(body)
			warm := 0
			eventually(t, "the subscription", func() bool { // what is published before it arrives is lost
				warm++
				r.ask(strings.Replace(body, "the river", fmt.Sprint("river ", warm), 1), engine.ChatParams{Salt: salt})
				held.poll(t, r)
				return held.some(0)
			})
			r.ask(body, engine.ChatParams{Salt: salt})
			eventually(t, "the events", func() bool {
				held.poll(t, r)
				return held.all(0, kvevent.ChainHashes(salt, ids, r.d.BlockSize()))
			})
		})
	}
}

// Ranks have caches of their own: a prompt that one of them computed is cached there and at no other, and a router that
// names the rank with the request gets what its index says. Both shapes of published events, and polled ones.
func TestRanksHaveCachesOfTheirOwn(t *testing.T) {
	const ranks = 3
	for _, p := range pairs {
		for _, arrays := range []bool{false, true} {
			if p.family == engine.OpenAI || arrays && !driver(t, p.family).Caps().KVEvents {
				continue
			}
			t.Run(fmt.Sprint(p.family, " before ", p.personality, ", arrays ", arrays), func(t *testing.T) {
				held, cfg := newBlocks(t), sim.Config{Ranks: ranks, KVArrays: arrays}
				if driver(t, p.family).Caps().KVEvents {
					cfg.KVEndpoint = held.listenAt(t, ranks)
				}
				r := p.start(t, cfg)
				aRankOfEach(t, r, held, ranks)
			})
		}
	}
}

func aRankOfEach(t *testing.T, r *rig, held *blocks, ranks int) {
	salt := ""
	if r.d.Caps().KVEvents {
		salt = "org"
	}
	prompt := func(n int) string {
		return fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":3}`, strings.Repeat(fmt.Sprint("river ", n, " flows past the mill "), 40))
	}
	for rank := range ranks {
		warm := 0
		eventually(t, "the subscription", func() bool {
			warm++
			r.rank = rank
			r.ask(prompt(1000*(rank+1)+warm), engine.ChatParams{Salt: salt})
			held.poll(t, r)
			return r.d.Caps().RankHeader == "" || held.some(rank)
		})
	}
	if r.d.Caps().RankHeader == "" {
		eventually(t, "any rank's events", func() bool { held.poll(t, r); return held.some(0) || held.some(1) || held.some(2) })
		return // which rank computes a prompt is the engine's choice
	}
	for rank := range ranks {
		body := prompt(rank)
		r.rank = rank
		r.ask(body, engine.ChatParams{Salt: salt})
		ids := r.tokens(body)
		hashes := kvevent.ChainHashes(salt, ids, r.d.BlockSize())
		eventually(t, "the rank's events", func() bool { return held.all(rank, hashes) })
		other := (rank + 1) % ranks
		if held.all(other, hashes[:1]) {
			t.Errorf("rank %d is told to hold what rank %d computed", other, rank)
		}
		for _, at := range []int{rank, other} {
			r.rank = at
			got := r.ask(body, engine.ChatParams{Salt: salt}).report
			if (got.Vector[usage.Cached] > 0) != (at == rank) {
				t.Errorf("rank %d has %d tokens of what rank %d computed", at, got.Vector[usage.Cached], rank)
			}
		}
	}
}

// blocks is what a router keeps of one engine, by the hash at the rank.
type blocks struct {
	mu     sync.Mutex
	held   map[uint64]bool
	ranks  map[int]map[uint64]bool
	poller kvevent.Poller
}

func newBlocks(*testing.T) *blocks {
	return &blocks{held: map[uint64]bool{}, ranks: map[int]map[uint64]bool{}}
}

func (x *blocks) listen(t *testing.T) string { return x.listenAt(t, 1) }

// Ports below those that the kernel gives to connections: among these, neighbours are rarely free on a busy machine.
const (
	firstPort = 11_000
	lastPort  = 18_000
)

// listenAt listens at ports side by side, one for each rank, and gives the first's endpoint.
func (x *blocks) listenAt(t *testing.T, ranks int) string {
	t.Helper()
	for range 50 {
		base := firstPort + rand.IntN(lastPort-firstPort-ranks)
		var subs []*kvevent.Subscriber
		for n := range ranks {
			sub, err := kvevent.NewSubscriber(kvevent.SubscriberConfig{Endpoint: fmt.Sprintf("tcp://127.0.0.1:%d", base+n), Bind: true, Rank: n})
			if err != nil {
				break
			}
			subs = append(subs, sub)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		for _, sub := range subs {
			running.Go(func() { _ = sub.Run(ctx, x.take) })
		}
		if len(subs) == ranks {
			t.Cleanup(func() { cancel(); running.Wait() })
			return subs[0].Endpoint()
		}
		cancel()
		running.Wait()
	}
	t.Fatal("no ports side by side")
	return ""
}

// poll asks engines whose events are polled.
func (x *blocks) poll(t *testing.T, r *rig) {
	t.Helper()
	d, polls := r.d.(interface {
		PollEvents(ctx context.Context, c *http.Client, base string) (kvevent.Polled, error)
	})
	if polls != r.d.Caps().Polled {
		t.Fatalf("polled is %v", polls)
	}
	if !polls {
		return
	}
	p, err := d.PollEvents(t.Context(), http.DefaultClient, r.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, up := range x.poller.Take(p) {
		x.take(up)
	}
}

func (x *blocks) take(up kvevent.Update) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range up.Blocks {
		x.held[kvevent.OfRank(b.Hash, up.Rank)] = b.Op == kvevent.Store
		if x.ranks[up.Rank] == nil {
			x.ranks[up.Rank] = map[uint64]bool{}
		}
		x.ranks[up.Rank][b.Hash] = b.Op == kvevent.Store
	}
}

func (x *blocks) some(rank int) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, held := range x.ranks[rank] {
		if held {
			return true
		}
	}
	return false
}

func (x *blocks) all(rank int, hashes []uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range hashes {
		if !x.held[kvevent.OfRank(h, rank)] {
			return false
		}
	}
	return len(hashes) > 0
}
