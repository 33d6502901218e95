package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/protocol"
)

// The count of an answer that is broken off is known exactly where engines count on every chunk; the engine stops, and its
// load tells so.
func TestAbortedAnswersAreCounted(t *testing.T) {
	each(t, sim.Config{Speed: 20}, func(t *testing.T, r *rig) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		resp := r.open(ctx, `{"model":"sim","messages":[{"role":"user","content":"hello"}],"min_tokens":5000,"max_tokens":5000}`, engine.ChatParams{})
		if r.family == engine.OpenAI { // has no min_tokens
			resp.Body.Close()
			resp = r.open(ctx, `{"model":"sim","messages":[{"role":"user","content":"hello"}]}`, engine.ChatParams{})
		}
		defer resp.Body.Close()
		var events protocol.Events
		said, last := 0, []byte(nil)
		for said < 20 {
			data := events.Next()
			if data == nil {
				if err := events.Fill(resp.Body); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if bytes.Contains(data, []byte(`"content":"`)) && !bytes.Contains(data, []byte(`"role"`)) {
				said++
			}
			if bytes.Contains(data, r.d.UsageMark()) {
				last = bytes.Clone(data)
			}
		}
		leave()
		report, err := r.d.Usage(last)
		if caps := r.d.Caps(); !caps.ContinuousUsage {
			if !errors.Is(err, engine.ErrNoUsage) {
				t.Errorf("%+v, %v", report, err)
			}
			return
		} else if err != nil || report.Vector.Generated() != int64(said) || report.CachedKnown != caps.CachedOnEveryChunk && r.family != engine.VLLM {
			t.Errorf("%+v, %v; %d tokens were read", report, err, said)
		}
		eventually(t, "the engine stops", func() bool {
			l, err := r.d.Load(t.Context(), http.DefaultClient, r.url)
			return err == nil && l.Running == 0 && l.KVUsage == 0
		})
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: " + what)
		}
	}
}

// A prompt that was computed before is cached for its tenant and for nobody else, and the load tells of it.
func TestCachedTokensAreKnownAndTenantsApart(t *testing.T) {
	each(t, sim.Config{}, func(t *testing.T, r *rig) {
		body := fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":%q}],"max_tokens":3}`, strings.Repeat("the river flows past the mill ", 40))
		ids := r.tokens(body)
		block := cmp.Or(r.d.BlockSize(), 16)
		whole := int64((len(ids) - 1) / block * block)
		mine, theirs := engine.ChatParams{Salt: "mine"}, engine.ChatParams{Salt: "theirs"}
		for i, c := range []struct {
			p      engine.ChatParams
			cached int64
		}{{mine, 0}, {mine, whole}, {theirs, 0}} {
			if i == 2 && !r.d.Caps().CacheSalt {
				break // the provider's to keep apart
			}
			got := r.ask(body, c.p).report
			if !got.CachedKnown || got.Vector[usage.Cached] != c.cached || got.Vector[usage.Input] != int64(len(ids))-c.cached {
				t.Errorf("%d: %+v of %d, want %d cached", i, got.Vector, len(ids), c.cached)
			}
		}
		l, err := r.d.Load(t.Context(), http.DefaultClient, r.url)
		switch {
		case r.family == engine.OpenAI:
			if !errors.Is(err, engine.ErrUnsupported) {
				t.Error(err)
			}
		case err != nil || l.PrefixHits != whole || l.PrefixQueries != 3*int64(len(ids)):
			t.Errorf("%+v, %v", l, err)
		}
	})
}

// An engine is ready when it generates; what answers cheaply in between is there; tokens are those that it counts.
func TestReadinessAndTokens(t *testing.T) {
	each(t, sim.Config{}, func(t *testing.T, r *rig) {
		if err := r.d.Ready(t.Context(), http.DefaultClient, r.url, "sim"); err != nil {
			t.Error(err)
		}
		if err := r.d.Ready(t.Context(), http.DefaultClient, r.url, "other"); err == nil {
			t.Error("another model is served")
		}
		resp, err := http.Get(r.url + r.d.Alive())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", r.d.Alive(), resp.StatusCode)
		}
		body := `{"model":"sim","messages":[{"role":"user","content":"hello there"}],` + weather + `}`
		out, err := r.d.PrepareChat(nil, []byte(body), engine.ChatParams{Model: "sim"})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := r.d.Tokens(t.Context(), http.DefaultClient, r.url, out)
		if !r.d.Caps().Tokens {
			if !errors.Is(err, engine.ErrUnsupported) {
				t.Error(err)
			}
			return
		}
		if counted := r.ask(body, engine.ChatParams{}).report.Vector.Prompt(); err != nil || int64(len(ids)) != counted {
			t.Errorf("%d tokens, %v; the engine counts %d", len(ids), err, counted)
		}
	})
}
