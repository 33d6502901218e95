package gate_test

import (
	"strings"
	"testing"

	"millrace/internal/money"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
)

// A tier is another place in the engine's queue, and another line on the bill; the answer says which it was.
func TestServiceTiers(t *testing.T) {
	for name, want := range map[string]struct {
		service  usage.Service
		upstream string
	}{
		"priority": {usage.Priority, `"priority":-1`},
		"flex":     {usage.Batch, `"priority":1`},
		"auto":     {usage.Ordinary, ""},
	} {
		told := map[string]string{"auto": "default"}[name]
		if told == "" {
			told = name
		}
		for _, members := range []string{streamed, ""} {
			e := gatetest.NewEngine(t, gatetest.Stream(good))
			s := gatetest.New(t, gatetest.Options{Placed: true}, e)
			_, body, _ := post(t, s, request(members+`,"service_tier":"`+name+`"`))
			_, sent := e.Last()
			if !strings.Contains(string(body), `"service_tier":"`+told+`"`) || strings.Contains(sent, "service_tier") ||
				strings.Contains(sent, `"priority"`) != (want.upstream != "") || !strings.Contains(sent, want.upstream) {
				t.Errorf("%s: the engine got %s, the client %s", name, sent, body)
			}
			if ev := s.Event(t); ev.Service != want.service || ev.Charge != full {
				t.Errorf("%s: %+v", name, ev)
			}
		}
	}
}

// Where no engine has a queue by rank, a dearer tier would be the same service: it is refused.
func TestAServiceTierThatNobodyServes(t *testing.T) {
	for family, attached := range map[engine.Family]bool{engine.LlamaCpp: false, engine.VLLM: true} {
		s := gatetest.New(t, gatetest.Options{Family: family, Placed: !attached}, gatetest.NewEngine(t, gatetest.Stream(good)))
		answer, body, _ := post(t, s, request(`,"service_tier":"priority"`))
		if answer.StatusCode != 400 || !strings.Contains(string(body), `"param":"service_tier"`) || len(s.Log.Events()) > 0 {
			t.Errorf("%s: %d %s", family, answer.StatusCode, body)
		}
	}
}

// The hold covers the dearest step that the prompt's bound allows; the charge is by the step it really fell in.
func TestPromptLengthDecidesThePrice(t *testing.T) {
	for above, want := range map[int64]money.Nano{99: 360 + 64 + 50, 100: full} {
		s := gatetest.New(t, gatetest.Options{}, gatetest.NewEngine(t, gatetest.Stream(good)))
		s.Prices.Quoted.Steps[0] = usage.Step{Above: above, Prices: usage.Prices{usage.Input: 10_000, usage.Cached: 1000, usage.Output: 10_000}}
		post(t, s, request(streamed))
		if ev := s.Event(t); ev.Charge != want {
			t.Errorf("a prompt of 100 tokens with a step above %d costs %d, want %d", above, ev.Charge, want)
		}
	}
	// A bound of some hundred tokens at 1 nano each and an answer at 2: enough below the step, not enough above it.
	s := gatetest.New(t, gatetest.Options{Cap: 3500}, gatetest.NewEngine(t, gatetest.Stream(good)))
	s.Prices.Quoted.Steps[0] = usage.Step{Above: 150, Prices: usage.Prices{usage.Input: 10_000, usage.Cached: 1000, usage.Output: 10_000}}
	if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 402 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
	s.Prices.Quoted.Steps[0].Above = 8000
	if answer, body, _ := post(t, s, request(streamed)); answer.StatusCode != 200 || s.Event(t).Charge != full {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}
