package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace/internal/usage"
	"millrace/serving/protocol/streamtest"
)

var someUsage = usage.Vector{usage.Input: 36, usage.Cached: 64, usage.Output: 4, usage.Reasoning: 3, usage.Requests: 1}

// run puts a stream through an answer and gives what the client reads.
func run(a Answer, stream io.Reader) (out []byte, last Step, err error) {
	var s Events
	last.Tokens = -1
	for end := false; !end; {
		if err := s.Fill(stream); err == io.EOF {
			end = true
		} else if err != nil {
			return out, last, err
		}
		for data := s.Next(); data != nil; data = s.Next() {
			var step Step
			if out, step, err = a.Add(out, data); err != nil {
				return out, last, err
			}
			if step.Tokens >= 0 {
				last.Tokens = step.Tokens
			}
			last.Usage, last.Done = last.Usage || step.Usage, last.Done || step.Done
		}
	}
	if !a.Complete() {
		return out, last, errors.New("not complete")
	}
	return a.End(a.Finish(out, &someUsage)), last, nil
}

func params(n int, wantUsage bool) AnswerParams {
	return AnswerParams{ID: "chatcmpl-0123456789abcdef0123456789", Model: "acme/é", Created: 1700000000, N: n, Usage: wantUsage, Counter: "timings"}
}

// both runs a stream through all kinds of answers, checks each against the strict client, and gives what they say.
func both(t interface {
	Helper()
	Fatalf(string, ...any)
}, stream string, n int) *streamtest.Answer {
	t.Helper()
	whole, _, err := run(NewChatWhole(params(n, false)), strings.NewReader(stream))
	if err != nil {
		t.Fatalf("whole: %v\n%s", err, stream)
	}
	want, err := streamtest.Whole(whole, streamtest.Want{N: n, Model: "acme/é"})
	if err != nil {
		t.Fatalf("whole: %v\n%s", err, whole)
	}
	for _, withUsage := range []bool{false, true} {
		for _, learning := range []bool{true, false} {
			a := NewChatStream(params(n, withUsage))
			if !learning {
				a.shapes.learned = maxLearned
			}
			out, _, err := run(a, strings.NewReader(stream))
			if err != nil {
				t.Fatalf("stream: %v\n%s", err, stream)
			}
			got, err := streamtest.Check(out, streamtest.Want{N: n, Usage: withUsage, Model: "acme/é"})
			if err != nil {
				t.Fatalf("stream: %v\n%s\nof\n%s", err, out, stream)
			}
			if !streamtest.Same(got, want) {
				t.Fatalf("streamed and whole differ:\n%+v\n%+v", got, want)
			}
			if withUsage && (got.Usage.Prompt != 100 || got.Usage.Completion != 7 || got.Usage.Details.Cached != 64 || got.Usage.Generated.Reasoning != 3) {
				t.Fatalf("usage %+v", got.Usage)
			}
		}
	}
	return want
}

// What real engines sent.
func TestRecordedStreams(t *testing.T) {
	files, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			stream, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := both(t, string(stream), 1)
			plain := plainAnswer(t, stream)
			if !streamtest.Same(got, plain) {
				t.Fatalf("got %+v\nwant %+v", got, plain)
			}
			out, _, _ := run(NewChatStream(params(1, false)), bytes.NewReader(stream))
			for _, leak := range []string{"tiny", "gemma", "vllm", "token_ids", "prompt_logprobs", "timings", "stop_reason", "system_fingerprint", "b0-unknown", "98aba615", `"usage"`} {
				if bytes.Contains(out, []byte(leak)) {
					t.Errorf("%q leaks", leak)
				}
			}
		})
	}
}

// plainAnswer decodes a recorded stream in the plainest way.
func plainAnswer(t *testing.T, stream []byte) *streamtest.Answer {
	t.Helper()
	a := &streamtest.Answer{Choices: make([]streamtest.Choice, 1)}
	c := &a.Choices[0]
	for _, data := range plainEvents(stream) {
		if data == doneData {
			break
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content, Reasoning string
					Calls              []struct {
						Index    int
						ID       string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				Logprobs *struct{ Content []any }
				Finish   string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatal(err)
		}
		for _, k := range chunk.Choices {
			c.Content += k.Delta.Content
			c.Reasoning += k.Delta.Reasoning
			c.Finish += k.Finish
			if k.Logprobs != nil {
				c.Logprobs = append(c.Logprobs, k.Logprobs.Content...)
			}
			for _, p := range k.Delta.Calls {
				if p.Index == len(c.Calls) {
					c.Calls = append(c.Calls, streamtest.Call{})
				}
				into := &c.Calls[p.Index]
				into.ID += p.ID
				into.Name += p.Function.Name
				into.Arguments += p.Function.Arguments
			}
		}
	}
	return a
}

// sse makes a stream of chunks; a text that is no JSON object goes as it is.
func sse(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		b.WriteString("data: " + c + "\n\n")
	}
	return b.String()
}

