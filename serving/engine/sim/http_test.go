package sim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
)

const withUsage = `,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`

func ask(content, more string) string {
	return fmt.Sprintf(`{"model":"sim","messages":[{"role":"user","content":%q}]%s`, content, more)
}

func TestStreamInvariants(t *testing.T) {
	s := start(t, sim.Config{})
	got := s.stream("/v1/chat/completions", ask("What turns the wheel?", withUsage))
	if n := len(got.lines); n < 10 || got.lines[n-1] != "data: [DONE]" || len(got.chunks) != n-1 {
		t.Fatalf("%d lines, %d chunks, the last line is %q", n, len(got.chunks), got.lines[n-1])
	}
	first, last := got.chunks[0], got.chunks[len(got.chunks)-1]
	if d := first.Choices[0].Delta; d.Role == nil || *d.Role != "assistant" || len(last.Choices) != 0 || last.Usage == nil {
		t.Errorf("first %s, last %s", got.lines[0], got.lines[len(got.lines)-2])
	}
	for i, c := range got.chunks {
		if c.ID != first.ID || c.Created != first.Created || c.Model != "sim" || c.Object != "chat.completion.chunk" || c.Fingerprint != "simulated" {
			t.Errorf("chunk %d: %+v", i, c)
		}
		r, err := s.drv.Usage([]byte(got.lines[i]))
		want := int64(min(i, len(got.chunks)-2)) // one token a chunk, the role chunk none, the last chunk no more
		if err != nil || r.Vector[usage.Output] != want || !r.CachedKnown {
			t.Errorf("chunk %d: %v, %v; want %d tokens", i, r.Vector, err, want)
		}
	}
	if got.finish[0] != "stop" || !strings.Contains(got.content[0], "simulated") || !strings.HasSuffix(got.content[0], ".") {
		t.Errorf("%q ends with %q", got.content[0], got.finish[0])
	}
}

func TestWholeAndStreamedAnswersAreEqual(t *testing.T) {
	s := start(t, sim.Config{})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		body := ask("Tell me of the mill.", `,"prompt":"Tell me","max_tokens":40`)
		streamed := s.stream(path, body+withUsage)
		_, whole := s.post(path, body+"}")
		var got struct {
			Choices []struct {
				Message struct{ Content string }
				Text    string
				Finish  string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(whole), &got); err != nil || len(got.Choices) != 1 {
			t.Fatalf("%s: %v", whole, err)
		}
		c := got.Choices[0]
		if text := c.Message.Content + c.Text; text != streamed.content[0] || text == "" || c.Finish != streamed.finish[0] {
			t.Errorf("%s: %q, streamed %q", path, text, streamed.content[0])
		}
		r, err := s.drv.Usage([]byte(whole))
		if want := streamed.last.Vector; err != nil || r.Vector.Prompt() != want.Prompt() || r.Vector.Generated() != want.Generated() {
			t.Errorf("%s: %v %v, streamed %v", path, r.Vector, err, want)
		}
	}
}

func TestTokensAreCountedExactly(t *testing.T) {
	s := start(t, sim.Config{Context: 4096})
	for _, c := range []struct {
		more   string
		output int64
		finish string
	}{
		{`,"max_tokens":1`, 1, "length"}, {`,"max_tokens":7`, 7, "length"}, {`,"max_completion_tokens":9,"max_tokens":3`, 9, "length"},
		{`,"max_tokens":3000,"ignore_eos":true`, 3000, "length"}, {`,"max_tokens":3000,"min_tokens":2000`, 2000, "stop"},
		{`,"max_tokens":12,"n":3`, 36, "length"},
	} {
		body := ask("Count to a hundred.", c.more)
		ids, err := s.drv.Tokens(t.Context(), nil, "", []byte(body+"}"))
		if err != nil {
			t.Fatal(err)
		}
		got := s.stream("/v1/chat/completions", body+withUsage)
		v := got.last.Vector
		if v[usage.Output] != c.output || v.Prompt() != int64(len(ids)) || got.finish[0] != c.finish {
			t.Errorf("%s: %v ends by %q; want %d tokens of a prompt of %d, %q", c.more, v, got.finish[0], c.output, len(ids), c.finish)
		}
		if n := len(got.chunks) - 1; int64(n-len(got.finish)) != c.output {
			t.Errorf("%s: %d chunks of %d choices for %d tokens", c.more, n, len(got.finish), c.output)
		}
	}
}

func TestUsageIsSentWhenAskedFor(t *testing.T) {
	s := start(t, sim.Config{})
	for options, want := range map[string][2]bool{ // on every chunk, on a last chunk
		`{"include_usage":true}`: {false, true}, `{}`: {false, false}, `{"include_usage":true,"continuous_usage_stats":true}`: {true, true},
	} {
		got := s.stream("/v1/chat/completions", ask("x", `,"max_tokens":3,"stream":true,"stream_options":`+options+`}`))
		last := got.chunks[len(got.chunks)-1]
		if (got.chunks[1].Usage != nil) != want[0] || (len(last.Choices) == 0) != want[1] {
			t.Errorf("%s: %v", options, got.lines)
		}
	}
}

