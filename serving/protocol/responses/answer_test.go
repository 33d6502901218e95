package responses

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/internal/usage"
	"millrace/serving/protocol"
	"millrace/serving/protocol/responses/responsestest"
)

var update = flag.Bool("update", false, "write the golden files anew")

var someUsage = usage.Vector{usage.Input: 36, usage.Cached: 64, usage.Output: 4, usage.Reasoning: 3, usage.Requests: 1}

func sealer(t testing.TB) *protocol.ReasoningSeal {
	master, err := seal.New(bytes.Repeat([]byte{7}, seal.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return &protocol.ReasoningSeal{Sealer: master, Org: ids.ID{1}}
}

func answersTo(t testing.TB, request string) *Answers {
	t.Helper()
	q, err := Decode([]byte(request))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Chat(&Context{Seal: sealer(t)}); err != nil {
		t.Fatal(err)
	}
	return &Answers{Request: q, Now: func() time.Time { return time.Unix(1700000009, 0) }, Seal: sealer(t)}
}

func params() protocol.AnswerParams {
	return protocol.AnswerParams{ID: "resp_0123456789abcdef", Model: "acme/é", Created: 1700000000, N: 1, Usage: true}
}

var errNotComplete = errors.New("not complete")

// run puts an engine's stream through an answer and gives what the client reads.
func run(a protocol.Answer, stream io.Reader) (out []byte, err error) {
	var s protocol.Events
	for end := false; !end; {
		if err := s.Fill(stream); err == io.EOF {
			end = true
		} else if err != nil {
			return out, err
		}
		for data := s.Next(); data != nil; data = s.Next() {
			if out, _, err = a.Add(out, data); err != nil {
				return out, err
			}
		}
	}
	if !a.Complete() {
		return out, errNotComplete
	}
	return a.End(a.Finish(out, &someUsage)), nil
}

// both gives what a stream comes to, whole and streamed, which must say the same.
func both(t testing.TB, request, stream string) (answer *responsestest.Answer, events []byte) {
	t.Helper()
	a := answersTo(t, request)
	whole, err := run(a.New(false, params()), strings.NewReader(stream))
	if err != nil {
		t.Fatalf("whole: %v\n%s", err, stream)
	}
	want, err := responsestest.Whole(whole)
	if err != nil {
		t.Fatalf("whole: %v\n%s", err, whole)
	}
	events, err = run(a.New(true, params()), strings.NewReader(stream))
	if err != nil {
		t.Fatalf("stream: %v\n%s", err, stream)
	}
	got, err := responsestest.Check(events)
	if err != nil {
		t.Fatalf("stream: %v\n%s", err, events)
	}
	if !responsestest.Same(got, want) {
		t.Fatalf("streamed and whole differ:\n%+v\n%+v", got, want)
	}
	if u := (responsestest.Usage{Input: 100, Cached: 64, Output: 7, Reasoning: 3, Total: 107}); *got.Usage != u {
		t.Fatalf("usage %+v", got.Usage)
	}
	return got, events
}

func sse(chunks ...string) string {
	var b strings.Builder
	for _, c := range append(chunks, "[DONE]") {
		b.WriteString("data: " + c + "\n\n")
	}
	return b.String()
}

// d is a chunk with a delta, f one with a finish reason too.
func d(delta string) string { return f(delta, "null") }
func f(delta, finish string) string {
	return fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`, delta, finish)
}

const ask = `{"model":"acme/é","input":"hi"`

// customTools declares a tool of each kind.
const customTools = ask + `,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom","name":"apply_patch"},
	{"type":"namespace","name":"agents","tools":[{"type":"function","name":"spawn"}]}]}`

type item = responsestest.Item

var cases = []struct {
	name, request string
	stream        []string
	want          []item
	status        string
}{
	{"interleaved calls", ask + `}`, []string{d(`{"role":"assistant","content":""}`),
		d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}`),
		d(`{"tool_calls":[{"index":1,"function":{"arguments":"{\"b\""}}]}`), d(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":1}"}}]}`),
		d(`{"tool_calls":[{"index":1,"function":{"arguments":":2}"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{call("c1", "f", `{"a":1}`), call("c2", "g", `{"b":2}`)}, "completed"},
	{"a whole call right after text", ask + `}`, []string{d(`{"content":"Ok."}`),
		d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"Bash","arguments":"{\"command\":\"ls\"}"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{message("Ok."), call("c1", "Bash", `{"command":"ls"}`)}, "completed"},
	{"everything in one delta", ask + `}`, []string{d(`{"role":"assistant","content":""}`), d(`{"reasoning":"th"}`), d(`{"reasoning":"ink","content":"ans"}`),
		d(`{"content":"wer","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{{Type: "reasoning", Summary: "think"}, message("answer"), call("c1", "f", "{}")}, "completed"},
	{"empty content around a call", ask + `}`, []string{d(`{"role":"assistant","content":""}`),
		d(`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]}`), f(`{"content":""}`, `"tool_calls"`)},
		[]item{call("c1", "f", "{}")}, "completed"},
	{"a named call ends with stop", ask + `}`, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}`), f(`{}`, `"stop"`)},
		[]item{call("c1", "f", "{}")}, "completed"},
	{"a call without arguments and without an id", ask + `}`, []string{d(`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{call("call_resp_0123456789abcdef_0_0", "f", "")}, "completed"},
	{"cut in the text", ask + `}`, []string{d(`{"content":"a"}`), f(`{"content":"b"}`, `"length"`)},
		[]item{{Type: "message", Status: "incomplete", Text: "ab"}}, "incomplete"},
	{"cut in the reasoning", ask + `}`, []string{d(`{"reasoning_content":"a"}`), f(`{}`, `"length"`)}, []item{{Type: "reasoning", Summary: "a"}}, "incomplete"},
	{"cut in a call", ask + `}`, []string{d(`{"content":"a"}`), d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a"}}]}`), f(`{}`, `"length"`)},
		[]item{message("a"), {Type: "function_call", Status: "incomplete", CallID: "c1", Name: "f", Argument: `{"a`}}, "incomplete"},
	{"filtered", ask + `}`, []string{d(`{"content":"a"}`), f(`{}`, `"content_filter"`)}, []item{{Type: "message", Status: "incomplete", Text: "a"}}, "incomplete"},
	{"nothing", ask + `}`, []string{d(`{"role":"assistant","content":""}`), f(`{}`, `"stop"`)}, nil, "completed"},
	{"a refusal", ask + `}`, []string{d(`{"refusal":"No"}`), f(`{"refusal":"."}`, `"stop"`)}, []item{{Type: "message", Status: "completed", Refusal: "No."}}, "completed"},
	{"text after a call", ask + `}`, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}]}`), f(`{"content":"so"}`, `"stop"`)},
		[]item{call("c1", "f", "{}"), message("so")}, "completed"},
	{"a stop sequence", ask + `}`, []string{d(`{"content":"a"}`), `{"choices":[{"index":0,"delta":{},"finish_reason":"stop","stop_reason":"END"}]}`}, []item{message("a")}, "completed"},
	{"both names of reasoning", ask + `}`, []string{d(`{"reasoning":"r","reasoning_content":"r"}`), f(`{"content":"x"}`, `"stop"`)},
		[]item{{Type: "reasoning", Summary: "r"}, message("x")}, "completed"},
	{"reasoning sealed", ask + `,"include":["reasoning.encrypted_content"]}`, []string{d(`{"reasoning":"r\n"}`), f(`{"content":"x"}`, `"stop"`)},
		[]item{{Type: "reasoning", Summary: "r\n", Encrypted: "some"}, message("x")}, "completed"},
	{"reasoning as content", ask + `,"include":["reasoning.content"]}`, []string{d(`{"reasoning":"r"}`), d(`{"reasoning":"s"}`), f(`{"content":"x"}`, `"stop"`)},
		[]item{{Type: "reasoning", Reasoning: "rs"}, message("x")}, "completed"},
	{"a custom tool", customTools, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"apply_patch","arguments":"{\"input\": \"*** Begin\\n+\\\"é"}}]}`),
		d(`{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{{Type: "custom_tool_call", Status: "completed", CallID: "c1", Name: "apply_patch", Argument: "*** Begin\n+\"é"}}, "completed"},
	{"a custom tool whose arguments are not as promised", customTools, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"apply_patch","arguments":"*** Begin"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{{Type: "custom_tool_call", Status: "completed", CallID: "c1", Name: "apply_patch", Argument: "*** Begin"}}, "completed"},
	{"a custom tool whose input comes in pieces", customTools, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"apply_patch","arguments":" {\"inp"}}]}`),
		d(`{"tool_calls":[{"index":0,"function":{"arguments":"ut\" : \"one\\"}}]}`), d(`{"tool_calls":[{"index":0,"function":{"arguments":"ntwo\\ud83"}}]}`),
		d(`{"tool_calls":[{"index":0,"function":{"arguments":"d\\ude00 three\nfour\\d"}}]}`), d(`{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{{Type: "custom_tool_call", Status: "completed", CallID: "c1", Name: "apply_patch", Argument: "one\ntwo😀 three\nfour\\d"}}, "completed"},
	{"a custom tool that is cut", customTools, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"apply_patch","arguments":"{\"input\":\"one\\"}}]}`), f(`{}`, `"length"`)},
		[]item{{Type: "custom_tool_call", Status: "incomplete", CallID: "c1", Name: "apply_patch", Argument: "one"}}, "incomplete"},
	{"a tool of a namespace", customTools, []string{d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"agents__spawn","arguments":"{}"}}]}`), f(`{}`, `"tool_calls"`)},
		[]item{{Type: "function_call", Status: "completed", CallID: "c1", Name: "spawn", Space: "agents", Argument: "{}"}}, "completed"},
	{"one call at a time", ask + `,"parallel_tool_calls":false}`, []string{d(`{"content":"a"}`),
		d(`{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"c2","function":{"name":"g","arguments":"{\"x\":"}}]}`),
		d(`{"tool_calls":[{"index":1,"function":{"arguments":"1}"}}]}`), f(`{"content":"b"}`, `"tool_calls"`)},
		[]item{message("a"), call("c1", "f", "{}"), message("b")}, "completed"},
	{"logprobs", ask + `,"top_logprobs":1}`, []string{
		`{"choices":[{"index":0,"delta":{"content":"é"},"logprobs":{"content":[{"token":"é","logprob":-0.1,"bytes":null,"top_logprobs":[{"token":"é","logprob":-0.1,"bytes":[195,169]}],"zz":1}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b","logprob":-1e-2,"bytes":[98]}]}}]}`, f(`{}`, `"stop"`)},
		[]item{message("éb")}, "completed"},
	{"logprobs that nobody asked for", ask + `}`, []string{
		`{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b","logprob":-1e-2,"bytes":[98],"top_logprobs":[]}]}}]}`, f(`{}`, `"stop"`)},
		[]item{message("b")}, "completed"},
}

func call(id, name, args string) item {
	return item{Type: "function_call", Status: "completed", CallID: id, Name: name, Argument: args}
}

func message(text string) item { return item{Type: "message", Status: "completed", Text: text} }

// What engines say, and what clients must get. Each case is also a golden file, to be read by eye.
func TestAnswers(t *testing.T) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			got, events := both(t, tt.request, sse(tt.stream...))
			want := &responsestest.Answer{Status: tt.status, Usage: got.Usage, Items: append([]item(nil), tt.want...)}
			for i := range want.Items {
				if i < len(got.Items) && tt.name == "logprobs" {
					want.Items[i].Logprobs = got.Items[i].Logprobs
				}
			}
			if !responsestest.Same(got, want) {
				t.Fatalf("got  %s %+v\nwant %s %+v", got.Status, got.Items, want.Status, want.Items)
			}
			golden(t, tt.name, events)
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".sse")
	if got = normal(got); *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs; -update writes it anew:\n%s", file, got)
	}
}

