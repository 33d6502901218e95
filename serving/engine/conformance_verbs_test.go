package engine_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/fault"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

const long = `{"model":"sim","messages":[{"role":"user","content":"hello"}],"max_tokens":100000,"ignore_eos":true}`

// Whatever an engine's capabilities say it lacks is told as such, and by nothing else.
func TestVerbsAreThoseThatCapsName(t *testing.T) {
	each(t, sim.Config{Elastic: 4}, func(t *testing.T, r *rig) {
		ctx, c, caps := t.Context(), http.DefaultClient, r.d.Caps()
		for verb, said := range map[string]struct {
			caps bool
			err  error
		}{
			"cancel":  {caps.Cancel, r.d.Cancel(ctx, c, r.url, "nobody")},
			"drain":   {caps.Drain, r.d.Drain(ctx, c, r.url, time.Second)},
			"sleep":   {caps.Sleep, r.d.Sleep(ctx, c, r.url)},
			"wake":    {caps.Sleep, r.d.Wake(ctx, c, r.url)},
			"load":    {caps.LoRA, r.d.LoadAdapter(ctx, c, r.url, engine.Adapter{Name: "a", Path: "/a"})},
			"unload":  {caps.LoRA, r.d.UnloadAdapter(ctx, c, r.url, "a")},
			"grow":    {caps.Grow, r.d.Resize(ctx, c, r.url, 2)},
			"prefix":  {caps.ResetPrefix, r.d.ResetPrefix(ctx, c, r.url)},
			"resizes": {caps.Grow, second(r.d.Resizing(ctx, c, r.url))},
		} {
			if said.caps != (said.err == nil) || !said.caps && !errors.Is(said.err, engine.ErrUnsupported) {
				t.Errorf("%s: caps say %v, the engine %v", verb, said.caps, said.err)
			}
		}
	})
}

func second(_ bool, err error) error { return err }

// A request that is cancelled by its id ends for its client, with what was generated counted; another goes on.
func TestCancelEndsOneRequest(t *testing.T) {
	each(t, sim.Config{Speed: 20}, func(t *testing.T, r *rig) {
		if !r.d.Caps().Cancel {
			t.Skip("closing the connection is its only way")
		}
		if err := r.d.Cancel(t.Context(), http.DefaultClient, r.url, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("nobody's request was ended: %v", err)
		}
		mine := r.open(t.Context(), long, engine.ChatParams{RequestID: "aaaa"})
		defer mine.Body.Close()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		theirs := r.open(ctx, long, engine.ChatParams{RequestID: "bbbb"})
		defer theirs.Body.Close()
		if _, err := io.ReadFull(mine.Body, make([]byte, 4000)); err != nil {
			t.Fatal(err)
		}
		if err := r.d.Cancel(t.Context(), http.DefaultClient, r.url, "aaaa"); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(mine.Body)
		if err != nil || !strings.Contains(string(rest), `"finish_reason":"abort"`) || !strings.HasSuffix(strings.TrimSpace(string(rest)), "[DONE]") {
			t.Errorf("%v: …%s", err, rest[max(0, len(rest)-300):])
		}
		if _, err := io.ReadFull(theirs.Body, make([]byte, 20_000)); err != nil {
			t.Errorf("another's request: %v", err)
		}
	})
}

// An engine that sleeps answers nobody, and answers again when it is awake.
func TestSleepAndWake(t *testing.T) {
	each(t, sim.Config{}, func(t *testing.T, r *rig) {
		if !r.d.Caps().Sleep {
			t.Skip("does not sleep")
		}
		ctx, c := t.Context(), http.DefaultClient
		if err := r.d.Sleep(ctx, c, r.url); err != nil {
			t.Fatal(err)
		}
		if err := r.d.Ready(ctx, c, r.url, "sim"); err == nil {
			t.Error("it answers asleep")
		}
		if err := r.d.Wake(ctx, c, r.url); err != nil {
			t.Fatal(err)
		}
		if err := r.d.Ready(ctx, c, r.url, "sim"); err != nil {
			t.Errorf("awake: %v", err)
		}
	})
}