func TestStopStrings(t *testing.T) {
	s := start(t, sim.Config{})
	full := s.stream("/v1/chat/completions", ask("stop", withUsage))
	got := s.stream("/v1/chat/completions", ask("stop", `,"stop":["nowhere","has read"]`+withUsage))
	want, _, _ := strings.Cut(full.content[0], "has read")
	if got.content[0] != want || got.finish[0] != "stop" || got.stop != "has read" {
		t.Errorf("%q ends by %q %q, want %q", got.content[0], got.finish[0], got.stop, want)
	}
	if g, f := got.last.Vector[usage.Output], full.last.Vector[usage.Output]; g <= 0 || g >= f {
		t.Errorf("%d tokens of %d", g, f)
	}
}

const weather = `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string","enum":["Paris","Rome"]},"days":{"type":["integer","null"],"minimum":2},"x":{"type":"boolean"}},"required":["city","days"]}}},{"type":"function","function":{"name":"get_time"}}]`

func TestToolCalls(t *testing.T) {
	s := start(t, sim.Config{})
	call := `get_weather {"city": "Paris", "days": 2}`
	for _, c := range []struct {
		question, more string
		want           []string
	}{
		{"hello", "", nil},
		{"call get_weather please", "", []string{call}},
		{"get weather and get_time", "", []string{call, "get_time {}"}},
		{"please use a tool", "", []string{call}},
		{"call get_weather", `,"tool_choice":"none"`, nil},
		{"hello", `,"tool_choice":"required"`, []string{call}},
		{"hello", `,"tool_choice":{"type":"function","function":{"name":"get_time"}}`, []string{"get_time {}"}},
	} {
		got := s.stream("/v1/chat/completions", ask(c.question, weather+c.more+withUsage))
		finish := "tool_calls"
		if c.want == nil {
			finish = "stop"
		}
		if !slices.Equal(got.tools, c.want) || got.finish[0] != finish || (got.content[0] == "") != (c.want != nil) {
			t.Errorf("%s%s: %q ends by %q, says %q", c.question, c.more, got.tools, got.finish[0], got.content[0])
		}
		_, whole := s.post("/v1/chat/completions", ask(c.question, weather+c.more+"}"))
		for _, w := range c.want {
			name, args, _ := strings.Cut(w, " ")
			quoted, _ := json.Marshal(args)
			if !strings.Contains(whole, fmt.Sprintf(`"function":{"name":%q,"arguments":%s}`, name, quoted)) {
				t.Errorf("%s is not in %s", w, whole)
			}
		}
	}
	result := `{"model":"sim","messages":[{"role":"user","content":"get_weather"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"get_weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"rain"}]`
	if got := s.stream("/v1/chat/completions", result+weather+withUsage); len(got.tools) != 0 || !strings.Contains(got.content[0], "tool's result") {
		t.Errorf("after the result: %q %q", got.tools, got.content[0])
	}
}

func TestFormats(t *testing.T) {
	s := start(t, sim.Config{})
	const schema = `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":2}},"required":["city","days"]}}}`
	for more, want := range map[string]string{
		`,"response_format":{"type":"json_object"}`: `{"simulated": true}`,
		schema:           `{"city": "simulated", "days": 2}`,
		schema + weather: `{"city": "simulated", "days": 2}`,
	} {
		if got := s.stream("/v1/chat/completions", ask("hello", more+withUsage)); got.content[0] != want || got.finish[0] != "stop" {
			t.Errorf("%s: %q ends by %q", more, got.content[0], got.finish[0])
		}
	}
	if got := s.stream("/v1/chat/completions", ask("call get_weather", schema+weather+withUsage)); len(got.tools) != 1 || got.content[0] != "" {
		t.Errorf("a tool first: %q %q", got.tools, got.content[0])
	}
	if _, got := s.post("/v1/chat/completions", ask("hello", `,"response_format":"json"}`)); !strings.Contains(got, "response_format is invalid") {
		t.Error(got)
	}
}

func TestReasoning(t *testing.T) {
	s := start(t, sim.Config{})
	for more, thinks := range map[string]bool{`,"reasoning_effort":"low"`: true, `,"reasoning_effort":"none"`: false, ``: false, `,"model":"sim-think"`: true} {
		got := s.stream("/v1/chat/completions", ask("think", more+withUsage))
		if (got.reasoning != "") != thinks || got.content[0] == "" || (got.last.Vector[usage.Reasoning] > 0) != thinks {
			t.Errorf("%s: %q, then %q; %v", more, got.reasoning, got.content[0], got.last.Vector)
		}
	}
	cut := s.stream("/v1/chat/completions", ask("think", `,"reasoning_effort":"high","max_tokens":5`+withUsage))
	if v := cut.last.Vector; v[usage.Reasoning] != 5 || v[usage.Output] != 0 || cut.finish[0] != "length" {
		t.Errorf("%v %q", v, cut.finish[0])
	}
}

