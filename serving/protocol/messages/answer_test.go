package messages

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/protocol"
	"millrace/serving/protocol/messages/messagestest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// said is a chunk with a delta, and members beside it.
func said(delta string, beside ...string) string {
	return `{"choices":[{"index":0,"delta":` + delta + strings.Join(beside, "") + `}]}`
}

func finished(reason string, beside ...string) string {
	return said(`{}`, append([]string{`,"finish_reason":"` + reason + `"`}, beside...)...)
}

func piece(index int, id, name, args string) string {
	return fmt.Sprintf(`{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}`, index, id, name, args)
}

func more(index int, args string) string {
	return fmt.Sprintf(`{"index":%d,"function":{"arguments":%q}}`, index, args)
}

func called(pieces ...string) string {
	return said(`{"tool_calls":[` + strings.Join(pieces, ",") + `]}`)
}

const (
	roleChunk  = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`
	usageChunk = `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107}}`
)

// counted is what the gate makes of the engine's count.
var counted = usage.Vector{usage.Input: 36, usage.Cached: 64, usage.Output: 4, usage.Reasoning: 3}

// sse is an engine's stream.
func sse(lineEnd string, events ...string) []byte {
	var b strings.Builder
	for _, e := range append(events, "[DONE]") {
		b.WriteString("data: " + e + lineEnd + lineEnd)
	}
	return []byte(b.String())
}

// play gives an engine's bytes to an answer as the gate does.
func play(a protocol.Answer, r io.Reader) []byte {
	var out []byte
	var events protocol.Events
	fail := func() []byte {
		frame := []byte(`{"type":"error","error":{"type":"api_error","message":"The model's engine failed."},"request_id":"req_1"}`)
		return a.End(a.Fail(out, frame))
	}
	for {
		for data := events.Next(); data != nil; data = events.Next() {
			before := len(out)
			var step protocol.Step
			var err error
			if out, step, err = a.Add(out, data); err != nil {
				out = out[:before]
				return fail()
			}
			if step.Done {
				r = bytes.NewReader(nil)
			}
		}
		if err := events.Fill(r); err != nil && !errors.Is(err, io.EOF) {
			return fail()
		} else if err != nil {
			if data := events.Next(); data != nil {
				out, _, _ = a.Add(out, data)
			}
			if !a.Complete() {
				return fail()
			}
			return a.End(a.Finish(out, &counted))
		}
	}
}

func params() protocol.AnswerParams {
	return protocol.AnswerParams{ID: "msg_0123456789abcdef", Model: "acme/test", Created: 1, N: 1, Prompt: 11, Usage: true}
}

// read plays a stream both ways and checks that they come to the same.
func read(t *testing.T, v *view, engine []byte) (*messagestest.Message, []byte) {
	t.Helper()
	s := newStream(params(), v)
	defer s.Release()
	streamed := play(s, bytes.NewReader(engine))
	got, err := messagestest.Check(streamed)
	if err != nil {
		t.Fatalf("%v\n%s", err, streamed)
	}
	if got.Error != nil {
		return got, streamed
	}
	w := newWhole(params(), v)
	defer w.Release()
	body := play(w, bytes.NewReader(engine))
	whole, err := messagestest.Whole(body)
	if err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	if !messagestest.Same(got, whole) || *got.Usage.Input != *whole.Usage.Input || *got.Usage.Output != *whole.Usage.Output {
		t.Fatalf("streamed and whole differ:\n%s\n%s", streamed, body)
	}
	return got, streamed
}

// shown is an answer in one line.
func shown(m *messagestest.Message) string {
	var b strings.Builder
	for _, c := range m.Content {
		switch c.Type {
		case "text":
			fmt.Fprintf(&b, "text(%s) ", *c.Text)
		case "thinking":
			fmt.Fprintf(&b, "thinking(%s) ", *c.Thinking)
		default:
			fmt.Fprintf(&b, "%s(%s %s %s) ", c.Type, c.ID, c.Name, cmp.Or(string(c.Input), "{}"))
		}
	}
	if m.Error != nil {
		return b.String() + "error " + m.Error.Type
	}
	b.WriteString(*m.StopReason)
	if m.StopText != nil {
		b.WriteString(" " + *m.StopText)
	}
	return b.String()
}

// cases are engines' streams and what a client has in the end. Those with a file are kept whole.
var cases = []struct {
	name, file string
	view       view
	events     []string
	want       string
}{
	{"another id on every piece", "", view{}, []string{called(piece(0, "c1", "f", `{"a":`)), said(`{"tool_calls":[{"index":0,"id":"c2","type":"function","function":{"arguments":"1}"}}]}`), finished("tool_calls")}, `tool_use(c1 f {"a":1}) tool_use`},
	{"empty finish", "", view{}, []string{said(`{"content":"a"}`, `,"finish_reason":""`), said(`{"content":"b"}`, `,"finish_reason":""`), finished("stop")}, `text(ab) end_turn`},
	{"interleaved parallel calls", "interleaved", view{}, []string{roleChunk, called(piece(0, "c1", "f", ""), piece(1, "c2", "g", "")), called(more(1, `{"b"`)),
		called(more(0, `{"a":1}`)), called(more(1, `:2}`)), finished("tool_calls"), usageChunk}, `tool_use(c1 f {"a":1}) tool_use(c2 g {"b":2}) tool_use`},
	{"a whole call right after text", "after-text", view{}, []string{said(`{"content":"Ok."}`), called(piece(0, "c1", "Bash", `{"command":"ls"}`)), finished("tool_calls")},
		`text(Ok.) tool_use(c1 Bash {"command":"ls"}) tool_use`},
	{"reasoning, text and a call in one delta", "one-delta", view{}, []string{roleChunk, said(`{"reasoning":"th"}`), said(`{"reasoning":"ink","content":"ans"}`),
		said(`{"content":"wer","tool_calls":[` + piece(0, "c1", "f", "{}") + `]}`), finished("tool_calls")}, `thinking(think) text(answer) tool_use(c1 f {}) tool_use`},
	{"reasoning under both names", "", view{}, []string{said(`{"reasoning":"r","reasoning_content":"r"}`), said(`{"content":"a"}`), finished("stop")}, `thinking(r) text(a) end_turn`},
	{"usage", "usage", view{}, []string{said(`{"content":"hi"}`), finished("stop"), usageChunk}, `text(hi) end_turn`},
	{"usage on every chunk", "", view{}, []string{
		`{"choices":[{"index":0,"delta":{"content":"h"}}],"usage":{"prompt_tokens":100,"completion_tokens":1}}`,
		`{"choices":[{"index":0,"delta":{"content":"i"}}],"usage":{"prompt_tokens":100,"completion_tokens":2}}`, finished("stop"), usageChunk}, `text(hi) end_turn`},
	{"an empty chunk first", "empty-first", view{}, []string{roleChunk, called(piece(0, "c1", "f", "{}")), said(`{"content":""}`, `,"finish_reason":"tool_calls"`)}, `tool_use(c1 f {}) tool_use`},
	{"vLLM's stop sequence", "stop-sequence", view{stops: []string{"END"}}, []string{said(`{"content":"a"}`), finished("stop", `,"stop_reason":"END"`)}, `text(a) stop_sequence END`},
	{"SGLang's stop sequence", "", view{stops: []string{"\n\"é"}}, []string{said(`{"content":"a"}`), finished("stop", `,"matched_stop":"\n\"\u00e9"`)}, "text(a) stop_sequence \n\"é"},
	{"a stop token", "", view{stops: []string{"END"}}, []string{said(`{"content":"a"}`), finished("stop", `,"stop_reason":151645,"matched_stop":null`)}, `text(a) end_turn`},
	{"the engine's own stop", "", view{stops: []string{"END"}}, []string{said(`{"content":"a"}`), finished("stop", `,"stop_reason":"</s>"`)}, `text(a) end_turn`},
	{"a whole call before a stop sequence", "", view{stops: []string{"END"}}, []string{called(piece(0, "c", "f", "{}")), finished("stop", `,"stop_reason":"END"`)}, `tool_use(c f {}) tool_use`},
	{"a stop sequence inside of a call", "", view{stops: []string{"END"}}, []string{called(piece(0, "c", "f", `{"a":"`)), finished("stop", `,"stop_reason":"END"`)}, `tool_use(c f {}) stop_sequence END`},
	{"the limit before a stop sequence", "", view{stops: []string{"END"}}, []string{said(`{"content":"a"}`), finished("length", `,"stop_reason":"END"`)}, `text(a) max_tokens`},
	{"a forced call that says stop", "forced", view{}, []string{called(piece(0, "c", "f", `{"a":1}`)), finished("stop")}, `tool_use(c f {"a":1}) tool_use`},
	{"the limit inside of a call", "cut-call", view{}, []string{called(piece(0, "c", "f", `{"a":1,"b":[{"c":2},{"d":"e`)), finished("length")}, `tool_use(c f {"a":1,"b":[{"c":2},{}]}) max_tokens`},
	{"the limit inside of a number", "", view{}, []string{called(piece(0, "c", "f", `{"a":1,"b":12`)), finished("length")}, `tool_use(c f {"a":1,"b":12}) max_tokens`},
	{"the limit while thinking", "", view{}, []string{said(`{"reasoning":"hm"}`), finished("length")}, `thinking(hm) max_tokens`},
	{"a content filter", "", view{}, []string{said(`{"content":"a"}`), finished("content_filter")}, `text(a) refusal`},
	{"a refusal", "", view{}, []string{said(`{"refusal":"no"}`), finished("stop")}, `text(no) refusal`},
	{"nothing", "nothing", view{}, []string{roleChunk, finished("stop")}, `end_turn`},
	{"tool_calls without a call", "", view{}, []string{said(`{"content":"a"}`), finished("tool_calls")}, `text(a) end_turn`},
	{"a call without arguments", "no-arguments", view{}, []string{called(piece(0, "c", "f", "")), finished("tool_calls")}, `tool_use(c f {}) tool_use`},
	{"arguments that go on", "", view{}, []string{called(piece(0, "c", "f", `{"a":1}`)), called(more(0, "}</tool_call>")), finished("tool_calls")}, `tool_use(c f {"a":1}) tool_use`},
	{"arguments that are no object", "", view{}, []string{called(piece(0, "c", "f", `null`)), finished("tool_calls")}, `tool_use(c f {}) tool_use`},
	{"arguments that are no JSON", "", view{}, []string{called(piece(0, "c", "f", `{"a":1,b}`)), finished("tool_calls")}, `tool_use(c f {"a":1}) tool_use`},
	{"arguments as an object", "", view{}, []string{said(`{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":{"a":"b"}}}]}`), finished("tool_calls")}, `tool_use(c f {"a":"b"}) tool_use`},
	{"space around arguments", "", view{}, []string{called(piece(0, "c", "f", "\n ")), called(more(0, "{\n \"a\":1}\n")), finished("tool_calls")}, "tool_use(c f {\n \"a\":1}) tool_use"},
	{"id and name again and again", "", view{}, []string{called(piece(0, "c", "f", `{"a"`)), called(piece(0, "c", "f", `:1}`)), finished("tool_calls")}, `tool_use(c f {"a":1}) tool_use`},
	{"no index", "", view{}, []string{said(`{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{"}}]}`), said(`{"tool_calls":[{"function":{"arguments":"}"}}]}`), finished("tool_calls")}, `tool_use(c f {}) tool_use`},
	{"the first index is 1", "", view{}, []string{called(piece(1, "c", "f", `{}`)), finished("tool_calls")}, `tool_use(c f {}) tool_use`},
	{"one index for two calls", "", view{}, []string{called(piece(0, "c", "f", `{}`)), called(piece(0, "d", "g", `{}`)), finished("tool_calls")}, `tool_use(c f {}) tool_use(d g {}) tool_use`},
	{"text between calls", "", view{}, []string{called(piece(0, "c", "f", `{}`)), said(`{"content":"and"}`), called(piece(1, "d", "g", `{}`)), finished("tool_calls")}, `tool_use(c f {}) text(and) tool_use(d g {}) tool_use`},
	{"one call asked for", "one-call", view{oneCall: true}, []string{called(piece(0, "c", "f", `{}`), piece(1, "d", "g", `{}`)), said(`{"content":"and"}`), finished("tool_calls")}, `tool_use(c f {}) text(and) tool_use`},
	{"omitted thinking", "omitted", view{omit: true}, []string{said(`{"reasoning":"secret"}`), said(`{"content":"a"}`), finished("stop")}, `thinking() text(a) end_turn`},
	{"disabled thinking", "", view{hide: true}, []string{said(`{"reasoning":"secret"}`), said(`{"content":"a"}`), finished("stop")}, `text(a) end_turn`},
	{"the last of three calls ends first", "", view{}, []string{called(piece(0, "a", "f", `{`)), called(piece(1, "b", "g", `{"b`)), called(piece(2, "c", "h", `{}`), more(1, `":2}`)), said(`{"content":"so"}`),
		called(more(0, `"a":1}`)), finished("tool_calls")}, `tool_use(a f {"a":1}) tool_use(b g {"b":2}) tool_use(c h {}) text(so) tool_use`},
	{"thinking, text, and both again", "", view{}, []string{said(`{"reasoning":"a"}`), said(`{"content":"b"}`), said(`{"reasoning":"c"}`), said(`{"content":"d"}`), finished("stop")}, `thinking(a) text(b) thinking(c) text(d) end_turn`},
	{"calls before the texts in one delta, with the finish", "", view{}, []string{said(`{"tool_calls":[`+piece(0, "c", "f", "{}")+`],"content":"answer","reasoning_content":"think"}`, `,"finish_reason":"tool_calls"`)},
		`thinking(think) text(answer) tool_use(c f {}) tool_use`},
	{"null and nothing everywhere", "", view{}, []string{said(`{"role":"assistant","content":null,"reasoning":null,"tool_calls":null}`), said(`null`), said(`{"content":"","tool_calls":[]}`),
		said(`{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":null}}]}`), said(`{"tool_calls":[{"index":0,"id":null,"function":{"name":"","arguments":"{}"}}]}`),
		said(`{"content":null}`, `,"finish_reason":"tool_calls"`)}, `tool_use(c f {}) tool_use`},
	{"arguments twice over", "", view{}, []string{called(piece(0, "c", "f", `{"a":1}{"b":2}`)), finished("tool_calls")}, `tool_use(c f {"a":1}) tool_use`},
	{"an index that jumps", "", view{}, []string{called(piece(7, "c", "f", `{`)), called(piece(-1, "d", "g", `{}`)), called(more(7, `}`)), finished("tool_calls")}, `tool_use(c f {}) tool_use(d g {}) tool_use`},
	{"an error inside of a call", "", view{}, []string{called(piece(0, "c", "f", `{"a":`)), `{"choices":[{"index":0,"delta":{"content":"x"}}],"error":{"message":"engine died"}}`}, `tool_use(c f {}) error api_error`},
	{"escapes", "", view{}, []string{said(`{"content":"\"\\\n\u00e9😀\ud83d\ude00"}`), finished("stop")}, "text(\"\\\né😀😀) end_turn"},
	{"a huge delta", "", view{}, []string{said(`{"content":"` + strings.Repeat("x", 300_000) + `"}`), finished("stop")}, `text(` + strings.Repeat("x", 300_000) + `) end_turn`},
	{"after the finish", "", view{}, []string{said(`{"content":"a"}`), finished("stop"), said(`{"content":"b"}`)}, `text(a) end_turn`},
	{"an error in the stream", "error", view{}, []string{said(`{"content":"par"}`), `{"error":{"message":"engine died","type":"server_error","code":500}}`}, `text(par) error api_error`},
	{"an error beside no choices", "", view{}, []string{said(`{"content":"par"}`), `{"choices":[],"error":{"message":"engine died"}}`}, `text(par) error api_error`},
	{"an abort", "", view{}, []string{said(`{"content":"par"}`), finished("abort")}, `text(par) error api_error`},
	{"garbage", "", view{}, []string{said(`{"content":"par"}`), `{"choi`}, `text(par) error api_error`},
	{"no finish", "", view{}, []string{said(`{"content":"par"}`)}, `text(par) error api_error`},
}

func TestAnswers(t *testing.T) {
	seal := testSeal(t)
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.view
			v.seal = seal
			for _, end := range []string{"\n", "\r\n"} {
				got, streamed := read(t, &v, sse(end, tt.events...))
				if got := shown(got); got != tt.want {
					t.Fatalf("got  %.300s\nwant %.300s", got, tt.want)
				}
				for _, b := range got.Content {
					if b.Type == "thinking" && got.Error == nil && string(seal.Open([]byte(*b.Signature))) == "" {
						t.Error("the signature does not hold the thinking")
					}
				}
				if tt.file != "" {
					golden(t, tt.file, unsigned(streamed))
				}
			}
		})
	}
}

