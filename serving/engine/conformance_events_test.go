package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"millrace/serving/engine"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/sim"
	"millrace/serving/engine/tok"
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
			ids, err := tok.ApplyChat([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			warm := 0
			eventually(t, "the subscription", func() bool { // what is published before it arrives is lost
				warm++
				r.ask(strings.Replace(body, "the river", fmt.Sprint("river ", warm), 1), engine.ChatParams{Salt: salt})
				held.poll(t, r)
				return held.some()
			})
			r.ask(body, engine.ChatParams{Salt: salt})
			eventually(t, "the events", func() bool {
				held.poll(t, r)
				return held.all(kvevent.ChainHashes(salt, ids, r.d.BlockSize()))
			})
		})
	}
}

// blocks is what a router keeps of one engine.
type blocks struct {
	mu     sync.Mutex
	held   map[uint64]bool
	mapper kvevent.Mapper
}

func newBlocks(*testing.T) *blocks { return &blocks{held: map[uint64]bool{}} }

func (x *blocks) listen(t *testing.T) string {
	t.Helper()
	sub, err := kvevent.NewSubscriber(kvevent.SubscriberConfig{Endpoint: "tcp://127.0.0.1:0", Bind: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = sub.Run(ctx, func(u kvevent.Update) { x.take(u.Blocks) }) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return sub.Endpoint()
}

// poll asks engines whose events are polled.
func (x *blocks) poll(t *testing.T, r *rig) {
	t.Helper()
	d, polls := r.d.(interface {
		PollEvents(ctx context.Context, c *http.Client, base string) (kvevent.Polled, error)
	})
	if !polls {
		return
	}
	p, err := d.PollEvents(t.Context(), http.DefaultClient, r.url)
	if err != nil {
		t.Fatal(err)
	}
	var changed []kvevent.Block
	for i := range p.Events {
		changed = x.mapper.Apply(changed, &p.Events[i])
	}
	x.take(changed)
}

func (x *blocks) take(changed []kvevent.Block) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range changed {
		x.held[b.Hash] = b.Op == kvevent.Store
	}
}

func (x *blocks) some() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, held := range x.held {
		if held {
			return true
		}
	}
	return false
}

func (x *blocks) all(hashes []uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, h := range hashes {
		if !x.held[h] {
			return false
		}
	}
	return len(hashes) > 0
}
