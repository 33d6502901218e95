package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/internal/usage"
)

// deltas gives the deltas and finish reasons of a stream, one a line.
func deltas(t *testing.T, body string) string {
	t.Helper()
	var lines []string
	for event := range strings.SplitSeq(strings.TrimSpace(body), "\n\n") {
		data := strings.TrimPrefix(event, "data: ")
		if data == doneData {
			continue
		}
		var c struct {
			Choices []struct {
				Delta  json.RawMessage
				Finish *string `json:"finish_reason"`
			}
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		line := string(c.Choices[0].Delta)
		if f := c.Choices[0].Finish; f != nil {
			line += " " + *f
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestCallsAsTheClientKnowsThem(t *testing.T) {
	end := `{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`
	const role = `{"role":"assistant","content":""}` + "\n"
	for _, tt := range []struct {
		name          string
		p             AnswerParams
		events        []string
		stream, whole string // of whole the message's calls and the finish reason
	}{
		{"custom", AnswerParams{CustomTools: []string{"sh"}}, []string{calls2(tool(0, "c1", "sh", `{"inp`)), calls2(tool(0, "", "", `ut":"ls\`)),
			calls2(tool(0, "", "", `n-l"}`)), calls2(tool(1, "c2", "g", `{}`)), end},
			role + `{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"sh","input":""}}]}` + "\n" +
				`{"tool_calls":[{"index":0,"custom":{"input":"ls"}}]}` + "\n" + `{"tool_calls":[{"index":0,"custom":{"input":"\n-l"}}]}` + "\n" +
				`{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}` + "\n{} tool_calls",
			`"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"sh","input":"ls\n-l"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]|tool_calls`},
		{"custom, given otherwise", AnswerParams{CustomTools: []string{"sh"}}, []string{calls2(tool(0, "c1", "sh", `ls -l`)), end},
			role + `{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"sh","input":""}}]}` + "\n" +
				`{"tool_calls":[{"index":0,"custom":{"input":"ls -l"}}]}` + "\n{} tool_calls",
			`"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"sh","input":"ls -l"}}]|tool_calls`},
		{"functions before tools", AnswerParams{Legacy: true}, []string{said(`{"content":"Ok"}`), calls2(tool(0, "c1", "f", `{"a"`), tool(1, "c2", "g", `{}`)), calls2(tool(0, "", "", `:1}`)), end},
			role + `{"content":"Ok"}` + "\n" + `{"function_call":{"name":"f","arguments":"{\"a\""}}` + "\n" + `{"function_call":{"arguments":":1}"}}` + "\n{} function_call",
			`"function_call":{"name":"f","arguments":"{\"a\":1}"}|function_call`},
		{"a function without arguments", AnswerParams{Legacy: true}, []string{calls2(tool(0, "c1", "f", ""), tool(1, "c2", "g", "")), end},
			role + `{"function_call":{"name":"f","arguments":""}}` + "\n{} function_call", `"function_call":{"name":"f","arguments":""}|function_call`},
		{"a custom tool without input", AnswerParams{CustomTools: []string{"sh"}}, []string{calls2(tool(0, "c1", "sh", "")), end},
			role + `{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"sh","input":""}}]}` + "\n{} tool_calls",
			`"tool_calls":[{"id":"c1","type":"custom","custom":{"name":"sh","input":""}}]|tool_calls`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.ID = "chatcmpl-1"
			s, w := NewChatStream(tt.p), NewChatWhole(tt.p)
			var got, whole []byte
			for _, e := range tt.events {
				var err, werr error
				got, _, err = s.Add(got, []byte(e))
				whole, _, werr = w.Add(whole, []byte(e))
				if err != nil || werr != nil {
					t.Fatal(err, werr)
				}
			}
			if text := deltas(t, string(got)); text != tt.stream {
				t.Errorf("stream\n%s\nwant\n%s", text, tt.stream)
			}
			whole = w.End(w.Finish(whole, &usage.Vector{}))
			calls, finish, _ := strings.Cut(tt.whole, "|")
			if !json.Valid(whole) || !strings.Contains(string(whole), calls) || !strings.Contains(string(whole), `"finish_reason":"`+finish+`"`) {
				t.Errorf("whole %s\nwant %s", whole, tt.whole)
			}
		})
	}
}
