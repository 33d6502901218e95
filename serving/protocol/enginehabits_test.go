package protocol

import (
	"strings"
	"testing"
)

// What engines call otherwise, or cut otherwise, is read all the same: an answer that was made is billed.
func TestHabitsOfEngines(t *testing.T) {
	const end = `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`
	message := func(m string) string {
		return `{"choices":[{"index":0,"message":` + m + `,"finish_reason":"stop"}]}`
	}
	for _, tt := range []struct {
		name   string
		events []string
		want   string // of the turn
		finish string
	}{
		{"a function_call in deltas", []string{said(`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}`), said(`{"function_call":{"arguments":"{\"a\""}}`),
			said(`{"function_call":{"arguments":":1}"}}`), `{"choices":[{"index":0,"delta":{},"finish_reason":"function_call"}]}`},
			"0 call call_answer_0_0f{|{\\\"a\\\"|:1}}\n", "tool_calls"},
		{"a function_call beside tool_calls is the same call", []string{said(`{"tool_calls":[` + tool(0, "c1", "f", "{}") + `],"function_call":{"name":"f","arguments":"{}"}}`), end},
			"0 call c1f{|{}}\n", "tool_calls"},
		{"a message in the place of a delta", []string{message(`{"role":"assistant","content":"hi","reasoning_content":"r"}`)}, "0 reasoning {|r}\n1 text {|hi}\n", "stop"},
		{"calls in a message have no index", []string{message(`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}`)},
			"0 call c1f{|{}}\n1 call c2g{|{}}\n", "stop"},
		{"nor always an id", []string{message(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}]}`)},
			"0 call call_answer_0_0f{|{}}\n1 call call_answer_0_1f{|{}}\n", "stop"},
		{"a name in pieces", []string{calls2(tool(0, "c1", "get_", "")), calls2(tool(0, "", "weather", "")), calls2(tool(0, "", "", `{}`)), end}, "0 call c1get_weather{|{}}\n", "tool_calls"},
		{"a name in pieces, the id with each", []string{calls2(tool(0, "c1", "get_", "")), calls2(tool(0, "c1", "weather", `{}`)), end}, "0 call c1get_weather{|{}}\n", "tool_calls"},
		{"a name that grows", []string{calls2(tool(0, "c1", "get", "")), calls2(tool(0, "c1", "get_weather", "")), calls2(tool(0, "c1", "get_weather", "{}")), end},
			"0 call c1get_weather{|{}}\n", "tool_calls"},
		{"a name again with each piece", []string{calls2(tool(0, "c1", "f", "")), calls2(tool(0, "c1", "f", `{"a"`)), calls2(tool(0, "c1", "f", `:1}`)), end}, "0 call c1f{|{\\\"a\\\"|:1}}\n", "tool_calls"},
		{"no arguments", []string{calls2(tool(0, "c1", "f", "")), end}, "0 call c1f{}\n", "tool_calls"},
		{"a name in pieces and no arguments", []string{calls2(tool(0, "c1", "f", "")), calls2(tool(0, "", "g", "")), end}, "0 call c1fg{}\n", "tool_calls"},
		{"names in pieces of two calls", []string{calls2(tool(0, "c1", "a", "")), calls2(tool(0, "", "b", "")), calls2(tool(1, "c2", "c", "")), calls2(tool(1, "", "d", "")), calls2(tool(1, "", "", "{}")), end},
			"0 call c1ab{}\n1 call c2cd{|{}}\n", "tool_calls"},
		{"text after a call without arguments", []string{calls2(tool(0, "c1", "f", "")), said(`{"content":"x"}`), end}, "0 call c1f{}\n1 text {|x}\n", "tool_calls"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var turn Turn
			turn.Reset(&AnswerParams{ID: "answer"})
			got, stream := []byte(nil), strings.Builder{}
			for _, e := range tt.events {
				var err error
				if got, _, err = turn.Add(got, []byte(e), record{}); err != nil {
					t.Fatal(err)
				}
				stream.WriteString("data: " + e + "\n\n")
			}
			if want := "begin -1\n" + tt.want; string(got) != want || turn.Finish != tt.finish {
				t.Errorf("got\n%swant\n%s%s", got, want, turn.Finish)
			}
			whole := both(t, stream.String()+`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`+"\n\ndata: [DONE]\n\n", 1)
			shown := whole.Choices[0].Calls
			for _, p := range turn.Parts {
				if p.Kind == Call {
					if len(shown) == 0 || shown[0].Name != string(p.Name) {
						t.Fatalf("%s is not among what chat shows: %+v", p.Name, whole)
					}
					shown = shown[1:]
				}
			}
			if len(shown) > 0 {
				t.Errorf("chat shows more calls: %+v", shown)
			}
		})
	}
}