// unsigned is a stream without what is another one every time.
func unsigned(stream []byte) []byte {
	const mark = `"signature_delta","signature":"`
	for at := 0; ; {
		n := bytes.Index(stream[at:], []byte(mark))
		if n < 0 {
			return stream
		}
		at += n + len(mark)
		end := bytes.IndexByte(stream[at:], '"')
		stream = append(append(append([]byte(nil), stream[:at]...), "SEALED"...), stream[at+end:]...)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".sse")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %v\ngot\n%s\nwant\n%s", path, err, got, want)
	}
}

func TestUsage(t *testing.T) {
	got, _ := read(t, &view{seal: testSeal(t)}, sse("\n", said(`{"content":"hi"}`), finished("stop"), usageChunk))
	u := got.Usage
	if *u.Input != 36 || *u.CacheRead != 64 || *u.CacheWrite != 0 || *u.Output != 7 || u.Details.Thinking != 3 {
		t.Errorf("%+v", u)
	}
	for name, tt := range map[string]struct{ event, want string }{
		"the estimate":       {said(`{"content":"hi"}`), `"input_tokens":11,`},
		"the engine's count": {`{"choices":[{"index":0,"delta":{"content":"h"}}],"usage":{"prompt_tokens":100,"completion_tokens":1}}`, `"input_tokens":100,`},
	} {
		s := newStream(params(), &view{seal: testSeal(t)})
		out, _, err := s.Add(nil, []byte(tt.event))
		if start, _, _ := strings.Cut(string(out), "\n\n"); err != nil || !strings.Contains(start, tt.want) {
			t.Errorf("%s: %s", name, start)
		}
	}
}

