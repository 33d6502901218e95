package dsml_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/engine/dsml"
	"millrace/serving/protocol"
)

// What a client sends goes through protocol.DecodeChat first: the two fit.
func TestACheckedRequestIsRendered(t *testing.T) {
	q, err := protocol.DecodeChat([]byte(`{"model":"m","messages":[{"role":"developer","content":"D"},{"role":"user","content":"u"},
		{"role":"assistant","content":null,"reasoning":"R","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c","content":"r"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],
		"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}},"parallel_tool_calls":false,"stop":["x"]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := dsml.Render(q.Body, dsml.Options{ThinkByDefault: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n\nD\n\n## Tools", `{"name": "f"`, "<think>R</think>\n\n<｜DSML｜ calls>", "<tool_result>r</tool_result><｜Assistant｜><think>"} {
		if !strings.Contains(p.String(), want) {
			t.Errorf("%q is not in %s", want, p)
		}
	}
	if strings.Contains(p.String(), `"name": "g"`) {
		t.Error("a tool that is not allowed is shown")
	}
	if o := p.Parse; !o.OneCall || !o.Tools || o.Start != dsml.ReasoningStart || !slices.Equal(o.Stops, []string{"x"}) {
		t.Errorf("%+v", o)
	}
}

func TestWhoThinks(t *testing.T) {
	const tools = `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"`
	for _, c := range []struct {
		members string
		start   dsml.Start
		ignored []string
	}{
		{``, dsml.ContentStart, nil},
		{`,"reasoning_effort":"low"`, dsml.ReasoningStart, nil},
		{`,"reasoning_effort":"none"`, dsml.ContentStart, nil},
		{`,"thinking":{"type":"enabled"}`, dsml.ReasoningStart, nil},
		{`,"thinking":null`, dsml.ContentStart, nil},
		{tools, dsml.InCalls, nil},
		{tools + `,"reasoning_effort":"high"`, dsml.InCalls, []string{"reasoning_effort"}},
	} {
		p, err := dsml.Render([]byte(`{"messages":[{"role":"user","content":"u"}]`+c.members+`}`), dsml.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Parse.Start != c.start || !slices.Equal(p.Ignored, c.ignored) {
			t.Errorf("%s: starts at %v, ignores %v", c.members, p.Parse.Start, p.Ignored)
		}
	}
}

func TestFaultsNameTheMember(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"u"}]`
	const tools = `,"tools":[{"type":"function","function":{"name":"f"}}]`
	const calls = `"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]`
	for body, param := range map[string]string{
		`[]`: "", `{}`: "messages", `{"messages":[]}`: "messages", `{"messages":[7]}`: "messages[0].role",
		`{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`:                                                           "messages[0].content",
		`{"messages":[{"role":"assistant",` + calls + `}]}`:                                                                           "messages[0].tool_calls",
		`{"messages":[{"role":"assistant","tool_calls":[{}]}]}`:                                                                       "messages[0].tool_calls",
		`{"messages":[{"role":"assistant",` + calls + `},{"role":"tool"}]}`:                                                           "messages[1].tool_call_id",
		`{"messages":[{"role":"tool","tool_call_id":"c"}]}`:                                                                           "messages[0]",
		`{"messages":[{"role":"user","content":"u","prefix":true}]}`:                                                                  "messages[0].prefix",
		`{"messages":[{"role":"assistant","content":"a","prefix":true}]` + tools + `}`:                                                "messages[0].prefix",
		`{` + user + `,"tools":[{}]}`:                                                                                                 "tools[0]",
		`{` + user + tools + `,"tool_choice":{"type":"function","function":{"name":"g"}}}`:                                            "tool_choice",
		`{` + user + tools + `,"tool_choice":7}`:                                                                                      "tool_choice",
		`{` + user + tools + `,"tool_choice":"required","thinking":{"type":"enabled"}}`:                                               "tool_choice",
		`{` + user + `,"thinking":{"type":"maybe"}}`:                                                                                  "thinking.type",
		`{` + user + `,"logprobs":true}`:                                                                                              "logprobs",
		`{` + user + `,"stop":[""]}`:                                                                                                  "stop",
		`{` + user + `,"response_format":{"type":"xml"}}`:                                                                             "response_format.type",
		`{` + user + `,"response_format":{"type":"json_schema"}}`:                                                                     "response_format.json_schema.schema",
		`{` + user + `,"tools":[{"function":{"name":"f","parameters":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}]}`: "tools[0].function.parameters",
	} {
		_, err := dsml.Render([]byte(body), dsml.Options{})
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Param != param {
			t.Errorf("%.120s: %#v, want param %q", body, err, param)
		}
	}
}

func TestImagesThatAModelCannotSeeAreNamed(t *testing.T) {
	p, err := dsml.Render([]byte(`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}`), dsml.Options{Version: dsml.V4})
	if err != nil || len(p.Images) != 0 || !slices.Equal(p.Ignored, []string{"image_url"}) {
		t.Errorf("%+v, %v", p, err)
	}
}