// An adapter is a model while it is loaded, with prefixes that it shares with nobody.
func TestAdapters(t *testing.T) {
	each(t, sim.Config{}, func(t *testing.T, r *rig) {
		if !r.d.Caps().LoRA {
			t.Skip("loads no adapters")
		}
		ctx, c := t.Context(), http.DefaultClient
		law := engine.Adapter{Name: "law", Path: "/adapters/law"}
		if r.d.Ready(ctx, c, r.url, "law") == nil {
			t.Error("it is served before it is loaded")
		}
		if err := r.d.LoadAdapter(ctx, c, r.url, law); err != nil {
			t.Fatal(err)
		}
		if err := r.d.LoadAdapter(ctx, c, r.url, law); !fault.Is(err, fault.Invalid) {
			t.Errorf("loaded twice: %v", err)
		}
		offers, err := engine.Offers(ctx, c, r.url)
		if err != nil || !slices.ContainsFunc(offers, func(o engine.Offer) bool { return o.Model == "law" }) {
			t.Errorf("%+v, %v", offers, err)
		}
		body := `{"model":"law","messages":[{"role":"user","content":"` + strings.Repeat("the river flows past the mill ", 40) + `"}],"max_tokens":3}`
		own, base := r.ask(body, engine.ChatParams{}).report, r.ask(strings.Replace(body, `"law"`, `"sim"`, 1), engine.ChatParams{}).report
		again := r.ask(body, engine.ChatParams{}).report
		if cached := func(rep engine.Report) int64 { return rep.Vector.Prompt() - rep.Vector[0] }; cached(own) != 0 || cached(base) != 0 || cached(again) == 0 {
			t.Errorf("first %v, the base model's %v, again %v", own.Vector, base.Vector, again.Vector)
		}
		if err := r.d.UnloadAdapter(ctx, c, r.url, "law"); err != nil {
			t.Fatal(err)
		}
		if err := r.d.UnloadAdapter(ctx, c, r.url, "law"); !fault.Is(err, fault.NotFound) {
			t.Errorf("unloaded twice: %v", err)
		}
		if r.d.Ready(ctx, c, r.url, "law") == nil {
			t.Error("it is still served")
		}
	})
}

// A resize lets what runs end, one at a time; the engine then has that many ranks. Downwards only where that is possible.
func TestResize(t *testing.T) {
	each(t, sim.Config{Elastic: 4, Speed: 20}, func(t *testing.T, r *rig) {
		caps := r.d.Caps()
		if !caps.Grow {
			t.Skip("its size is fixed")
		}
		ctx, c := t.Context(), http.DefaultClient
		running, leave := context.WithCancel(ctx)
		defer leave()
		held := r.open(running, long, engine.ChatParams{})
		defer held.Body.Close()
		if _, err := io.ReadFull(held.Body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- r.d.Resize(ctx, c, r.url, 4) }()
		eventually(t, "it is being resized", func() bool { on, err := r.d.Resizing(ctx, c, r.url); return err == nil && on })
		if err := r.d.Resize(ctx, c, r.url, 3); !fault.Is(err, fault.Conflict) {
			t.Errorf("a second resize: %v", err)
		}
		leave()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is done", func() bool { on, err := r.d.Resizing(ctx, c, r.url); return err == nil && !on })
		if err := r.d.Ready(ctx, c, r.url, "sim"); err != nil {
			t.Error(err)
		}
		if l, err := r.d.Load(ctx, c, r.url); err != nil || len(l.Ranks) != 4 {
			t.Errorf("%+v, %v", l, err)
		}
		if err := r.d.Resize(ctx, c, r.url, 9); !fault.Is(err, fault.Invalid) {
			t.Errorf("more ranks than it may have: %v", err)
		}
		if err := r.d.Resize(ctx, c, r.url, 2); (err == nil) != caps.Shrink {
			t.Errorf("down: %v", err)
		}
	})
}

// A prefill engine becomes a decode engine when nothing runs: from then on it takes what decode engines take.
func TestSwitchRole(t *testing.T) {
	each(t, sim.Config{Role: "prefill", RoleSwitch: true, Speed: 20}, func(t *testing.T, r *rig) {
		ctx, c, caps := t.Context(), http.DefaultClient, r.d.Caps()
		if !caps.SwitchRole {
			if err := r.d.SwitchRole(ctx, c, r.url, engine.Decode); !errors.Is(err, engine.ErrUnsupported) {
				t.Error(err)
			}
			return
		}
		role := func(want string) {
			t.Helper()
			resp, err := c.Get(r.url + "/model_info")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text := body(t, resp); !strings.Contains(text, `"disaggregation_mode":"`+want+`"`) {
				t.Errorf("%s, want %s", text, want)
			}
		}
		role(engine.Prefill)
		if err := r.d.SwitchRole(ctx, c, r.url, engine.Whole); !fault.Is(err, fault.Invalid) {
			t.Errorf("to no role: %v", err)
		}
		if err := r.d.SwitchRole(ctx, c, r.url, engine.Decode); err != nil {
			t.Fatal(err)
		}
		role(engine.Decode)
	})
}

// An engine that was started without a verb's switch says so, and goes on.
func TestVerbsThatAnEngineWasStartedWithout(t *testing.T) {
	r := pairs[0].start(t, sim.Config{})
	if err := r.d.Resize(t.Context(), http.DefaultClient, r.url, 2); err == nil {
		t.Error("a fixed size was changed")
	}
	s := pair{engine.SGLang, "sglang"}.start(t, sim.Config{})
	if err := s.d.Resize(t.Context(), http.DefaultClient, s.url, 2); !errors.Is(err, engine.ErrUnsupported) {
		t.Errorf("a fixed size at SGLang: %v", err)
	}
	_, none := serve(t, map[string]string{})
	none.Config.Handler = http.NotFoundHandler()
	for _, f := range []engine.Family{engine.VLLM, engine.SGLang} {
		if err := driver(t, f).Sleep(t.Context(), none.Client(), none.URL); !errors.Is(err, engine.ErrUnsupported) {
			t.Errorf("%s: %v", f, err)
		}
	}
}
