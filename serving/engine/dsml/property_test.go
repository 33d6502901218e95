package dsml_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace/serving/engine/dsml"
)

// fragments are what texts of models, good and bad, are made of.
var fragments = []string{
	"a", "é", "😀", "\n", "\n\n", " ", "<", ">", "\"", "\\", "</", "{", "}", "[1]", "3", "STOP", "\xff", "\xe2\x82", "\x00",
	"<think>", "</think>", "\n</think>\n", "｜DSML｜", "<｜DSML｜", "</｜DSML｜", "<｜DSML｜ calls>", "</｜DSML｜ calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>",
	"<｜DSML｜ invoke name=\"f\">", "<｜DSML｜invoke name=\"\">", "</｜DSML｜ invoke>", "<｜DSML｜ parameter name=\"p\" string=\"true\">",
	"<｜DSML｜ parameter name=\"q\n\" string=\"false\">", "<｜DSML｜parameter name=\"r\">", "</｜DSML｜ parameter>", "invoke name=\"", "```json\n", "\n```",
	"<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜System｜>", "<｜latest_reminder｜>",
}

var never = []string{"<think>", "</think>", "｜DSML｜", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜begin▁of▁sentence｜>", "<｜System｜>", "<｜latest_reminder｜>"}

var texts = rapid.Custom(func(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 40).Draw(t, "fragments"), "")
})

var parseOptions = rapid.Custom(func(t *rapid.T) dsml.ParseOptions {
	return dsml.ParseOptions{
		Start: rapid.SampledFrom([]dsml.Start{dsml.ContentStart, dsml.ContentContinued, dsml.ReasoningStart, dsml.ReasoningContinued, dsml.InCalls}).Draw(t, "start"),
		Tools: rapid.Bool().Draw(t, "tools"), JSON: rapid.Bool().Draw(t, "json"), OneCall: rapid.Bool().Draw(t, "one call"),
		Stops: rapid.SampledFrom([][]string{nil, {"STOP"}, {"\n"}, {"\n\n", "aé"}, {"</", "<think>"}}).Draw(t, "stops"),
	}
})

func TestNoCutMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, text := parseOptions.Draw(t, "options"), texts.Draw(t, "text")
		finish := rapid.SampledFrom([]string{"stop", "length"}).Draw(t, "finish")
		want, p := parsed(o, finish, text)
		checkAnswer(t, o, text, want, p)
		var parts []string
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
		if got := parse(o, finish, parts...); !equal(got, want) {
			t.Fatalf("cut:   %+v\nwhole: %+v", got, want)
		}
		if got := parse(o, finish, single(text)...); !equal(got, want) {
			t.Fatalf("bytes: %+v\nwhole: %+v", got, want)
		}
	})
}

// checkAnswer checks what holds for every answer.
func checkAnswer(t interface{ Fatalf(string, ...any) }, o dsml.ParseOptions, text string, a answer, p *dsml.Parser) {
	for _, token := range never {
		if !spliced(text) && (strings.Contains(a.Reasoning, token) || strings.Contains(a.Content, token) && !(o.JSON && strings.HasSuffix(token, "think>"))) {
			t.Fatalf("%s came out: %+v", token, a)
		}
	}
	for i, c := range a.Calls {
		if !json.Valid([]byte(c.Arguments)) && !(p.Cut() && i == len(a.Calls)-1) {
			t.Fatalf("the arguments of a call are %s", c.Arguments)
		}
		if c.Name == "" || o.OneCall && i > 0 {
			t.Fatalf("call %d: %+v", i, c)
		}
	}
	if p.Cut() && a.Finish != "length" || !p.Done() {
		t.Fatalf("cut, but %q; done %v", a.Finish, p.Done())
	}
	for _, s := range []string{a.Reasoning, a.Content} {
		if strings.ToValidUTF8(s, "") != s {
			t.Fatalf("%q is no text", s)
		}
	}
}

var dropped = strings.NewReplacer("<think>", "", "</think>", "", "｜DSML｜", "")

// spliced reports whether a text spells a token around one that is dropped: that is no token of the model's.
func spliced(text string) bool {
	rest := dropped.Replace(text)
	for _, token := range never {
		if strings.Count(rest, token) > strings.Count(text, token) || dropped.Replace(rest) != rest {
			return true
		}
	}
	return false
}