// byBytes gives the stream piece by piece.
type byBytes struct {
	rest []byte
	size int
	err  error
}

func (b *byBytes) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p[:min(b.size, len(p))], b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// However the network cuts a stream up, the client gets the same.
func TestPiecesOfAnyLength(t *testing.T) {
	v := &view{seal: testSeal(t), omit: true}
	for _, end := range []string{"\n", "\r\n"} {
		engine := sse(end, roleChunk, said(`{"reasoning":"日本"}`), said(`{"content":"é😀"}`), called(piece(0, "c", "f", `{"ü":"日`)), called(more(0, `本"}`)), finished("tool_calls"), usageChunk)
		want, _ := read(t, v, engine)
		for size := 1; size < len(engine); size++ {
			out := play(newStream(params(), v), &byBytes{engine, size, io.EOF})
			got, err := messagestest.Check(out)
			if err != nil || !messagestest.Same(got, want) {
				t.Fatalf("pieces of %d: %v\n%s", size, err, out)
			}
		}
	}
}

// A stream that breaks off anywhere is an error, or whole where all had come; never a lie.
func TestCutAtEveryByte(t *testing.T) {
	v := &view{seal: testSeal(t)}
	for _, tt := range cases {
		engine := sse("\n", tt.events...)
		if len(engine) > 10_000 {
			continue
		}
		for n := range engine {
			out := play(newStream(params(), v), &byBytes{engine[:n], 64, io.ErrUnexpectedEOF})
			if bytes.HasPrefix(out, []byte("event: error")) {
				continue // before message_start: the gate answers with a status
			}
			if m, err := messagestest.Check(out); err != nil || m.Error == nil {
				t.Fatalf("%s cut at %d: %v\n%s", tt.name, n, err, out)
			}
		}
	}
}