// d is a chunk with a delta, f one with a finish reason too.
func d(delta string) string { return f(delta, "null") }
func f(delta, finish string) string {
	return fmt.Sprintf(`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`, delta, finish)
}

// What engines do wrong, and what clients must get all the same.
func TestCases(t *testing.T) {
	call := func(id, name, args string) streamtest.Call {
		return streamtest.Call{ID: id, Name: name, Arguments: args}
	}
	for _, tt := range []struct {
		name   string
		stream []string
		want   streamtest.Choice
	}{
		{"interleaved calls", []string{d(`{"role":"assistant","content":""}`),
			d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}`),
			d(`{"tool_calls":[{"index":1,"function":{"arguments":"{\"b\""}}]}`), d(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]}`),
			d(`{"tool_calls":[{"index":1,"function":{"arguments":":2}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("c1", "f", `{"a":1}`), call("c2", "g", `{"b":2}`)}, Finish: "tool_calls"}},
		{"a whole call right after text", []string{d(`{"content":"Ok."}`),
			d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"ls\"}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Content: "Ok.", Calls: []streamtest.Call{call("c1", "Bash", `{"command":"ls"}`)}, Finish: "tool_calls"}},
		{"everything in one delta", []string{d(`{"role":"assistant","content":""}`), d(`{"reasoning":"th"}`), d(`{"reasoning":"ink","content":"ans"}`),
			d(`{"content":"wer","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Reasoning: "think", Content: "answer", Calls: []streamtest.Call{call("c1", "f", "{}")}, Finish: "tool_calls"}},
		{"both names of reasoning", []string{d(`{"reasoning":"r","reasoning_content":"r"}`), f(`{"content":"x"}`, `"stop"`)},
			streamtest.Choice{Reasoning: "r", Content: "x", Finish: "stop"}},
		{"an empty text with the finish", []string{d(`{"role":"assistant","content":""}`), f(`{"content":""}`, `"stop"`)}, streamtest.Choice{Finish: "stop"}},
		{"no role", []string{d(`{"content":"a"}`), d(`{"content":"b"}`), f(`{"content":"c"}`, `"length"`)}, streamtest.Choice{Content: "abc", Finish: "length"}},
		{"a role on every chunk", []string{d(`{"role":"assistant","content":"a"}`), d(`{"role":"assistant","content":"b"}`), f(`{"role":"assistant"}`, `"stop"`)},
			streamtest.Choice{Content: "ab", Finish: "stop"}},
		{"id and name repeated", []string{d(`{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{"}}]}`),
			d(`{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("c", "f", "{}")}, Finish: "tool_calls"}},
		{"calls without an index", []string{d(`{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"1"}}]}`), d(`{"tool_calls":[{"function":{"arguments":"2"}}]}`),
			d(`{"tool_calls":[{"id":"b","function":{"name":"g","arguments":"3"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("a", "f", "12"), call("b", "g", "3")}, Finish: "tool_calls"}},
		{"one index for two calls", []string{d(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]}`), d(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"2"}}]}`),
			d(`{"tool_calls":[{"index":0,"function":{"arguments":"3"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("a", "f", "1"), call("b", "g", "23")}, Finish: "tool_calls"}},
		{"indexes from one", []string{d(`{"tool_calls":[{"index":1,"id":"a","function":{"name":"f","arguments":"1"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("a", "f", "1")}, Finish: "tool_calls"}},
		{"a name that comes late", []string{d(`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":"1"}}]}`), d(`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"2"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("a", "f", "12")}, Finish: "tool_calls"}},
		{"arguments as an object", []string{d(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":"\"é"}}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("a", "f", `{"x":"\"é"}`)}, Finish: "tool_calls"}},
		{"two finishes", []string{d(`{"content":"a"}`), f(`{}`, `"stop"`), f(`{"content":"late"}`, `"length"`)}, streamtest.Choice{Content: "a", Finish: "stop"}},
		{"an unknown finish", []string{f(`{"content":"a"}`, `"eos_token"`)}, streamtest.Choice{Content: "a", Finish: "stop"}},
		{"a refusal", []string{d(`{"refusal":"No"}`), f(`{"refusal":"."}`, `"stop"`)}, streamtest.Choice{Refusal: "No.", Finish: "stop"}},
		{"half a character each", []string{d(`{"content":"\ud83d"}`), d(`{"content":"x"}`), f(`{"content":"\"\\\n\u00e9"}`, `"stop"`)}, streamtest.Choice{Content: "�x\"\\\né", Finish: "stop"}},
		{"other members", []string{`{"choices":[{"delta":{"content":"a","audio":null,"zz":[1]},"index":0,"token_ids":[1,2],"matched_stop":7}],"zz":{"choices":[]}}`,
			`{"choices":[{"delta":{},"index":0,"finish_reason":"stop"}],"id":"x"}`}, streamtest.Choice{Content: "a", Finish: "stop"}},
		{"calls before the texts, and everything with the finish", []string{
			f(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{\"x\":1}"}}],"content":"answer","reasoning_content":"think"}`, `"tool_calls"`)},
			streamtest.Choice{Reasoning: "think", Content: "answer", Calls: []streamtest.Call{call("a", "f", "{}"), call("b", "g", `{"x":1}`)}, Finish: "tool_calls"}},
		{"the last of three calls ends first", []string{d(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}`),
			d(`{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{\"b"}}]}`), d(`{"tool_calls":[{"index":2,"id":"c","function":{"name":"h","arguments":"{}"}},{"index":1,"function":{"arguments":"\":2}"}}]}`),
			d(`{"content":"so"}`), d(`{"tool_calls":[{"index":0,"function":{"arguments":"\"a\":1}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Content: "so", Calls: []streamtest.Call{call("a", "f", `{"a":1}`), call("b", "g", `{"b":2}`), call("c", "h", "{}")}, Finish: "tool_calls"}},
		{"null and nothing everywhere", []string{d(`{"role":"assistant","content":null,"reasoning":null,"tool_calls":null,"function_call":null}`), d(`null`),
			d(`{"content":"a","reasoning":"","tool_calls":[]}`), d(`{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":null}}]}`),
			d(`{"tool_calls":[{"index":0,"id":null,"type":null,"function":{"name":null,"arguments":"{}"}}]}`), d(`{"tool_calls":[{"index":0,"id":"","function":{"name":"","arguments":""}}]}`), f(`{"content":null}`, `"tool_calls"`)},
			streamtest.Choice{Content: "a", Calls: []streamtest.Call{call("c", "f", "{}")}, Finish: "tool_calls"}},
		{"two deltas of one choice in a chunk", []string{`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}`}, streamtest.Choice{Content: "ab", Finish: "stop"}},
		{"names of members that are escaped", []string{d(`{"c\u006fntent":"a"}`), `{"ch\u006fices":[{"index":0,"delta":{},"finish_re\u0061son":"stop"}]}`}, streamtest.Choice{Content: "a", Finish: "stop"}},
		{"usage that grows", []string{d(`{"content":"a"}`), strings.Replace(d(`{"content":"b"}`), `:2,`, `:200,`, 1), f(`{"content":"c"}`, `"stop"`)}, streamtest.Choice{Content: "abc", Finish: "stop"}},
		{"a call that is never named", []string{d(`{"content":"a"}`), d(`{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"{}"}}]}`), f(`{}`, `"stop"`)},
			streamtest.Choice{Content: "a", Finish: "stop"}},
		{"a call that is never named before one that is", []string{d(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`), d(`{"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("b", "g", "{}")}, Finish: "tool_calls"}},
		{"a name that comes after the next call's", []string{d(`{"tool_calls":[{"index":0,"id":"a","function":{"arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}`), d(`{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("b", "g", "{}"), call("a", "f", "{}")}, Finish: "tool_calls"}},
		{"another id on every piece", []string{d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":"}}]}`), d(`{"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"arguments":"1}"}}]}`), f(`{}`, `"tool_calls"`)},
			streamtest.Choice{Calls: []streamtest.Call{call("c1", "f", `{"a":1}`)}, Finish: "tool_calls"}},
		{"an empty finish reason on every chunk", []string{f(`{"role":"assistant","content":"a"}`, `""`), f(`{"content":"b"}`, `""`), f(`{"content":"c"}`, `"stop"`)}, streamtest.Choice{Content: "abc", Finish: "stop"}},
		{"reasoning by one name, then by the other", []string{d(`{"reasoning":"th"}`), d(`{"reasoning_content":"ink"}`), f(`{"content":"x"}`, `"stop"`)}, streamtest.Choice{Reasoning: "think", Content: "x", Finish: "stop"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := both(t, sse(append(tt.stream, doneData)...), 1)
			if want := (&streamtest.Answer{Choices: []streamtest.Choice{tt.want}}); !streamtest.Same(got, want) {
				t.Fatalf("got  %+v\nwant %+v", got.Choices, want.Choices)
			}
		})
	}
}

// Half a surrogate pair in one chunk and half in the next are one character when put together.
func TestSplitSurrogates(t *testing.T) {
	whole, _, err := run(NewChatWhole(params(1, false)), strings.NewReader(sse(d(`{"content":"\ud83d"}`), f(`{"content":"\ude00"}`, `"stop"`))))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := streamtest.Whole(whole, streamtest.Want{}); got.Choices[0].Content != "😀" {
		t.Fatalf("%s", whole)
	}
}

func TestEnginesFaults(t *testing.T) {
	var frame *EngineError
	for _, tt := range []struct {
		name  string
		chunk string
		is    func(error) bool
	}{
		{"no JSON", `{"choices":[{"delta":{"content":"a"}`, func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"no object", `"x"`, func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"no choices", `{"id":"x"}`, func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"another choice", strings.Replace(d(`{"content":"x"}`), `"index":0`, `"index":1`, 1), func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"a huge index", strings.Replace(d(`{"content":"x"}`), `"index":0`, `"index":99999`, 1), func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"content that is no string", d(`{"content":[1]}`), func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"a raw tab in a string", d("{\"content\":\"a\tb\"}"), func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"a broken escape", d(`{"content":"a\qb"}`), func(err error) bool { return errors.Is(err, ErrMalformed) }},
		{"an error", `{"error":{"message":"engine died","type":"server_error","code":500}}`, func(err error) bool { return errors.As(err, &frame) && frame.Status == 500 }},
		{"an error with choices", `{"choices":[],"error":{"message":"x"}}`, func(err error) bool { return errors.As(err, &frame) && frame.Status == 0 }},
		{"an abort", f(`{}`, `"abort"`), func(err error) bool { return errors.As(err, &frame) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, a := range map[string]Answer{"stream": NewChatStream(params(1, false)), "whole": NewChatWhole(params(1, false))} {
				before := sse(d(`{"content":"a"}`), d(`{"content":"b"}`), d(`{"content":"c"}`))
				if _, _, err := run(a, strings.NewReader(before+sse(tt.chunk, doneData))); !tt.is(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// Any stream that an engine may send: streamed by parsing, streamed by shapes and whole say the same, and what the engine
// said.
func TestAnyStream(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 3).Draw(t, "n")
		text := rapid.SampledFrom([]string{"a", " b", "é", "\\n", "\\\"", "\\\\", "{}", "\\u00e9", "data: x", "]", "解说"})
		layout := rapid.SampledFrom([]string{
			`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":%[1]d,"delta":{%[2]q:"%[3]s"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":9,"total_tokens":%[5]d,"completion_tokens":%[4]d,"completion_tokens_details":null}}`,
			`{"choices":[{"finish_reason":null,"index":%[1]d,"delta":{%[2]q:"%[3]s"}}],"created":%[5]d,"id":"x","model":"m","timings":{"cache_n":3,"prompt_ms":%[4]d.5,"predicted_n":%[4]d,"predicted_ms":1e-%[4]d}}`,
			`{ "choices" : [ { "index" : %[1]d , "delta" : { %[2]q : "%[3]s" } } ] , "usage" : null }`,
		}).Draw(t, "layout")
		want := &streamtest.Answer{Choices: make([]streamtest.Choice, n)}
		var stream []string
		for i := range rapid.IntRange(0, 40).Draw(t, "chunks") {
			c, s := rapid.IntRange(0, n-1).Draw(t, "choice"), text.Draw(t, "text")
			var plain string
			if err := json.Unmarshal([]byte(`"`+s+`"`), &plain); err != nil {
				t.Fatal(err)
			}
			name := rapid.SampledFrom([]string{"content", "content", "content", "reasoning", "reasoning_content"}).Draw(t, "name")
			if name == "content" {
				want.Choices[c].Content += plain
			} else {
				want.Choices[c].Reasoning += plain
			}
			stream = append(stream, fmt.Sprintf(layout, c, name, s, i, i+9))
		}
		for c := range n {
			stream = append(stream, fmt.Sprintf(`{"choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}`, c))
			want.Choices[c].Finish = "stop"
		}
		got := both(t, sse(append(stream, doneData)...), n)
		if !streamtest.Same(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got.Choices, want.Choices)
		}
	})
}

// Running counts are the same whether a chunk is parsed or recognised.
func TestCounts(t *testing.T) {
	file, err := os.ReadFile("testdata/llamacpp-timings.sse")
	if err != nil {
		t.Fatal(err)
	}
	for _, learned := range []int{0, maxLearned} {
		a := NewChatStream(params(1, false))
		a.shapes.learned = learned
		var counts []int64
		for _, data := range plainEvents(file) {
			_, step, err := a.Add(nil, []byte(data))
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, step.Tokens)
		}
		if got := fmt.Sprint(counts); got != "[-1 1 2 3 4 -1 4 -1]" {
			t.Errorf("counts %s", got)
		}
	}
}

// No chunk makes the writers panic, and what they write is always well-formed.
func FuzzChunk(f *testing.F) {
	for _, file := range []string{"vllm-reason-tool.sse", "vllm-logprobs.sse", "llamacpp-timings.sse", "vllm-tools.sse"} {
		stream, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		s, out, err := NewChatStream(params(2, true)), []byte(nil), error(nil)
		w := NewChatWhole(params(2, true))
		for _, data := range plainEvents(stream) {
			before := len(out)
			if out, _, err = s.Add(out, []byte(data)); err != nil {
				out = out[:before]
			}
			if _, _, err := w.Add(nil, []byte(data)); err != nil {
				continue
			}
		}
		for _, data := range plainEvents(out) {
			if !json.Valid([]byte(data)) {
				t.Fatalf("%q", data)
			}
		}
		w.Limit()
		if whole := w.End(w.Finish(nil, &someUsage)); !json.Valid(whole) {
			t.Fatalf("%s", whole)
		}
	})
}

func BenchmarkChunk(b *testing.B) {
	chunk := []byte(`{"id":"chatcmpl-b73082719abdd0bf","object":"chat.completion.chunk","created":1796043044,"model":"tiny","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":{"prompt_tokens":685,"total_tokens":686,"completion_tokens":1,"completion_tokens_details":null}}`)
	for name, learned := range map[string]int{"recognised": 0, "parsed": maxLearned} {
		b.Run(name, func(b *testing.B) {
			s := NewChatStream(params(1, false))
			s.shapes.learned = learned
			out, _, _ := s.Add(nil, chunk)
			b.ReportAllocs()
			for b.Loop() {
				out, _, _ = s.Add(out[:0], chunk)
			}
		})
	}
}

// What no client can read is the engine's failure, in whatever member it comes.
func TestBytesThatAreNoText(t *testing.T) {
	for _, delta := range []string{"{\"content\":\"a\xff\"}", "{\"reasoning\":\"\xed\xa0\x80\"}", "{\"content\":\"\xc3\"}",
		"{\"tool_calls\":[{\"index\":0,\"id\":\"\xff\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}"} {
		var turn Turn
		turn.Reset(&AnswerParams{})
		for _, a := range []interface {
			Add(dst, data []byte) ([]byte, Step, error)
		}{NewChatStream(AnswerParams{}), NewChatWhole(AnswerParams{}), NewCompletionStream(AnswerParams{})} {
			_, _, _ = a.Add(nil, []byte(d(`{"content":"a"}`))) // its shape is known
			if _, _, err := a.Add(nil, []byte(d(delta))); !errors.Is(err, ErrMalformed) {
				t.Errorf("%T %q: %v", a, delta, err)
			}
		}
		if _, _, err := turn.Add(nil, []byte(d(delta)), Silent{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("turn %q: %v", delta, err)
		}
	}
}

// Who asked for one call at a time sees one, whatever the engine gives.
func TestOneCallAtATime(t *testing.T) {
	p := AnswerParams{ID: "chatcmpl-1", OneCall: true}
	s, w := NewChatStream(p), NewChatWhole(p)
	var got []byte
	for _, e := range []string{calls2(tool(0, "c1", "f", "{}"), tool(1, "c2", "g", "{}")), `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`} {
		var err, werr error
		got, _, err = s.Add(got, []byte(e))
		_, _, werr = w.Add(nil, []byte(e))
		if err != nil || werr != nil {
			t.Fatal(err, werr)
		}
	}
	whole := string(w.End(w.Finish(nil, nil)))
	for _, text := range []string{string(got), whole} {
		if strings.Contains(text, "c2") || !strings.Contains(text, `"id":"c1"`) || !strings.Contains(text, `"finish_reason":"tool_calls"`) {
			t.Errorf("%s", text)
		}
	}
	if q, err := DecodeChat([]byte(with(`"parallel_tool_calls":false`))); err != nil || !q.OneCall {
		t.Errorf("%+v %v", q, err)
	}
}