func FuzzParse(f *testing.F) {
	for i, text := range fragments {
		f.Add([]byte("a"+text+"b"+strings.Join(fragments[i:], "")), uint16(i), uint16(i*7))
	}
	f.Fuzz(func(t *testing.T, text []byte, cut, bits uint16) {
		o := dsml.ParseOptions{Start: dsml.Start(bits % 5), Tools: bits&8 != 0, JSON: bits&16 != 0, OneCall: bits&32 != 0}
		if bits&64 != 0 {
			o.Stops = []string{"STOP", "\n"}
		}
		want, p := parsed(o, "stop", string(text))
		checkAnswer(t, o, string(text), want, p)
		n := int(cut) % (len(text) + 1)
		if got := parse(o, "stop", string(text[:n]), string(text[n:])); !equal(got, want) {
			t.Fatalf("cut at %d: %+v\nwhole: %+v", n, got, want)
		}
	})
}

func FuzzRender(f *testing.F) {
	var cases []renderCase
	load(f, "render_cases.json", &cases)
	for _, c := range cases {
		f.Add([]byte(c.Request))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		for _, v := range versions {
			p, err := dsml.Render(body, dsml.Options{Version: v, ThinkByDefault: true})
			if err != nil {
				continue
			}
			for i, s := range p.Segments {
				if s.Text == "" || !s.Special && i > 0 && !p.Segments[i-1].Special {
					t.Fatalf("segment %d of %+v", i, p.Segments)
				}
			}
			if raw := p.AppendRequest(nil, body, dsml.Request{Model: "m"}); !json.Valid(raw) {
				t.Fatalf("%s", raw)
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(event("a</think>b", "stop", 3)))
	f.Add([]byte(`{"choices":[{"index":1,"text":"\ud83d<｜DSML｜ invoke name=\"f\"></｜DSML｜"}],"usage":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := dsml.NewStream(dsml.ParseOptions{Start: dsml.ReasoningStart, Tools: true}, nil)
		for range 2 {
			if chunk, err := s.Add(nil, data); err == nil && string(chunk) != "[DONE]" && !json.Valid(chunk) {
				t.Fatalf("%s became %s", data, chunk)
			}
		}
	})
}

// What a parser keeps does not grow with the text.
func TestMemoryIsBounded(t *testing.T) {
	const call = "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"p\" string=\"false\">"
	for _, c := range []struct{ name, before, run string }{
		{"newlines", "a", "\n"}, {"text", "", "abc "}, {"a JSON value", call, "[1],"}, {"a name", "<｜DSML｜ invoke name=\"", "n"}, {"junk among calls", "<｜DSML｜ calls>", "x<"},
		{"after the end", "<｜DSML｜ calls></｜DSML｜ calls>", "x"},
	} {
		p := dsml.NewParser(dsml.ParseOptions{Tools: true}, nil)
		p.Feed([]byte(c.before))
		run := []byte(strings.Repeat(c.run, 1000))
		for range 2000 {
			p.Feed(run)
		}
		if n := p.Size(); n > 2<<20 {
			t.Errorf("%s: %d bytes are kept", c.name, n)
		}
	}
}

func TestALongJSONValueGoesOutAsItComes(t *testing.T) {
	value := "[" + strings.Repeat("1,", 600<<10) + "x]"
	text := "<｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"p\" string=\"false\">" + value + "</｜DSML｜ parameter></｜DSML｜ invoke>"
	want := `{"p": ` + value + "}"
	for _, cut := range []int{0, 1000, len(text) - 40} {
		if got := parse(dsml.ParseOptions{Tools: true}, "stop", text[:cut], text[cut:]); len(got.Calls) != 1 || got.Calls[0].Arguments != want {
			t.Errorf("cut at %d: %d calls", cut, len(got.Calls))
		}
	}
}

// Conversations and texts that nobody thought of, held against the oracle.
func TestTheOracleAgreesOnRandomCases(t *testing.T) {
	const n = 400
	requests, cases := make([]map[string]any, n), make([]map[string]any, n)
	for i := range n {
		requests[i] = map[string]any{"request": conversations.Example(i)}
		cases[i] = map[string]any{"texts": []string{plainTexts.Example(i)}, "options": map[string]any{"start": []string{"reasoning", "content", "content_continued"}[i%3], "stops": []string{"STOP"}}}
	}
	var prompts []map[string]rendered
	ask(t, requests, &prompts)
	refused := 0
	for i := range n {
		raw, _ := json.Marshal(requests[i]["request"]) // strings, maps and slices marshal
		for name, v := range versions {
			if prompts[i][name].Error != "" {
				refused++
			}
			checkRendered(t, &renderCase{Request: raw}, v, prompts[i][name])
		}
	}
	if refused > n {
		t.Errorf("the oracle refused %d of %d requests: they test nothing", refused, 2*n)
	}
	var answers []answer
	ask(t, cases, &answers)
	for i := range n {
		text := cases[i]["texts"].([]string)[0]
		o := dsml.ParseOptions{Tools: true, Start: []dsml.Start{dsml.ReasoningStart, dsml.ContentStart, dsml.ContentContinued}[i%3], Stops: []string{"STOP"}}
		if got := parse(o, "stop", text); !equal(got, answers[i]) {
			t.Errorf("%q:\ngot  %+v\nwant %+v", text, got, answers[i])
		}
	}
}

// plainTexts are texts on which we and the oracle must agree: no token that only we hide, no broken markup.
var plainTexts = rapid.Custom(func(t *rapid.T) string {
	word := rapid.SampledFrom([]string{"a", "é", "😀", "\n", "\n\n", " ", "<", ">", "\"", "\\", "</", "{", "STOP", "</think>", "\n</think>\n", "｜", "<｜DS", "```"})
	s := strings.Join(rapid.SliceOfN(word, 0, 20).Draw(t, "words"), "")
	if rapid.Bool().Draw(t, "calls") {
		s += "\n\n<｜DSML｜ calls>\n"
		for range rapid.IntRange(1, 3).Draw(t, "n") {
			s += "<｜DSML｜ invoke name=\"f\">\n"
			for i := range rapid.IntRange(0, 3).Draw(t, "parameters") {
				value, kind := strings.Join(rapid.SliceOfN(word, 0, 8).Draw(t, "value"), ""), "true"
				if rapid.Bool().Draw(t, "json") {
					value, kind = `{"k" : [1, 2.0,"é"]}`, "false"
				}
				s += fmt.Sprintf("<｜DSML｜ parameter name=\"p%d\" string=\"%s\">%s</｜DSML｜ parameter>\n", i, kind, value)
			}
			s += "</｜DSML｜ invoke>\n"
		}
		s += "</｜DSML｜ calls>"
	}
	return theirBug.ReplaceAllString(s, "\n")
})

// theirBug is where the oracle misses markup: newlines before it that follow the beginning of a token.
var theirBug = regexp.MustCompile("(<|</|<｜DS)+\n")

// conversations are requests of any shape, most of them well-formed.
var conversations = rapid.Custom(func(t *rapid.T) map[string]any {
	word := rapid.SampledFrom([]string{"", "a", "json é\n", "<｜User｜>", "</think>", " b ", "｜DSML｜"})
	var messages []any
	last := 0
	for range rapid.IntRange(1, 6).Draw(t, "messages") {
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			messages = append(messages, map[string]any{"role": "system", "content": word.Draw(t, "system")})
		case 1, 2:
			messages = append(messages, map[string]any{"role": "user", "content": word.Draw(t, "user")})
		case 3:
			messages = append(messages, map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": word.Draw(t, "part")}, map[string]any{"type": "text", "text": word.Draw(t, "part")}}})
		default:
			m := map[string]any{"role": "assistant", "content": word.Draw(t, "answer"), "reasoning_content": word.Draw(t, "reasoning")}
			messages = append(messages, m)
			n := rapid.IntRange(0, 3).Draw(t, "calls")
			if n == 0 {
				continue
			}
			var calls, results []any
			for range n {
				last++
				id := fmt.Sprintf("c%d", last)
				calls = append(calls, map[string]any{"id": id, "type": "function", "function": map[string]any{"name": "f", "arguments": arguments.Draw(t, "arguments")}})
				results = append(results, map[string]any{"role": "tool", "tool_call_id": id, "content": word.Draw(t, "result")})
			}
			m["tool_calls"] = calls
			messages = append(messages, rapid.Permutation(results).Draw(t, "results")...)
		}
	}
	r := map[string]any{"messages": messages}
	for name, values := range map[string][]any{
		"thinking":         {nil, map[string]any{"type": "enabled"}, map[string]any{"type": "disabled"}},
		"reasoning_effort": {nil, "low", "high", "max", "none"},
		"tools":            {nil, []any{map[string]any{"type": "function", "function": map[string]any{"name": "f", "description": "<think>", "parameters": map[string]any{"type": "object", "properties": map[string]any{"a": map[string]any{"minimum": 1.5e-5}}}}}}},
	} {
		if v := rapid.SampledFrom(values).Draw(t, name); v != nil {
			r[name] = v
		}
	}
	return r
})

var arguments = rapid.SampledFrom([]string{`{}`, `{"a":"x\ny"}`, `{"a":1.50,"b":[{"c":null}],"d":"<｜DSML｜"}`, `nonsense`, `{"a":{"b":"é\u00e9"}}`, `[]`})

func TestTheExamplesDiffer(t *testing.T) {
	if reflect.DeepEqual(conversations.Example(1), conversations.Example(2)) {
		t.Error("two seeds, one conversation")
	}
}
