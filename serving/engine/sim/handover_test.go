package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

var carry = strings.Repeat("carry the grain ", 40)

// pair is a prefill and a decode engine of one personality.
func pair(t *testing.T, personality string, change func(*sim.Config)) (p, d *server) {
	start := func(role string) *server {
		cfg := sim.Config{Personality: personality, Role: role, Faults: true, TransferEngine: role + "-engine"}
		if change != nil {
			change(&cfg)
		}
		return start(t, cfg)
	}
	return start("prefill"), start("decode")
}

// peer is where p is.
func (s *server) peer(t *testing.T) engine.Peer {
	t.Helper()
	var host string
	var port int
	if _, err := fmt.Sscanf(strings.Replace(strings.TrimPrefix(s.url, "http://"), ":", " ", 1), "%s %d", &host, &port); err != nil {
		t.Fatal(err)
	}
	return engine.Peer{Engine: "prefill-engine", Host: host, Port: port, Rank: -1}
}

// legs are both bodies of one attempt.
type legs struct {
	h    engine.Handoff
	over engine.Handover
	body []byte
}

var modes = []struct {
	name, personality string
	family            engine.Family
	transfer          engine.Transfer
}{
	{"nixl-pull", "vllm", engine.VLLM, engine.Transfer{Backend: "nixl"}},
	{"nixl-push", "vllm", engine.VLLM, engine.Transfer{Backend: "nixl", Mode: "push"}},
	{"mooncake", "vllm", engine.VLLM, engine.Transfer{Backend: "mooncake"}},
	{"bootstrap-rooms", "sglang", engine.SGLang, engine.Transfer{Backend: "nixl"}},
	{"context-first", "trtllm", engine.TRTLLM, engine.Transfer{Backend: "ucx"}},
	{"generation-first", "trtllm", engine.TRTLLM, engine.Transfer{Backend: "ucx", Mode: "generation_first"}},
}

func newLegs(t *testing.T, family engine.Family, tr engine.Transfer, from engine.Peer, seed string) legs {
	t.Helper()
	d, err := engine.Lookup(family)
	if err != nil {
		t.Fatal(err)
	}
	h, err := engine.HandoffOf(d, tr)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := h.Mint(strings.NewReader(strings.Repeat(seed, 64)), from)
	if err != nil {
		t.Fatal(err)
	}
	body, err := d.PrepareChat(nil, []byte(`{"model":"sim","messages":[{"role":"user","content":"`+carry+`"}],"max_tokens":12}`), engine.ChatParams{Model: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	return legs{h, engine.Handover{IDs: ids, From: from}, body}
}

// run does both legs and gives D's answer.
func (l *legs) run(t *testing.T, p, d *server) said {
	t.Helper()
	prefill := func() []byte {
		status, answer := p.post(chatPath, string(l.h.Prefill(nil, l.body, l.over)))
		if status != 200 {
			t.Errorf("P answered %d %s", status, answer)
		}
		return []byte(answer)
	}
	if !l.h.Concurrent() {
		handed, err := l.h.Read(prefill())
		if err != nil {
			t.Fatal(err)
		}
		return d.stream(chatPath, string(l.h.Decode(nil, l.body, l.over, &handed)))
	}
	done := make(chan struct{})
	go func() { defer close(done); prefill() }()
	got := d.stream(chatPath, string(l.h.Decode(nil, l.body, l.over, nil)))
	<-done
	return got
}

// In every mode D goes on where P ended: the answer is that of one engine, nothing is computed twice and nothing stays lent.
func TestEveryHandoffMode(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			p, d := pair(t, m.personality, nil)
			l := newLegs(t, m.family, m.transfer, p.peer(t), "a")
			got := l.run(t, p, d)
			alone := start(t, sim.Config{}).stream(chatPath, ask(carry, `,"max_tokens":12`+withUsage))
			if got.content[0] != alone.content[0] || got.last.Vector[usage.Output] != 12 {
				t.Errorf("%q, one engine says %q", got.content[0], alone.content[0])
			}
			if got.last.Vector[usage.Cached] != got.last.Vector.Prompt() { // what a decode engine reports: not to be billed by
				t.Errorf("D reports %v", got.last.Vector)
			}
			eventually(t, "nothing is lent", func() bool { h := p.engine.Handovers(); return h.Names == 0 && h.Blocks == 0 && h.Running == 0 })
			if ph, dh := p.engine.Handovers(), d.engine.Handovers(); ph.Transfers != 1 || dh.Transfers != 1 || dh.Recomputed+dh.Failed+ph.Failed+ph.Expired != 0 || dh.Names != 0 {
				t.Errorf("P %+v, D %+v", ph, dh)
			}
		})
	}
}

// An engine with a role proves itself without its peer.
func TestRolesAreReadyAlone(t *testing.T) {
	for _, m := range modes {
		p, d := pair(t, m.personality, nil)
		drv, err := engine.Lookup(m.family)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []*server{p, d} {
			for range 2 {
				if err := drv.Ready(t.Context(), http.DefaultClient, s.url, "sim"); err != nil || s.engine.Handovers().Deaths != 0 {
					t.Errorf("%s: %v", m.name, err)
				}
			}
		}
	}
}

