package engine_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/protocol"
)

const weather = `"tools":[{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]},"strict":true}}]`

var questions = map[string]string{
	"text":        `{"model":"sim","messages":[{"role":"user","content":"hello"}]}`,
	"reasoning":   `{"model":"sim-think","messages":[{"role":"user","content":"hello"}]}`,
	"effort":      `{"model":"sim","reasoning_effort":"xhigh","messages":[{"role":"user","content":"hello"}],"max_completion_tokens":2000}`,
	"a call":      `{"model":"sim","messages":[{"role":"user","content":"call get_weather please"}],` + weather + `}`,
	"forced":      `{"model":"sim","messages":[{"role":"user","content":"hello"}],"tool_choice":{"type":"function","function":{"name":"get_weather"}},` + weather + `}`,
	"length":      `{"model":"sim","messages":[{"role":"user","content":"hello"}],"max_tokens":7}`,
	"stop":        `{"model":"sim","messages":[{"role":"user","content":"hello"}],"stop":["engine"]}`,
	"two":         `{"model":"sim","messages":[{"role":"user","content":"hello"}],"n":2}`,
	"a schema":    `{"model":"sim","messages":[{"role":"user","content":"hello"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"type":"integer"}}}}}}`,
	"guided json": `{"model":"sim","messages":[{"role":"user","content":"hello"}],"guided_json":{"type":"object","properties":{"a":{"type":"integer"}}}}`,
	"history":     `{"model":"sim","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y","reasoning_content":"z","tool_calls":[{"id":"c","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"sun"}],` + weather + `}`,
}

// What every driver makes of a request its engine takes, and what it answers comes to the same.
func TestAllEnginesGiveTheSameAnswer(t *testing.T) {
	reference, asked := pairs[0].start(t, sim.Config{Seed: 7}), map[string]answer{}
	for name, body := range questions {
		asked[name] = reference.ask(body, engine.ChatParams{})
	}
	each(t, sim.Config{Seed: 7}, func(t *testing.T, r *rig) {
		if r.family == engine.DeepInfer {
			t.Skip("its prompts are others, and so are its answers: TestDeepInferAnswers")
		}
		for name, body := range questions {
			effort := name == "effort" && r.family == engine.TRTLLM // has fewer: its reasoning is shorter
			want := asked[name]
			want.Stream = slices.Clone(want.Stream)
			got := r.ask(body, engine.ChatParams{Salt: "org", RequestID: "req", Rank: 1})
			if r.family == engine.OpenAI { // shows no reasoning, and not which stop sequence it was
				want.Stop = ""
				want.Parts = withoutReasoning(want.Parts)
				for i := range want.Stream {
					want.Stream[i].Reasoning = ""
				}
			}
			hidden := want.report.Vector
			if r.family == engine.TRTLLM { // tells what was generated, but not how much of it was reasoning
				hidden[usage.Output], hidden[usage.Reasoning] = hidden[usage.Output]+hidden[usage.Reasoning], 0
			}
			if !effort && (joined(got.report.Vector) != joined(hidden) || !got.report.CachedKnown) {
				t.Errorf("%s: counted %v, want %v", name, got.report.Vector, hidden)
			}
			want.report, got.report, want.counts, got.counts = engine.Report{}, engine.Report{}, nil, nil
			if !effort && !reflect.DeepEqual(got, want) {
				t.Errorf("%s:\n%+v\nwant\n%+v", name, got, want)
			}
		}
	})
}

// joined is a count without what was cached: that depends on what was asked before, and on the size of blocks.
func joined(v usage.Vector) usage.Vector {
	v[usage.Input], v[usage.Cached] = v[usage.Input]+v[usage.Cached], 0
	return v
}

func withoutReasoning(parts []string) (out []string) {
	for _, p := range parts {
		if !strings.HasPrefix(p, fmt.Sprint(int(protocol.Reasoning), " ")) {
			out = append(out, p)
		}
	}
	return out
}

// Whatever name a client has for a constraint, the engine is held to it.
func TestConstraintsHold(t *testing.T) {
	each(t, sim.Config{}, func(t *testing.T, r *rig) {
		if r.family == engine.OpenAI || r.family == engine.DeepInfer {
			t.Skip("has JSON schemas only")
		}
		for constraint, want := range map[string]string{
			`"guided_choice":["red (dark)","blue"]`:           "red (dark)",
			`"structured_outputs":{"choice":["red","blue"]}`:  "red",
			`"regex":"(red|blue) [0-9]{3}"`:                   "red 000",
			`"guided_regex":"a{2}b"`:                          "aab",
			`"ebnf":"root ::= \"red\" | \"blue\""`:            "red",
			`"structured_outputs":{"json":{"type":"object"}}`: "{}",
		} {
			got := r.ask(`{"model":"sim","messages":[{"role":"user","content":"hello"}],`+constraint+`}`, engine.ChatParams{})
			if got.Stream[0].Content != want {
				t.Errorf("%s: %q, want %q", constraint, got.Stream[0].Content, want)
			}
		}
	})
}

// A member that an engine does not know costs the client nothing where the driver knows that, and is refused by name where
// only the operator can.
func TestUnknownMembers(t *testing.T) {
	const extras = `"top_k":5,"min_p":0.1,"xtc_threshold":0.1,"thinking":true,"modalities":["text"]`
	each(t, sim.Config{}, func(t *testing.T, r *rig) {
		body := `{"model":"sim","messages":[{"role":"user","content":"hello"}],` + extras + `}`
		if r.family == engine.DeepInfer { // whose prompts know thinking, as an object
			body = strings.Replace(body, `"thinking":true`, `"thinking":null`, 1)
		}
		if r.family != engine.OpenAI {
			r.ask(body, engine.ChatParams{})
			return
		}
		resp := r.open(t.Context(), body, engine.ChatParams{})
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadRequest || !bytes.Contains(text, []byte(`"param":"top_k"`)) {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	})
}
