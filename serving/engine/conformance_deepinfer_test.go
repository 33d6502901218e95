package engine_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

// What the adapter makes of the model's text is a chat: thoughts, words and calls each where they belong, stop sequences that
// end words alone, and counts that are the engine's.
func TestDeepInferAnswers(t *testing.T) {
	r := pair{engine.DeepInfer, "deepinfer"}.start(t, sim.Config{Seed: 7})
	const sim = "simulated engine"
	for name, c := range map[string]struct {
		body      string
		content   string
		reasoning bool
		call      string
		finish    string
		choices   int
	}{
		"text":      {body: questions["text"], content: sim, finish: "stop", choices: 1},
		"thinking":  {body: `{"model":"sim","reasoning_effort":"low","messages":[{"role":"user","content":"hello"}]}`, content: sim, reasoning: true, finish: "stop", choices: 1},
		"thinking2": {body: `{"model":"sim","thinking":{"type":"enabled"},"messages":[{"role":"user","content":"hello"}]}`, content: sim, reasoning: true, finish: "stop", choices: 1},
		"a call":    {body: questions["a call"], call: `{"city": "simulated"}`, finish: "tool_calls", choices: 1},
		"forced":    {body: questions["forced"], call: `{"city": "simulated"}`, finish: "tool_calls", choices: 1},
		"length":    {body: questions["length"], content: "This", finish: "length", choices: 1},
		"stop":      {body: questions["stop"], content: "This is a simulated ", finish: "stop", choices: 1},
		"two":       {body: questions["two"], content: sim, finish: "stop", choices: 2},
		"history":   {body: questions["history"], content: sim, finish: "stop", choices: 1},
	} {
		got := r.ask(c.body, engine.ChatParams{Salt: "org", RequestID: "req", Rank: 1})
		one := got.Stream[0]
		if len(got.Stream) != c.choices || !strings.Contains(one.Content, c.content) || c.reasoning != (one.Reasoning != "") || c.choices == 1 && got.Finish != c.finish {
			t.Errorf("%s: %+v, %s", name, got.Stream, got.Finish)
		}
		if c.call == "" != (len(one.Calls) == 0) || c.call != "" && strings.ReplaceAll(one.Calls[0].Arguments, " ", "") != strings.ReplaceAll(c.call, " ", "") {
			t.Errorf("%s: calls %+v", name, one.Calls)
		}
		if v := got.report.Vector; v.Generated() == 0 || v.Prompt() == 0 || !got.report.CachedKnown || c.reasoning != (v[usage.Reasoning] > 0) {
			t.Errorf("%s: counted %v", name, v)
		}
	}
	// What cannot be rendered is the client's mistake, and names the member.
	resp := r.open(t.Context(), `{"model":"sim","messages":[{"role":"user","content":"hello"}],"thinking":{"type":"often"}}`, engine.ChatParams{})
	defer resp.Body.Close()
	if text := body(t, resp); resp.StatusCode != 400 || !strings.Contains(text, `"param":"thinking.type"`) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