// A room that is used twice ends the scheduler, and so does a role that Mooncake's connector does not have.
func TestWhatEndsAnEngine(t *testing.T) {
	p, _ := pair(t, "sglang", nil)
	l := newLegs(t, engine.SGLang, engine.Transfer{Backend: "nixl"}, p.peer(t), "a")
	body := string(l.h.Prefill(nil, l.body, l.over))
	first := make(chan struct{})
	go func() {
		defer close(first)
		if resp, err := http.Post(p.url+chatPath, "application/json", strings.NewReader(body)); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}()
	eventually(t, "the room is open", func() bool { return p.engine.Handovers().Blocks > 0 })
	if status, _ := p.post(chatPath, body); status != 500 || p.engine.Handovers().Deaths != 1 {
		t.Errorf("a room twice: %d %+v", status, p.engine.Handovers())
	}
	<-first
	if status, _ := p.post(chatPath, ask("x", "}")); status != 500 {
		t.Errorf("a dead scheduler answered %d", status)
	}
	_, d := pair(t, "vllm", nil)
	l = newLegs(t, engine.VLLM, engine.Transfer{Backend: "mooncake"}, p.peer(t), "b")
	if status, _ := d.post(chatPath, string(l.h.Prefill(nil, l.body, l.over))); status != 500 || d.engine.Handovers().Deaths != 1 {
		t.Errorf("a prefill at a decode engine: %d", status)
	}
}

// A cache that nobody fetches is freed when its lease ends; who comes later gets nothing.
func TestLeasesEnd(t *testing.T) {
	p, d := pair(t, "vllm", func(c *sim.Config) { c.Lease = 50 * time.Millisecond })
	l := newLegs(t, engine.VLLM, engine.Transfer{Backend: "nixl"}, p.peer(t), "a")
	_, answer := p.post(chatPath, string(l.h.Prefill(nil, l.body, l.over)))
	if p.engine.Handovers().Blocks == 0 {
		t.Error("nothing was lent")
	}
	eventually(t, "the lease ends", func() bool { h := p.engine.Handovers(); return h.Blocks == 0 && h.Expired == 1 })
	handed, err := l.h.Read([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := d.post(chatPath, string(l.h.Decode(nil, l.body, l.over, &handed))); status != 500 || d.engine.Handovers().Failed != 1 {
		t.Errorf("a transfer after the lease: %d", status)
	}
}

// D that is told too little computes everything and says nothing; only its counter does.
func TestSilentRecompute(t *testing.T) {
	p, d := pair(t, "vllm", nil)
	p.faults(`{"no_params":true}`)
	l := newLegs(t, engine.VLLM, engine.Transfer{Backend: "nixl"}, p.peer(t), "a")
	if got := l.run(t, p, d); got.broken != nil || d.engine.Handovers().Recomputed != 1 || d.engine.Handovers().Transfers != 0 {
		t.Errorf("%v %+v", got.broken, d.engine.Handovers())
	}
}

// A peer that leaves while the transfer runs does not stop it; one that leaves before frees its place.
func TestATransferGoesOnWithoutItsPeer(t *testing.T) {
	p, d := pair(t, "sglang", nil)
	p.faults(`{"transfer_ms":150}`)
	l := newLegs(t, engine.SGLang, engine.Transfer{Backend: "nixl"}, p.peer(t), "a")
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		status, _ := p.post(chatPath, string(l.h.Prefill(nil, l.body, l.over)))
		done <- status
	}()
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, d.url+chatPath, strings.NewReader(string(l.h.Decode(nil, l.body, l.over, nil))))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "both are in the room", func() bool { return p.engine.Handovers().Blocks > 0 && d.engine.Handovers().Names == 1 })
	time.Sleep(30 * time.Millisecond) // the transfer, which takes five times that, has begun
	leave()
	if status := <-done; status != 200 || p.engine.Handovers().Transfers != 1 {
		t.Errorf("P answered %d, %+v", status, p.engine.Handovers())
	}
	eventually(t, "the rooms are left", func() bool { return p.engine.Handovers().Names+d.engine.Handovers().Names == 0 })
}

// An answer that is continued ends as the whole one does.
func TestAnswersAreContinued(t *testing.T) {
	s := start(t, sim.Config{})
	whole := s.stream(chatPath, ask(carry, `,"max_tokens":30,"ignore_eos":true`+withUsage))
	var parts []string
	for _, c := range whole.chunks {
		for _, ch := range c.Choices {
			if ch.Delta.Content != nil && *ch.Delta.Content != "" {
				parts = append(parts, *ch.Delta.Content)
			}
		}
	}
	for n := 1; n < len(parts); n += 4 {
		said, _ := json.Marshal(strings.Join(parts[:n], ""))
		body := fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":%q},{"role":"assistant","content":%s}],"continue_final_message":true,"add_generation_prompt":false,"ignore_eos":true,"max_tokens":%d%s`, carry, said, 30-n, withUsage)
		if rest := s.stream(chatPath, body); rest.content[0] != strings.Join(parts[n:], "") || rest.last.Vector[usage.Output] != int64(30-n) {
			t.Errorf("after %d tokens: %q, want %q", n, rest.content[0], strings.Join(parts[n:], ""))
		}
	}
}