// normal makes seals, which differ each time, the same.
func normal(b []byte) []byte {
	parts := bytes.Split(b, []byte("mr1."))
	for i := 1; i < len(parts); i++ {
		parts[i] = append([]byte("mr1."), parts[i][bytes.IndexByte(parts[i], '"'):]...)
	}
	return bytes.Join(parts, nil)
}

func TestLogprobsHaveBytes(t *testing.T) {
	got, _ := both(t, ask+`,"include":["message.output_text.logprobs"]}`, sse(
		`{"choices":[{"index":0,"delta":{"content":"é"},"logprobs":{"content":[{"token":"é","logprob":-0.5,"bytes":null}]}}]}`, f(`{}`, `"stop"`)))
	text, _ := json.Marshal(got.Items[0].Logprobs)
	if string(text) != `[{"bytes":[195,169],"logprob":-0.5,"token":"é","top_logprobs":[]}]` {
		t.Fatalf("%s", text)
	}
}

// A stream that an engine breaks at any byte ends with an error and a failed response, and one that is whole with its end.
func TestBrokenAtEveryByte(t *testing.T) {
	for _, tt := range cases[:3] {
		stream := sse(tt.stream...)
		for cut := range len(stream) {
			checkCut(t, tt.request, stream[:cut])
		}
	}
}

