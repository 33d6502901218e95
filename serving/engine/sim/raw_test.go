package sim_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

func startRaw(t testing.TB, cfg sim.RawConfig) string {
	t.Helper()
	raw, err := sim.NewRaw(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = raw.Serve(ctx, ln) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return "http://" + ln.Addr().String()
}

func TestRawAnswersLikeAnEngine(t *testing.T) {
	for _, cfg := range []sim.RawConfig{{}, {Burst: true}, {HTTP: true}, {HTTP: true, Burst: true}} {
		d, err := engine.Lookup(engine.Sim)
		if err != nil {
			t.Fatal(err)
		}
		s := &server{t: t, url: startRaw(t, cfg), drv: d}
		full := s.stream(chatPath, ask("x", `,"stream":true,"stream_options":{"include_usage":true}}`))
		if len(full.chunks) != 102 || full.last.Vector[usage.Output] != 100 || full.lines[len(full.lines)-1] != "data: [DONE]" || full.broken != nil {
			t.Errorf("%d chunks, %v, %v", len(full.chunks), full.last.Vector, full.broken)
		}
		few := s.stream(chatPath, ask("x", `,"max_tokens":3`+withUsage))
		if len(few.chunks) != 5 || few.last.Vector[usage.Output] != 3 || few.chunks[0].Usage == nil || !strings.HasPrefix(full.content[0], few.content[0]) {
			t.Errorf("%v", few.lines)
		}
		status, whole := s.post(chatPath, ask("x", `,"max_tokens": 3}`))
		if r, err := d.Usage([]byte(whole)); status != 200 || !json.Valid([]byte(whole)) || err != nil || r.Vector[usage.Output] != 3 {
			t.Errorf("%d %s %v", status, whole, err)
		}
		if err := d.Ready(t.Context(), http.DefaultClient, s.url, "raw"); err != nil {
			t.Error(err)
		}
	}
	if _, err := sim.NewRaw(sim.RawConfig{Tokens: -1}); err == nil {
		t.Error("answers of less than nothing")
	}
}
