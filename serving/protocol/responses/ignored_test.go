package responses

import (
	"context"
	"strings"
	"testing"

	"millrace/internal/fault"
)

// What has no effect is named by its path, on every level.
func TestWhatIsIgnoredIsNamed(t *testing.T) {
	in := func(items string) string { return `{"model":"m","input":[` + items + `]}` }
	with := func(members string) string { return `{"model":"m","input":"x",` + members + `}` }
	const said = `{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]},{"role":"user","content":"u"}`
	for _, tt := range []struct{ body, want string }{
		{with(`"stream":true`), ""},
		{in(said), ""}, // as it came
		{with(`"n":2,"verbosity":"low"`), "n verbosity"},
		{with(`"text":{"verbosity":"low","x":1,"format":{"type":"json_schema","name":"a","schema":{},"y":1}}`), "text.x text.verbosity text.format.y"},
		{with(`"reasoning":{"effort":"low","x":1,"y":null}`), "reasoning.x"},
		{with(`"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true}`), "stream_options.include_usage stream_options.include_obfuscation"},
		{with(`"conversation":{"id":"c","x":1}`), "conversation.x"},
		{with(`"tools":[{"type":"function","name":"f","defer_loading":true,"format":{}},{"type":"custom","name":"g","parameters":{},"format":{"type":"text","x":1}},{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"h","y":1}]},{"type":"web_search","filters":{}}]`),
			"tools[].defer_loading tools[].format tools[].parameters tools[].format.x tools[] (namespace).description tools[].y tools[3] (web_search)"},
		{with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f","x":1}`), "tool_choice.x"},
		{with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"f","x":1}]}`), "tool_choice.tools[].x"},
		{in(`{"role":"user","content":[{"type":"input_text","text":"a","cache":1,"detail":"low"}],"phase":"x","call_id":"c","odd":1}`),
			"input[].odd input[].phase input[].call_id input[].content[].cache input[].content[].detail"},
		{in(`{"role":"user","content":[{"type":"input_text","text":"a","refusal":"b"}]}`), "input[].content[].refusal"},
		{in(`{"role":"user","content":[{"type":"input_image","image_url":"data:x","detail":"original"}]}`), "input[].content[].detail (original)"},
		{in(`{"type":"function_call","call_id":"c","name":"f","arguments":"{}","input":"x"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"a","z":1}],"name":"f"}`),
			"input[].input input[].name input[].output[].z"},
		{in(`{"type":"reasoning","summary":[{"type":"summary_text","text":"s","x":1}],"y":1},{"role":"user","content":"u"}`), "input[].y input[].summary[].x"},
	} {
		_, _, chat := chatOf(t, tt.body, &Context{})
		if got := strings.Join(chat.Ignored, " "); got != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.body, got, tt.want)
		}
	}
	_, _, chat := chatOf(t, in(said), &Context{Items: [][]byte{[]byte(`[{"role":"user","content":"earlier","odd":1}]`)}})
	if len(chat.Ignored) != 0 {
		t.Errorf("of a turn before: %q", chat.Ignored)
	}
}

// Where thinking is asked for, calls without reasoning get an empty one.
func TestCallsWithoutReasoning(t *testing.T) {
	const items = `"input":[{"role":"user","content":"go"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"}]`
	for members, want := range map[string]string{``: `null`, `,"reasoning":{"effort":"high"}`: `""`, `,"reasoning":{"effort":"none","summary":"auto"}`: `null`, `,"reasoning":{"summary":"auto"}`: `""`,
		`,"include":["reasoning.encrypted_content"]`: `""`} {
		m, _, _ := chatOf(t, `{"model":"m",`+items+members+`}`, &Context{})
		if got := asJSON(m["messages"].([]any)[1].(map[string]any)["reasoning_content"]); got != want {
			t.Errorf("%s: %s, want %s", members, got, want)
		}
	}
}

// An image that cannot be fetched is named by its place in the input.
func TestTheImageThatCannotBeHad(t *testing.T) {
	const url, bad = `https://x/good.png`, `https://x/bad.png`
	image := func(url string) string { return `{"type":"input_image","image_url":"` + url + `"}` }
	for items, want := range map[string]string{
		`{"role":"developer","content":"d"},{"role":"user","content":[{"type":"input_text","text":"a"},` + image(url) + `,` + image(bad) + `]}`: "input[1].content[2].image_url",
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call","call_id":"k","name":"f","arguments":"{}"},` +
			`{"type":"function_call_output","call_id":"c","output":[` + image(url) + `]},{"type":"function_call_output","call_id":"k","output":[{"type":"input_text","text":"t"},` + image(bad) + `]},{"role":"user","content":"u"}`: "input[3].output[1].image_url",
	} {
		_, _, chat := chatOf(t, `{"model":"m","input":[`+items+`]}`, &Context{})
		err := chat.FetchImages(t.Context(), func(_ context.Context, address string) ([]byte, error) {
			if address == bad {
				return nil, fault.New(fault.Invalid, "No image.")
			}
			return []byte("data:x"), nil
		})
		if f := fault.Of(Translate(err)); chat.RemoteImages != 2 || f.Param != want {
			t.Errorf("%s: %v at %s, want %s", items, err, f.Param, want)
		}
	}
}
