package sim_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

// eventually polls until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func (s *server) faults(f string) {
	s.t.Helper()
	if status, got := s.post("/sim/faults", f); status != 200 {
		s.t.Fatalf("%s: %d %s", f, status, got)
	}
}

const chatPath = "/v1/chat/completions"

func TestFaultsInStreams(t *testing.T) {
	s := start(t, sim.Config{Faults: true})
	body := ask("go", `,"max_tokens":20,"ignore_eos":true`+withUsage)
	for _, c := range []struct {
		fault  string
		tokens int64 // of the last usage that is possible
		check  func(said) bool
	}{
		{`{"die_after_tokens":5}`, 5, func(g said) bool { return errors.Is(g.broken, io.ErrUnexpectedEOF) }},
		{`{"reset_after_tokens":5}`, 5, func(g said) bool { return errors.Is(g.broken, syscall.ECONNRESET) }},
		{`{"error_in_stream":5}`, 5, func(g said) bool {
			n := len(g.chunks)
			return g.broken == nil && g.chunks[n-1].Error != nil && g.lines[len(g.lines)-1] == "data: [DONE]"
		}},
		{`{"garbage_chunk":5}`, 20, func(g said) bool { return g.broken == nil && len(g.lines) == len(g.chunks)+2 }},
		{`{"no_usage":true}`, 0, func(g said) bool { return !strings.Contains(strings.Join(g.lines, ""), "usage") }},
		{`{"absurd_usage":true}`, 0, func(g said) bool { return strings.Contains(strings.Join(g.lines, ""), `"usage":{`) }},
		{`{}`, 20, func(g said) bool { return g.broken == nil && g.finish[0] == "length" }},
	} {
		s.faults(c.fault)
		got := s.stream(chatPath, body)
		if !c.check(got) || got.last.Vector[usage.Output] != c.tokens {
			t.Errorf("%s: %v, %d lines, %v", c.fault, got.broken, len(got.lines), got.last.Vector)
		}
	}
}

func TestFaultsBeforeTheFirstToken(t *testing.T) {
	s := start(t, sim.Config{Faults: true})
	s.faults(`{"fail_before_first":503,"times":2}`)
	for i, want := range []int{503, 503, 200} {
		if got, _ := s.post(chatPath, ask("x", "}")); got != want {
			t.Errorf("request %d: %d, want %d", i, got, want)
		}
	}
	s.faults(`{"fail_before_first":500,"streams_only":true}`)
	if err := s.drv.Ready(t.Context(), http.DefaultClient, s.url, "sim"); err != nil {
		t.Errorf("a probe was hit: %v", err)
	}
	if got, _ := s.post(chatPath, ask("x", `,"stream":true}`)); got != 500 {
		t.Errorf("a stream was answered with %d", got)
	}
	for _, bad := range []string{`{"die":1}`, `[`} {
		if got, _ := s.post("/sim/faults", bad); got != 400 {
			t.Errorf("%s: %d", bad, got)
		}
	}
}

func TestFaultsAreOffUnlessAllowed(t *testing.T) {
	s := start(t, sim.Config{})
	if got, _ := s.post("/sim/faults", `{"crash":true}`); got != 404 {
		t.Errorf("faults can be set: %d", got)
	}
	if got := s.stream(chatPath, ask("x", `,"sim":{"text":"prescribed"}`+withUsage)); strings.Contains(got.content[0], "prescribed") {
		t.Error("answers can be prescribed")
	}
}

func TestAStalledStreamIsSilentUntilTheClientLeaves(t *testing.T) {
	s := start(t, sim.Config{Faults: true})
	s.faults(`{"stall_after_tokens":2}`)
	ctx, cancel := context.WithCancel(t.Context())
	resp := s.open(ctx, ask("x", `,"max_tokens":50,"ignore_eos":true`+withUsage))
	defer resp.Body.Close()
	buf, got := make([]byte, 4096), ""
	for !strings.Contains(got, `"completion_tokens":2`) {
		n, err := resp.Body.Read(buf)
		if err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		got += string(buf[:n])
	}
	cancel()
	eventually(t, "the request is gone", func() bool { return s.load().Running == 0 })
}

func (s *server) open(ctx context.Context, body string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+chatPath, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp
}

func (s *server) load() engine.Load {
	s.t.Helper()
	l, err := s.drv.Load(s.t.Context(), http.DefaultClient, s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

func TestAClientThatLeavesFreesItsSlot(t *testing.T) {
	s := start(t, sim.Config{Speed: 1, Slots: 1})
	for _, mode := range []string{withUsage, "}"} {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() { // a whole answer's headers come at its end, so the request is made on the side
			defer close(left)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+chatPath, strings.NewReader(ask("x", `,"max_tokens":100000,"ignore_eos":true`+mode)))
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}()
		eventually(t, "it runs", func() bool { return s.load().Running == 1 })
		cancel()
		<-left
		eventually(t, "its slot and blocks are free", func() bool { l := s.load(); return l.Running == 0 && l.KVUsage == 0 })
	}
	if status, _ := s.post(chatPath, ask("next", `,"max_tokens":1}`)); status != 200 {
		t.Errorf("the next request is answered with %d", status)
	}
}

func TestPrescribedAnswers(t *testing.T) {
	s := start(t, sim.Config{Faults: true})
	got := s.stream(chatPath, ask("x", `,"sim":{"reasoning":"Hm.","text":"Say \"é\".","tool_calls":[{"name":"f","arguments":"{\"a\":1}"}]}`+withUsage))
	if got.content[0] != `Say "é".` || got.reasoning != "Hm." || len(got.tools) != 1 || got.tools[0] != `f {"a":1}` || got.finish[0] != "tool_calls" {
		t.Errorf("%+v", got)
	}
	for _, n := range []int64{2, 50} {
		body := ask("x", `,"sim":{"text":"one two three four","tokens":`+map[int64]string{2: "2", 50: "50"}[n]+`}`+withUsage)
		if got := s.stream(chatPath, body); got.last.Vector[usage.Output] != n || got.finish[0] != "stop" {
			t.Errorf("%v ends by %q, want %d tokens", got.last.Vector, got.finish[0], n)
		}
	}
}

func TestPrefillAndDecodeParameters(t *testing.T) {
	p, d := start(t, sim.Config{}), start(t, sim.Config{})
	question := strings.Repeat("carry the grain ", 40)
	status, answer := p.post(chatPath, ask(question, `,"max_tokens":1,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}}`))
	_, params, ok := strings.Cut(answer, `"kv_transfer_params":`)
	if status != 200 || !ok || !strings.Contains(params, `"do_remote_prefill":true`) || !strings.Contains(answer, `"finish_reason":"length"`) {
		t.Fatalf("%d %s", status, answer)
	}
	got := d.stream(chatPath, ask(question, `,"max_tokens":5,"kv_transfer_params":`+strings.TrimSuffix(params, "}")+withUsage))
	if v := got.last.Vector; v[usage.Cached] != 0 || v[usage.Output] != 5 || d.load().PrefixHits != 0 {
		t.Errorf("%v, %+v", v, d.load())
	}
	// The transferred blocks are in D's cache afterwards; incomplete parameters mean an ordinary prefill.
	again := d.stream(chatPath, ask(question, `,"max_tokens":5,"kv_transfer_params":{"do_remote_prefill":true}`+withUsage))
	if again.last.Vector[usage.Cached] == 0 || again.content[0] != got.content[0] {
		t.Errorf("%v", again.last.Vector)
	}
}
