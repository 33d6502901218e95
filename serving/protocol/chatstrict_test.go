package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/internal/fault"
)

// What engines do not get is named by its path, whatever stands around it; what they get is JSON without it.
func TestWhatIsTakenOutIsNamed(t *testing.T) {
	user := func(members string) string { return `{"model":"m","messages":[{` + members + `}]}` }
	for _, tt := range []struct{ name, body, want, ignored string }{
		{"nothing", with(`"temperature":1`), with(`"temperature":1`), ""},
		{"null is nothing", user(`"role":"assistant","content":"a","annotations":null,"audio":null,"function_call":null,"tool_calls":null`),
			user(`"role":"assistant","content":"a","annotations":null,"audio":null,"function_call":null,"tool_calls":null`), ""},
		{"first of a message", user(`"id":"x","role":"user","content":"a"`), user(`"role":"user","content":"a"`), "messages[].id"},
		{"last", user(`"role":"user","content":"a" , "id":"x"`), user(`"role":"user","content":"a"`), "messages[].id"},
		{"between and around", user(`"a":1,"b":[{}], "role":"user", "c":{"x":2},"d":"e","content":"a","f":0,"g":1 `), user(`"role":"user","content":"a" `),
			"messages[].a messages[].b messages[].c messages[].d messages[].f messages[].g"},
		{"DeepSeek's prefix passes", user(`"role":"assistant","content":"a","prefix":true`), user(`"role":"assistant","content":"a","prefix":true`), ""},
		{"each path once", `{"model":"m","messages":[{"role":"user","content":"a","x":1},{"role":"user","content":"b","x":1}]}`,
			`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}`, "messages[].x"},
		{"a developer's", user(`"x":1,"role":"developer","y":2,"content":"a"`), user(`"role":"system","content":"a"`), "messages[].x messages[].y"},
		{"of parts", user(`"role":"user","content":[{"type":"text","text":"a","cache_control":{}},{"uuid":"u","type":"image_url","image_url":{"url":"data:x","detail":"low","id":"v"}}]`),
			user(`"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:x","detail":"low"}}]`),
			"messages[].content[].cache_control messages[].content[].uuid messages[].content[].image_url.id"},
		{"of calls", user(`"role":"assistant","tool_calls":[{"id":"c","index":0,"type":"function","extra":1,"function":{"name":"f","arguments":"{}","thought_signature":"s"}}]`),
			user(`"role":"assistant","tool_calls":[{"id":"c","index":0,"type":"function","function":{"name":"f","arguments":"{}"}}]`),
			"messages[].tool_calls[].extra messages[].tool_calls[].function.thought_signature"},
		{"of tools", with(`"tools":[{"type":"function","defer_loading":true,"function":{"name":"f","input_examples":[]}}]`), with(`"tools":[{"type":"function","function":{"name":"f"}}]`),
			"tools[].defer_loading tools[].function.input_examples"},
		{"of tools of which some stay", with(`"tools":[{"x":1,"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g","y":1}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}`),
			with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"`), "tools[].x tools[].custom.y"},
		{"of a choice", with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","x":1,"function":{"name":"f"}}`),
			with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`), "tool_choice.x"},
		{"within a choice", with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"x":1,"name":"f"}}`),
			with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`), "tool_choice.function.x"},
		{"within a choice that is written anew", with(`"tools":[{"type":"custom","custom":{"name":"f"}}],"tool_choice":{"x":1,"type":"custom","custom":{"name":"f","y":1},"z":1}`),
			with(`"tools":[` + string(customAsFunction([]byte(`"f"`), nil, nil)) + `],"tool_choice":{"type":"function","function":{"name":"f"}}`), "tool_choice.x tool_choice.z tool_choice.custom.y"},
		{"of allowed tools", with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"x":1,"mode":"required","tools":[{"type":"function","y":1,"function":{"name":"f","z":1}}]}}`),
			with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required"`),
			"tool_choice.allowed_tools.x tool_choice.allowed_tools.tools[].y tool_choice.allowed_tools.tools[].function.z"},
		{"of functions", with(`"functions":[{"name":"f","x":1}]`), with(`"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false`), "functions[].x"},
		{"of a choice among functions", with(`"functions":[{"name":"f"}],"function_call":{"x":1,"name":"f"}`),
			with(`"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false,"tool_choice":{"type":"function","function":{"name":"f"}}`), "function_call.x"},
		{"a limit of two", with(`"max_tokens":5,"max_completion_tokens":6`), with(`"max_tokens":5,"max_completion_tokens":6`), "max_tokens"}, // engines get one
		{"a limit told twice", with(`"max_tokens":5,"max_completion_tokens":5`), with(`"max_tokens":5,"max_completion_tokens":5`), ""},
		{"of a call of a function", user(`"role":"assistant","x":1,"function_call":{"name":"f","arguments":"{}","y":1}`),
			user(`"role":"assistant","tool_calls":[{"id":"call_function_1","type":"function","function":{"name":"f","arguments":"{}"}}]`), "messages[].x messages[].function_call.y"},
		{"of stream options", with(`"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true,"x":1}`),
			with(`"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":true,"x":1}`), "stream_options.x stream_options.include_obfuscation"}, // engines get ours
		{"of a format", with(`"response_format":{"type":"json_schema","x":1,"json_schema":{"y":1,"name":"a","schema":{"z":1}}}`),
			with(`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"z":1}}}`), "response_format.x response_format.json_schema.y"},
		{"beside what is dropped", with(`"metadata":{"a":1},"user":"u","tools":[{"x":1,"type":"function","function":{"name":"f"}}]`), with(`"tools":[{"type":"function","function":{"name":"f"}}]`), "metadata user tools[].x"},
		{"names that no header could carry", user(`"role":"user","content":"a","x\ny":1,"é,":2`), user(`"role":"user","content":"a"`), `messages[]."x\ny" messages[]."\u00e9,"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := DecodeChat([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(q.Ignored, " "); string(q.Body) != tt.want || got != tt.ignored || !json.Valid(q.Body) {
				t.Errorf("got  %s\nwant %s\nignored %s\nwant    %s", q.Body, tt.want, got, tt.ignored)
			}
		})
	}
}

// What is named goes into a header: its length has an end, and so has what finding it costs.
func TestWhatIsNamedIsBounded(t *testing.T) {
	var members strings.Builder
	for i := range 5000 {
		members.WriteString(`,"` + strings.Repeat(string(rune('a'+i%26)), 1+i/26) + `":1`)
	}
	q, err := DecodeChat([]byte(`{"model":"m","messages":[{"role":"user","content":"x"` + members.String() + `}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if last := q.Ignored[len(q.Ignored)-1]; len(q.Ignored) != 33 || last != "and others" || len(strings.Join(q.Ignored, ", ")) > 4096 {
		t.Errorf("%d names: %q", len(q.Ignored), q.Ignored)
	}
}

// As OpenAI's API: one member once, texts that are text, names that are names.
func TestMessagesAreReadStrictly(t *testing.T) {
	message := func(members string) string { return `{"model":"m","messages":[{` + members + `}]}` }
	call := func(members string) string {
		return message(`"role":"assistant","tool_calls":[{` + members + `}]`)
	}
	for _, tt := range []struct{ body, param string }{
		{message(`"role":"user","role":"system","content":"x"`), "messages[0].role"},
		{message(`"role":"user","content":null,"content":"x"`), "messages[0].content"},
		{message(`"role":"assistant","content":"x","name":"a","n\u0061me":"b"`), "messages[0].name"},
		{message(`"role":"tool","tool_call_id":"a","tool_call_id":"b","content":"x"`), "messages[0].tool_call_id"},
		{message(`"role":"assistant","content":"x","tool_calls":[],"tool_calls":[]`), "messages[0].tool_calls"},
		{message(`"role":"user","content":[{"type":"text","text":"a","text":"b"}]`), "messages[0].content[0].text"},
		{message(`"role":"user","content":[{"type":"text","type":"text","text":"b"}]`), "messages[0].content[0].type"},
		{call(`"id":"c","id":"d","type":"function","function":{"name":"f","arguments":""}`), "messages[0].tool_calls[0].id"},
		{call(`"id":"c","type":"function","function":{"name":"f","name":"g","arguments":""}`), "messages[0].tool_calls[0].function.name"},
		{call(`"id":"c","type":"function","function":{"name":5,"arguments":""}`), "messages[0].tool_calls[0].function.name"},
		{call(`"id":5,"type":"function","function":{"name":"f","arguments":""}`), "messages[0].tool_calls[0]"},
		{call(`"id":"c","type":"custom","custom":{"name":"f","input":5}`), "messages[0].tool_calls[0]"},
		{message(`"role":"assistant","content":"x","reasoning_content":5`), "messages[0].reasoning_content"},
		{message(`"role":"assistant","content":"x","reasoning":{}`), "messages[0].reasoning"},
		{message(`"role":"assistant","refusal":7`), "messages[0].refusal"},
		{message(`"role":"assistant","content":"x","prefix":"yes"`), "messages[0].prefix"},
		{message(`"role":"user","content":"x","name":7`), "messages[0].name"},
		{message(`"role":"assistant","content":null,"name":7,"tool_calls":[]`), "messages[0].name"},
		{with(`"tools":[{"type":"function","function":{"name":"two words"}}]`), "tools[0].function.name"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"a.b"}}]`), "tools[1].custom.name"},
		{with(`"tools":[{"type":"function","function":{"name":"` + strings.Repeat("n", 129) + `"}}]`), "tools[0].function.name"},
		{with(`"tools":[{"type":"function","function":{"name":"f","name":"g"}}]`), "tools[0].function.name"},
		{with(`"tools":[{"type":"function","type":"custom","function":{"name":"f"}}]`), "tools[0].type"},
		{with(`"tools":[{"type":"function","function":{"name":"f"},"custom":{"name":"g"}}]`), "tools[0]"},
		{with(`"functions":[{"name":"f"}],"function_call":{"name":"g","name":"f"}`), "function_call.name"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g","name":"f"}}`), "tool_choice.function.name"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","custom":{"name":"f"}}`), "tool_choice"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}`), "tool_choice.allowed_tools.mode"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g","name":"f"}}]}}`), "tool_choice.allowed_tools.tools[0].function.name"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":["f"]}}`), "tool_choice.allowed_tools.tools"},
		{with(`"functions":[{"name":"two words"}]`), "functions[0].name"},
		{with(`"stream":true,"stream_options":{"include_usage":true,"include_usage":false}`), "stream_options.include_usage"},
		{with(`"response_format":{"type":"text","type":"json_object"}`), "response_format.type"},
	} {
		q, err := DecodeChat([]byte(tt.body))
		if f := fault.Of(err); err == nil || f.Kind != fault.Invalid || f.Param != tt.param || f.Message == "" {
			t.Errorf("%s:\n%v, %v; want param %q", tt.body, q, err, tt.param)
		}
	}
}