func TestErrorsAreVLLMs(t *testing.T) {
	s := start(t, sim.Config{Context: 64})
	long := strings.Repeat("word ", 100)
	for _, c := range []struct {
		body   string
		status int
		want   string
	}{
		{ask("hi", `,"max_tokens":99999}`), 400, `"message":"max_tokens=99999 cannot be greater than max_model_len=64. Please request fewer output tokens. (parameter=max_tokens, value=99999)","param":"max_tokens","type":"BadRequestError"`},
		{ask(long, `}`), 400, `maximum context length is 64 tokens`},
		{ask("hi", `,"max_tokens":60}`), 400, `requested 60 output tokens`},
		{`{"model":"nope","messages":[]}`, 404, "The model `nope` does not exist."},
		{`{"model":"sim","messages":[`, 400, "json_invalid"},
		{`[]`, 400, "valid dictionary"},
		{ask("hi", `,"temperature":-3}`), 400, "temperature must be non-negative, got -3"},
		{ask("hi", `,"max_tokens":0}`), 400, "max_tokens"}, {ask("hi", `,"n":99}`), 400, "n must be"}, {ask("hi", `,"stop":5}`), 400, "stop must"},
		{`{"model":"sim"}`, 400, "messages"}, {`{"model":7,"messages":[]}`, 400, "model must be a string"},
	} {
		status, got := s.post("/v1/chat/completions", c.body)
		if status != c.status || !strings.Contains(got, c.want) || !strings.Contains(got, fmt.Sprintf(`"code":%d`, c.status)) {
			t.Errorf("%s: %d %s", c.body, status, got)
		}
	}
}

func TestCompletionsTakeTextAndTokens(t *testing.T) {
	s := start(t, sim.Config{})
	for prompt, want := range map[string][2]int{ // prompt tokens, choices
		`"hello world"`: {5, 1}, `[5,6,7]`: {3, 1}, `["a","b"]`: {4, 2}, `[[1,2],[3]]`: {3, 2},
	} {
		got := s.stream("/v1/completions", `{"prompt":`+prompt+`,"max_tokens":4`+withUsage)
		if v := got.last.Vector; int(v.Prompt()) != want[0] || len(got.content) != want[1] || v[usage.Output] != int64(4*want[1]) {
			t.Errorf("%s: %v, %d choices", prompt, v, len(got.content))
		}
	}
	if status, _ := s.post("/v1/completions", `{"prompt":[[1],"x",7]}`); status != 400 {
		t.Errorf("a mixture is answered with %d", status)
	}
}

func TestDriverSeesTheEngine(t *testing.T) {
	s := start(t, sim.Config{Model: "acme"})
	if err := s.drv.Ready(t.Context(), http.DefaultClient, s.url, "acme"); err != nil {
		t.Error(err)
	}
	if err := s.drv.Ready(t.Context(), http.DefaultClient, s.url, "other"); err == nil {
		t.Error("ready with a model that it has not")
	}
	body := []byte(`{"model":"acme","messages":[{"role":"user","content":"` + strings.Repeat("grain ", 50) + `"}]}`)
	own, err := s.drv.Tokens(t.Context(), nil, "", body)
	if err != nil {
		t.Fatal(err)
	}
	vllm, err := engine.Lookup(engine.VLLM) // the simulated engine renders as vLLM does
	if err != nil {
		t.Fatal(err)
	}
	if asked, err := vllm.Tokens(t.Context(), http.DefaultClient, s.url, body); err != nil || !slices.Equal(asked, own) {
		t.Errorf("%d tokens asked for, %d computed: %v", len(asked), len(own), err)
	}
	for range 2 {
		s.post("/v1/chat/completions", string(body))
	}
	l, err := s.drv.Load(t.Context(), http.DefaultClient, s.url)
	if err != nil || l.PrefixQueries <= 2*int64(len(own)) || l.PrefixHits < int64(len(own))/16*16-16 || l.Running != 0 || l.KVUsage != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	for _, path := range []string{"/health", "/version", "/v1/models"} {
		resp, err := http.Get(s.url + path)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get(sim.Header) != "true" {
			t.Errorf("%s: %v %v", path, resp, err)
		}
		_ = resp.Body.Close()
	}
	if _, got := s.post("/tokenize", `{"prompt":"hi there"}`); !strings.Contains(got, `"count":4`) {
		t.Errorf("%s", got)
	}
}