func checkCut(t testing.TB, request, stream string) {
	t.Helper()
	a := answersTo(t, request)
	s := a.New(true, params())
	out, err := run(s, strings.NewReader(stream))
	if err == nil {
		if _, err := responsestest.Check(out); err != nil {
			t.Fatalf("%v\n%s\nof\n%s", err, out, stream)
		}
		return
	}
	if len(out) == 0 {
		return // nothing was shown: the client gets a status
	}
	out = s.End(s.Fail(out, []byte(`{"error":{"message":"The model broke off.","type":"server_error","param":null,"code":"upstream_error"}}`)))
	got, err := responsestest.Check(out)
	if err != nil {
		t.Fatalf("%v\n%s\nof\n%s", err, out, stream)
	}
	if got.Status != Failed || got.Error["code"] != "upstream_error" || got.Response["error"].(map[string]any)["code"] != "server_error" {
		t.Fatalf("%s", out)
	}
}

func TestAResponseIsKeptBeforeItsEndIsTold(t *testing.T) {
	for _, stored := range []bool{true, false} {
		for _, stream := range []bool{true, false} {
			a := answersTo(t, ask+`}`)
			var kept []byte
			a.Keep = func(response []byte) bool {
				kept = bytes.Clone(response)
				return stored
			}
			out, err := run(a.New(stream, params()), strings.NewReader(sse(f(`{"content":"x"}`, `"stop"`))))
			if err != nil {
				t.Fatal(err)
			}
			read := responsestest.Whole
			if stream {
				read = responsestest.Check
			}
			told, err := read(out)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := responsestest.Whole(kept)
			if err != nil || !responsestest.Same(told, whole) || told.Response["store"] != stored || whole.Response["store"] != true {
				t.Fatalf("%v: told %s\nkept %s", err, out, kept)
			}
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for _, tt := range cases {
		f.Add(sse(tt.stream...))
	}
	f.Fuzz(func(t *testing.T, stream string) { checkCut(t, customTools, stream) })
}