// Models that think refuse a history of calls without reasoning, or think about it: an empty one stands for it.
func TestCallsWithoutReasoning(t *testing.T) {
	const calls = `"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
	body := func(members, rest string) string {
		return `{"model":"m","messages":[{"role":"user","content":"go"},{"role":"assistant"` + members + `},{"role":"tool","tool_call_id":"c","content":"r"}]` + rest + `}`
	}
	for _, tt := range []struct{ body, want string }{
		{body(`,`+calls, `,"reasoning_effort":"high"`), body(`,"reasoning_content":"",`+calls, `,"reasoning_effort":"high"`)},
		{body(`,"x":1,`+calls, `,"reasoning_effort":"high"`), body(`,"reasoning_content":"",`+calls, `,"reasoning_effort":"high"`)},
		{body(`,"reasoning_content":null,`+calls, `,"reasoning_effort":"low"`), body(`,"reasoning_content":"",`+calls, `,"reasoning_effort":"low"`)},
		{body(`,"reasoning":"r",`+calls, `,"reasoning_effort":"low"`), body(`,"reasoning_content":"r",`+calls, `,"reasoning_effort":"low"`)},
		{body(`,"reasoning":"r","reasoning_content":null,`+calls, ``), body(`,"reasoning_content":"r","reasoning":null,`+calls, ``)},
		{body(`,`+calls, `,"reasoning_effort":"none"`), body(`,`+calls, `,"reasoning_effort":"none"`)},
		{body(`,`+calls, ``), body(`,`+calls, ``)},
		{body(`,"content":"a"`, `,"reasoning_effort":"high"`), body(`,"content":"a"`, `,"reasoning_effort":"high"`)},
	} {
		if q, err := DecodeChat([]byte(tt.body)); err != nil || string(q.Body) != tt.want {
			t.Errorf("%v\ngot  %s\nwant %s", err, q.Body, tt.want)
		}
	}
}
