package protocol

import (
	"encoding/json"
	"testing"
)

func TestSystemMessagesInMidConversationAreFolded(t *testing.T) {
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}`
	for _, tt := range []struct{ name, messages, want string }{ // "" = as it was
		{"none", `{"role":"user","content":"u"}`, ""},
		{"the first", `{"role":"system","content":"s"},{"role":"user","content":"u"}`, ""},
		{"users in a row", `{"role":"user","content":"u"},{"role":"user","content":"v"}`, ""},
		{"two at the begin", `{"role":"system","content":"s"},{"role":"system","content":"t"},{"role":"user","content":"u"}`, `{"role":"system","content":"s\n\nt"},{"role":"user","content":"u"}`},
		{"after the user's", `{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"system","content":"mid"}`, `{"role":"system","content":"s"},{"role":"user","content":"u\n\nmid"}`},
		{"before the user's", `{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"system","content":"mid"},{"role":"user","content":"v"}`,
			`{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"user","content":"mid\n\nv"}`},
		{"between two of the user's", `{"role":"user","content":"u"},{"role":"system","content":"mid"},{"role":"user","content":"v"}`, `{"role":"user","content":"u\n\nmid\n\nv"}`},
		{"after a tool's", `{"role":"user","content":"u"},` + call + `,{"role":"system","content":"mid"}`, `{"role":"user","content":"u"},` + call + `,{"role":"user","content":"mid"}`},
		{"first of all that is not at the begin", `{"role":"assistant","content":"a"},{"role":"system","content":"mid"}`, `{"role":"assistant","content":"a"},{"role":"user","content":"mid"}`},
		{"with parts", `{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"data:x"}}]},{"role":"system","content":"m\"id"},{"role":"user","content":[]}`,
			`{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"m\"id"}]}`},
	} {
		body := func(messages string) string { return `{"model":"m","messages":[` + messages + `],"n":1}` }
		q := &ChatRequest{Body: []byte(body(tt.messages))}
		want := body(tt.want)
		if tt.want == "" {
			want = body(tt.messages)
		}
		if changed := q.FoldSystem(); changed != (tt.want != "") || string(q.Body) != want || !json.Valid(q.Body) {
			t.Errorf("%s: %v\ngot  %s\nwant %s", tt.name, changed, q.Body, want)
		}
		if q.FoldSystem() {
			t.Errorf("%s: there is more to fold: %s", tt.name, q.Body)
		}
	}
}

func TestReasoningIsFilledIn(t *testing.T) {
	q := &ChatRequest{Body: []byte(`{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a"},{"role":"assistant","reasoning_content":"r","content":"b"},{"role":"assistant","reasoning_content":null,"content":"c"}]}`)}
	const want = `{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a","reasoning_content":""},{"role":"assistant","reasoning_content":"r","content":"b"},{"role":"assistant","reasoning_content":null,"content":"c","reasoning_content":""}]}`
	if !q.FillReasoning() || string(q.Body) != want || q.FillReasoning() {
		t.Errorf("got  %s\nwant %s", q.Body, want)
	}
}
