package protocol

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// record writes down what a sink is told.
type record struct{}

var kindNames = map[PartKind]string{Reasoning: "reasoning", Text: "text", Refusal: "refusal", Call: "call"}

func (record) Begin(dst []byte, prompt int64) []byte { return fmt.Appendf(dst, "begin %d\n", prompt) }

func (record) Open(dst []byte, i int, p *Part) []byte {
	return fmt.Appendf(dst, "%d %s %s%s{", i, kindNames[p.Kind], p.ID, p.Name)
}

func (record) Delta(dst []byte, _ int, _ *Part, text, logprobs []byte) []byte {
	return fmt.Appendf(dst, "|%s%s", text, logprobs)
}

func (record) Close(dst []byte, _ int, _ *Part) []byte { return append(dst, "}\n"...) }

func said(delta string) string { return `{"choices":[{"index":0,"delta":` + delta + `}]}` }

func tool(index int, id, name, args string) string {
	return fmt.Sprintf(`{"index":%d,"id":%q,"function":{"name":%q,"arguments":%q}}`, index, id, name, args)
}

func calls2(pieces ...string) string {
	return said(`{"tool_calls":[` + strings.Join(pieces, ",") + `]}`)
}

func TestTurnShowsPartsOneAfterAnother(t *testing.T) {
	role := said(`{"role":"assistant","content":""}`)
	end := `{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"tool_calls"}]}`
	for _, tt := range []struct {
		name   string
		events []string
		want   string
	}{
		{"interleaved calls", []string{role, calls2(tool(0, "c1", "f", ""), tool(1, "c2", "g", "")), calls2(tool(1, "", "", `{"b"`)),
			calls2(tool(0, "", "", `{"a":1}`)), calls2(tool(1, "", "", `:2}`)), end},
			"begin -1\n0 call c1f{|{\\\"a\\\":1}}\n1 call c2g{|{\\\"b\\\"|:2}}\n"},
		{"an engine comes back to a call that is not whole", []string{calls2(tool(0, "c1", "f", `{"a":`)), calls2(tool(1, "c2", "g", "{}")),
			calls2(tool(0, "", "", `1}`)), end}, "begin -1\n0 call c1f{|{\\\"a\\\":|1}}\n1 call c2g{|{}}\n"},
		{"a whole call after text", []string{said(`{"content":"Ok."}`), calls2(tool(0, "c1", "Bash", `{"command":"ls"}`)), end},
			"begin -1\n0 text {|Ok.}\n1 call c1Bash{|{\\\"command\\\":\\\"ls\\\"}}\n"},
		{"reasoning, text and a call in one delta", []string{role, said(`{"reasoning":"th"}`), said(`{"reasoning":"ink","content":"ans"}`),
			said(`{"content":"wer","tool_calls":[` + tool(0, "c1", "f", "{}") + `]}`), end},
			"begin -1\n0 reasoning {|th|ink}\n1 text {|ans|wer}\n2 call c1f{|{}}\n"},
		{"empty content makes no part", []string{role, calls2(tool(0, "c1", "f", "{}")), end}, "begin -1\n0 call c1f{|{}}\n"},
		{"text between two calls", []string{calls2(tool(0, "c1", "f", `{}`)), said(`{"content":"and"}`), calls2(tool(1, "c2", "g", ``)), end},
			"begin -1\n0 call c1f{|{}}\n1 text {|and}\n2 call c2g{}\n"},
		{"nothing but an end", []string{role, `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":0}}`},
			"begin 7\n"},
		{"logprobs go with their text", []string{`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a"}]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b"}]}}]}`, end},
			"begin -1\n0 text {|a{\"token\":\"a\"}|b{\"token\":\"b\"}}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var turn Turn
			for range 2 { // its memory is used again
				turn.Reset(&AnswerParams{ID: "answer"})
				var got []byte
				for _, e := range tt.events {
					var err error
					if got, _, err = turn.Add(got, []byte(e), record{}); err != nil {
						t.Fatal(err)
					}
				}
				if string(got) != tt.want {
					t.Fatalf("got\n%swant\n%s", got, tt.want)
				}
			}
		})
	}
}

func TestTurnTellsTheStopSequence(t *testing.T) {
	for raw, want := range map[string]string{`"stop_reason":"END"`: "END", `"matched_stop":"END"`: "END", `"stop_reason":151645`: "",
		`"matched_stop":null`: "", `"stop_reason":null`: ""} {
		var turn Turn
		turn.Reset(&AnswerParams{})
		if _, _, err := turn.Add(nil, []byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop",`+raw+`}]}`), Silent{}); err != nil {
			t.Fatal(err)
		}
		if string(turn.Stop) != want || turn.Finish != "stop" {
			t.Errorf("%s: stop %q, finish %q", raw, turn.Stop, turn.Finish)
		}
	}
}

// A call that is never whole must not be read again with each piece of the call behind it.
func TestACallThatIsNotWholeIsReadOnce(t *testing.T) {
	var turn Turn
	turn.Reset(&AnswerParams{ID: "answer"})
	add := func(event string) {
		if _, _, err := turn.Add(nil, []byte(event), Silent{}); err != nil {
			t.Fatal(err)
		}
	}
	add(calls2(tool(0, "c1", "f", `{"a":{"b":"`+strings.Repeat("x", 1<<20)+`"}`), tool(1, "c2", "g", "")))
	piece := calls2(tool(1, "", "", "1"))
	const pieces, most = 50, 1 << 20 // reading the call takes as many bytes as it has
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range pieces {
		add(piece)
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > most {
		t.Errorf("%d pieces cost %d bytes", pieces, spent)
	}
}