// Whatever an engine sends, the client gets an answer that keeps the rules, and the same whole.
func FuzzStream(f *testing.F) {
	for _, tt := range cases {
		if engine := sse("\n", tt.events...); len(engine) < 2000 {
			f.Add(engine, 7)
		}
	}
	seal := testSeal(f)
	f.Fuzz(func(t *testing.T, engine []byte, size int) {
		v := &view{seal: seal}
		out := play(newStream(params(), v), &byBytes{engine, 1 + size&63, io.EOF})
		if bytes.HasPrefix(out, []byte("event: error")) {
			return
		}
		got, err := messagestest.Check(bytes.ToValidUTF8(out, []byte("?")))
		if err != nil {
			t.Fatalf("%v\n%q\n%s", err, engine, out)
		}
		if got.Error != nil {
			return
		}
		body := play(newWhole(params(), v), bytes.NewReader(engine))
		whole, err := messagestest.Whole(bytes.ToValidUTF8(body, []byte("?")))
		if err != nil || !messagestest.Same(got, whole) {
			t.Fatalf("%v\n%q\n%s\n%s", err, engine, out, body)
		}
	})
}

func BenchmarkStream(b *testing.B) {
	v := &view{seal: testSeal(b)}
	chunk := []byte(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":100,"completion_tokens":3,"total_tokens":103}}`)
	s := newStream(params(), v)
	out, _, _ := s.Add(nil, chunk)
	b.ReportAllocs()
	for b.Loop() {
		if len(s.turn.Parts[0].Text) > 1<<20 {
			s.turn.Reset(&s.p)
			s.blocks = 0
		}
		out, _, _ = s.Add(out[:0], chunk)
	}
}
