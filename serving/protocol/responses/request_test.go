package responses

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/serving/protocol"
)

// chatOf gives what an engine gets of a request.
func chatOf(t *testing.T, body string, c *Context) (map[string]any, *Request, *protocol.ChatRequest) {
	t.Helper()
	q, err := Decode([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	chat, err := q.Chat(c)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(chat.Body, &m); err != nil {
		t.Fatalf("%v: %s", err, chat.Body)
	}
	return m, q, chat
}

func asJSON(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func TestInputBecomesMessages(t *testing.T) {
	seal := sealer(t)
	sealed := string(seal.Append(nil, []byte(`deep \"thought\"`)))
	for _, tt := range []struct{ name, input, want string }{
		{"a string", `"hi \"you\""`, `[{"content":"hi \"you\"","role":"user"}]`},
		{"messages of every role", `[{"role":"developer","content":"d"},{"type":"message","role":"system","content":[{"type":"input_text","text":"s"}]},{"role":"user","content":"u"},
			{"role":"developer","content":"mid"}]`,
			`[{"content":"d\n\ns","role":"system"},{"content":"u","role":"user"},{"content":"mid","role":"system"}]`},
		{"parts of text are one string", `[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]`, `[{"content":"a\n\nb","role":"user"}]`},
		{"an image", `[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"},
			{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"auto"}]}]`,
			`[{"content":[{"text":"a","type":"text"},{"image_url":{"detail":"low","url":"data:image/png;base64,AA=="},"type":"image_url"},{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"user"}]`},
		{"one turn is one message", `[{"role":"user","content":"u"},{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"r"}]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a","annotations":[]},{"type":"output_text","text":"b"}]},
			{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"x\":1}"},{"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
			{"type":"function_call_output","call_id":"c1","output":"one"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]}]`,
			`[{"content":"u","role":"user"},{"content":"ab","reasoning_content":"r","role":"assistant","tool_calls":[{"function":{"arguments":"{\"x\":1}","name":"f"},"id":"c1","type":"function"},{"function":{"arguments":"{}","name":"g"},"id":"c2","type":"function"}]},` +
				`{"content":"one","role":"tool","tool_call_id":"c1"},{"content":"two","role":"tool","tool_call_id":"c2"}]`},
		{"reasoning that we sealed", `[{"type":"reasoning","summary":[],"encrypted_content":"` + sealed + `"},{"type":"function_call","call_id":"c","name":"f","arguments":""}]`,
			`[{"content":null,"reasoning_content":"deep \"thought\"","role":"assistant","tool_calls":[{"function":{"arguments":"","name":"f"},"id":"c","type":"function"}]}]`},
		{"reasoning that someone else sealed", `[{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"gAAAA"},{"role":"assistant","content":"a"}]`,
			`[{"content":"a","reasoning_content":"s","role":"assistant"}]`},
		{"reasoning alone", `[{"role":"user","content":"u"},{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},{"role":"user","content":"go on"}]`,
			`[{"content":"u","role":"user"},{"content":"","reasoning_content":"s","role":"assistant"},{"content":"go on","role":"user"}]`},
		{"texts of one turn", `[{"role":"assistant","phase":"commentary","content":"a"},{"role":"assistant","phase":"final_answer","content":"b"},{"role":"user","content":"u"}]`,
			`[{"content":"a\n\nb","role":"assistant"},{"content":"u","role":"user"}]`},
		{"a refusal", `[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"role":"user","content":"u"}]`, `[{"content":"no","role":"assistant"},{"content":"u","role":"user"}]`},
		{"a custom call", `[{"type":"custom_tool_call","call_id":"c","name":"patch","input":"*** \"x\"\n"},{"type":"custom_tool_call_output","call_id":"c","output":"ok"}]`,
			`[{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{\"input\":\"*** \\\"x\\\"\\n\"}","name":"patch"},"id":"c","type":"function"}]},{"content":"ok","role":"tool","tool_call_id":"c"}]`},
		{"a call of a namespace", `[{"type":"function_call","call_id":"c","namespace":"agents","name":"spawn","arguments":"{}"}]`,
			`[{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"agents__spawn"},"id":"c","type":"function"}]}]`},
		{"an image from a tool", `[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call","call_id":"k","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},{"type":"function_call_output","call_id":"k","output":"t"},{"role":"user","content":"u"}]`,
			`[{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"c","type":"function"},{"function":{"arguments":"{}","name":"f"},"id":"k","type":"function"}]},` +
				`{"content":"","role":"tool","tool_call_id":"c"},{"content":"t","role":"tool","tool_call_id":"k"},{"content":[{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"user"},{"content":"u","role":"user"}]`},
		{"items that only others act upon", `[{"type":"additional_tools","tools":[{"type":"function","name":"late"}]},{"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"ghost_snapshot"},{"role":"user","content":"u"}]`,
			`[{"content":"u","role":"user"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, _, _ := chatOf(t, `{"model":"m","input":`+tt.input+`}`, &Context{Seal: seal})
			if got := asJSON(m["messages"]); got != tt.want {
				t.Fatalf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestInstructionsComeFirst(t *testing.T) {
	m, _, _ := chatOf(t, `{"model":"m","instructions":"i","input":[{"role":"developer","content":"d"},{"role":"user","content":"u"}]}`, &Context{
		Items: [][]byte{[]byte(`[{"role":"user","content":"before"}]`), []byte(`[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"said"}]}]`)}})
	if got := asJSON(m["messages"]); got != `[{"content":"i","role":"system"},{"content":"before","role":"user"},{"content":"said","role":"assistant"},{"content":"d","role":"system"},{"content":"u","role":"user"}]` {
		t.Fatal(got)
	}
}

func TestTheBeginOfAConversationIsLeftOut(t *testing.T) {
	const body = `{"model":"m","truncation":"auto","instructions":"i","input":[{"role":"user","content":"one"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c","output":"x"},{"role":"assistant","content":"said"},{"role":"user","content":"two"},{"role":"assistant","content":"more"},{"role":"user","content":"three"}]}`
	for drop, want := range map[float64]string{0.01: "two more three", 0.75: "three", 1: "three"} {
		_, q, _ := chatOf(t, body, &Context{})
		chat, err := q.Shorten(drop)
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := json.Unmarshal(chat.Body, &m); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, e := range m["messages"].([]any)[1:] {
			said = append(said, e.(map[string]any)["content"].(string))
		}
		if got := strings.Join(said, " "); got != want || !q.Truncates() {
			t.Errorf("%v: %q, want %q", drop, got, want)
		}
	}
}

func TestMembersBecomeChatMembers(t *testing.T) {
	m, q, chat := chatOf(t, `{"model":"m","input":"x","stream":true,"max_output_tokens":7,"temperature":0.5,"top_p":0.9,"presence_penalty":1,"frequency_penalty":-1,
		"top_logprobs":3,"reasoning":{"effort":"high","summary":"auto"},"prompt_cache_key":"k","metadata":{"a":"b"},"service_tier":"default","user":"me","truncation":"auto","max_tool_calls":3,
		"text":{"format":{"type":"json_schema","name":"a","strict":true,"schema":{"type":"object"}},"verbosity":"low"},
		"parallel_tool_calls":false,"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}],"tool_choice":"required",
		"client_metadata":{"z":1},"n":2,"top_k":5}`, &Context{})
	for name, want := range map[string]string{"model": `"m"`, "stream": `true`, "max_completion_tokens": `7`, "temperature": `0.5`, "top_p": `0.9`, "presence_penalty": `1`,
		"frequency_penalty": `-1`, "logprobs": `true`, "top_logprobs": `3`, "reasoning_effort": `"high"`, "tool_choice": `"required"`, "parallel_tool_calls": `false`,
		"response_format": `{"json_schema":{"name":"a","schema":{"type":"object"},"strict":true},"type":"json_schema"}`, "n": `null`, "top_k": `5`,
		"tools": `[{"function":{"description":"d","name":"f","parameters":{"type":"object"},"strict":true},"type":"function"}]`, "metadata": `null`, "reasoning": `null`} {
		if got := asJSON(m[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if chat.CacheKey != "k" || chat.MaxTokens != 7 || !chat.TellService || q.MaxOutput() != 7 || !q.Store {
		t.Errorf("%+v", chat)
	}
	for _, name := range []string{"max_tool_calls", "text.verbosity", "n"} {
		if !strings.Contains(strings.Join(chat.Ignored, " "), name) {
			t.Errorf("%s was ignored without a word: %q", name, chat.Ignored)
		}
	}
	echo := map[string]any{}
	if err := json.Unmarshal(append([]byte(`{"x":1`), (&Answers{Request: q}).appendEcho(nil)...), &echo); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"metadata": `{"a":"b"}`, "max_output_tokens": `7`, "reasoning": `{"effort":"high","summary":"auto"}`, "truncation": `"auto"`, "tool_choice": `"required"`,
		"text":  `{"format":{"description":null,"name":"a","schema":{"type":"object"},"strict":true,"type":"json_schema"},"verbosity":"low"}`,
		"tools": `[{"description":"d","name":"f","parameters":{"type":"object"},"strict":true,"type":"function"}]`, "max_tool_calls": `3`, "prompt_cache_key": `"k"`} {
		if got := asJSON(echo[name]); got != want {
			t.Errorf("echo of %s is %s, want %s", name, got, want)
		}
	}
}

func TestTools(t *testing.T) {
	const long = "a_rather_long_name_of_a_tool_that_somebody_made_up_one_day"
	const tools = `"tools":[{"type":"function","name":"f"},{"type":"custom","name":"patch","description":"Patch.","format":{"type":"grammar","syntax":"lark","definition":"start: x"}},
		{"type":"namespace","name":"ns","tools":[{"type":"function","name":"f"},{"type":"function","name":"` + long + `"},{"type":"web_search"}]},{"type":"function","name":"ns__f"},
		{"type":"web_search"},{"type":"web_search_preview_2025_03_11"},{"type":"mcp","server_label":"x"}]`
	for _, tt := range []struct{ name, choice, names, want string }{
		{"none said", ``, `f patch ns__f_2 ` + flatName("ns", long) + ` ns__f`, `null`},
		{"auto", `,"tool_choice":"auto"`, ``, `"auto"`},
		{"a function", `,"tool_choice":{"type":"function","name":"f"}`, ``, `{"function":{"name":"f"},"type":"function"}`},
		{"a custom tool", `,"tool_choice":{"type":"custom","name":"patch"}`, ``, `{"function":{"name":"patch"},"type":"function"}`},
		{"one of a namespace", `,"tool_choice":{"type":"function","namespace":"ns","name":"f"}`, ``, `{"function":{"name":"ns__f_2"},"type":"function"}`},
		{"allowed tools", `,"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"},{"type":"custom","name":"patch"},{"type":"web_search"}]}`, `f patch`, `"required"`},
		{"allowed tools without a mode", `,"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"f"}]}`, `f`, `"auto"`},
		{"allowed tools, none usable", `,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"web_search"}]}`, `-`, `null`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, _, chat := chatOf(t, `{"model":"m","input":"x",`+tools+tt.choice+`}`, &Context{})
			var names []string
			list, _ := m["tools"].([]any)
			for _, e := range list {
				names = append(names, e.(map[string]any)["function"].(map[string]any)["name"].(string))
			}
			if got := strings.Join(names, " "); tt.names != "" && got != strings.Trim(tt.names, "-") {
				t.Errorf("tools %s, want %s", got, tt.names)
			}
			if got := asJSON(m["tool_choice"]); got != tt.want {
				t.Errorf("tool_choice %s, want %s", got, tt.want)
			}
			for _, dropped := range []string{"tools[2].tools[2] (web_search)", "tools[4] (web_search)", "tools[6] (mcp)"} {
				if !strings.Contains(strings.Join(chat.Ignored, ", "), dropped) {
					t.Errorf("%q is not named in %q", dropped, chat.Ignored)
				}
			}
		})
	}
	if n := len(flatName("ns", long)); n > maxFlatName {
		t.Errorf("a flat name of %d bytes", n)
	}
}

func TestHostedToolsCanBeRefused(t *testing.T) {
	q, err := Decode([]byte(`{"model":"m","input":"x","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Chat(&Context{Refuse: true})
	if f := fault.Of(err); f == nil || f.Param != "tools[1].type" {
		t.Fatal(err)
	}
}

// The begin of what Codex sends.
func TestCodex(t *testing.T) {
	m, q, chat := chatOf(t, `{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"thread","parallel_tool_calls":true,"tool_choice":"auto",
		"reasoning":{"summary":"auto"},"client_metadata":{"x":"y"},"instructions":"You are Codex.",
		"input":[{"type":"message","id":"msg_x","role":"developer","content":[{"type":"input_text","text":"rules"}]},{"type":"message","role":"user","content":[{"type":"input_text","text":"do"}]}],
		"tools":[{"type":"function","name":"exec_command","strict":false,"parameters":{}},{"type":"namespace","name":"multi_agent_v1","description":"d","tools":[{"type":"function","name":"spawn_agent","parameters":{}}]},{"type":"web_search","external_web_access":false}]}`, &Context{})
	if got := asJSON(m["messages"]); got != `[{"content":"You are Codex.\n\nrules","role":"system"},{"content":"do","role":"user"}]` {
		t.Error(got)
	}
	if q.Store || !q.Encrypted || chat.CacheKey != "thread" || len(m["tools"].([]any)) != 2 {
		t.Errorf("%+v %v", q, m["tools"])
	}
	chat.KeepExtras(nil)
	if got := strings.Join(chat.Ignored, ", "); got != "tools[] (namespace).description, tools[2] (web_search), client_metadata" {
		t.Error(got)
	}
}

func TestFaultsNameTheMember(t *testing.T) {
	user := func(part string) string { return `"input":[{"role":"user","content":[` + part + `]}]` }
	for _, tt := range []struct{ body, param string }{
		{`{`, ``}, {`[]`, ``}, {`{"input":"x"}`, `model`}, {`{"model":"m"}`, `input`}, {`{"model":"m","input":[]}`, `input`}, {`{"model":"m","input":7}`, `input`},
		{`{"model":"m","model":"m","input":"x"}`, `model`}, {`{"model":7,"input":"x"}`, `model`},
		{`{"model":"m","input":"x","stream":1}`, `stream`}, {`{"model":"m","input":"x","temperature":3}`, `temperature`}, {`{"model":"m","input":"x","top_p":"1"}`, `top_p`},
		{`{"model":"m","input":"x","max_output_tokens":0}`, `max_output_tokens`}, {`{"model":"m","input":"x","top_logprobs":21}`, `top_logprobs`},
		{`{"model":"m","input":"x","prompt":{"id":"p"}}`, `prompt`}, {`{"model":"m","input":"x","metadata":{"a":1}}`, `metadata.a`}, {`{"model":"m","input":"x","metadata":[]}`, `metadata`},
		{`{"model":"m","input":"x","include":["all"]}`, `include[0]`}, {`{"model":"m","input":"x","reasoning":{"effort":"some"}}`, `reasoning.effort`},
		{`{"model":"m","input":"x","reasoning":{"summary":"long"}}`, `reasoning.summary`}, {`{"model":"m","input":"x","text":{"verbosity":"x"}}`, `text.verbosity`},
		{`{"model":"m","input":"x","text":{"format":{"type":"xml"}}}`, `text.format.type`}, {`{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"a"}}}`, `text.format.schema`},
		{`{"model":"m","input":"x","truncation":"some"}`, `truncation`}, {`{"model":"m","input":"x","service_tier":"scale"}`, `service_tier`},
		{`{"model":"m","input":"x","background":true,"store":false}`, `background`}, {`{"model":"m","input":"x","previous_response_id":"a","conversation":"b"}`, `conversation`},
		{`{"model":"m","input":"x","tools":{}}`, `tools`}, {`{"model":"m","input":"x","tools":[{"type":"function"}]}`, `tools[0].name`}, {`{"model":"m","input":"x","tools":[{"type":"magic"}]}`, `tools[0].type`},
		{`{"model":"m","input":"x","tools":[{"type":"function","name":"f","parameters":"p"}]}`, `tools[0].parameters`},
		{`{"model":"m","input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function"}]}]}`, `tools[0].tools[0].name`},
		{`{"model":"m","input":"x","tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"bnf","definition":""}}]}`, `tools[0].format.syntax`},
		{`{"model":"m","input":"x","tool_choice":"required"}`, `tool_choice`}, {`{"model":"m","input":"x","tools":[{"type":"web_search"}],"tool_choice":"required"}`, `tool_choice`},
		{`{"model":"m","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}}`, `tool_choice.name`},
		{`{"model":"m","input":"x","tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}}`, `tool_choice.type`},
		{`{"model":"m","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"g"}]}}`, `tool_choice.tools[0]`},
		{`{"model":"m","input":[{"type":"magic"}]}`, `input[0].type`}, {`{"model":"m","input":["x"]}`, `input[0]`}, {`{"model":"m","input":[{"role":"tool","content":"x"}]}`, `input[0].role`},
		{`{"model":"m","input":[{"role":"user"}]}`, `input[0].content`}, {`{"model":"m","input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c","name":"f"}]}`, `input[1].arguments`},
		{`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"}]}`, `input[0].call_id`},
		{`{"model":"m","input":[{"type":"item_reference","id":"msg_1"}]}`, `input[0].id`}, {`{"model":"m","input":[{"type":"compaction","encrypted_content":"x"}]}`, `input[0].encrypted_content`},
		{`{"model":"m","input":[{"type":"reasoning","summary":[{"type":"x"}]}]}`, `input[0].summary[0].type`},
		{`{"model":"m",` + user(`{"type":"text","text":"a"}`) + `}`, `input[0].content[0].type`}, {`{"model":"m",` + user(`{"type":"input_text"}`) + `}`, `input[0].content[0].text`},
		{`{"model":"m",` + user(`{"type":"input_file","file_id":"f"}`) + `}`, `input[0].content[0].type`}, {`{"model":"m",` + user(`{"type":"input_image","file_id":"f"}`) + `}`, `input[0].content[0].file_id`},
		{`{"model":"m",` + user(`{"type":"input_image"}`) + `}`, `input[0].content[0].image_url`},
		{`{"model":"m","input":[{"role":"developer","content":"d"},{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"ftp://x/y.png"}]}]}`, `input[1].content[1].image_url`},
		{`{"model":"m","input":"x","ec_transfer_params":1}`, `ec_transfer_params`},
		{`{"model":"m","input":"x","bootstrap_host":1}`, `bootstrap_host`},
		{`{"model":"m","input":"x","bootstrap_port":1}`, `bootstrap_port`},
		{`{"model":"m","input":"x","bootstrap_room":1}`, `bootstrap_room`},
		{`{"model":"m","input":"x","disaggregated_params":1}`, `disaggregated_params`},
		{`{"model":"m","input":"x","data_parallel_rank":1}`, `data_parallel_rank`},
		{`{"model":"m","input":"x","routed_dp_rank":1}`, `routed_dp_rank`},
		{`{"model":"m","input":"x","disagg_prefill_dp_rank":1}`, `disagg_prefill_dp_rank`},
		{`{"model":"m","input":"x","kv_transfer_params":{}}`, `kv_transfer_params`},
		{`{"model":"m","input":"x","tools":[{"type":"function","name":"two words"}]}`, `tools[0].name`},
		{`{"model":"m","input":"x","tools":[{"type":"namespace","name":"two words","tools":[]}]}`, `tools[0].name`},
		{`{"model":"m","input":[{"role":"user","content":"x","content":"y"}]}`, `input[0].content`},
		{`{"model":"m","input":"x","text":{"verbosity":"low","verbosity":"high"}}`, `text.verbosity`},
		{`{"model":"m","input":"x","top_k":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, ``},
	} {
		q, err := Decode([]byte(tt.body))
		if err == nil {
			_, err = q.Chat(&Context{})
		}
		var f *fault.Fault
		if !errors.As(err, &f) || f.Kind != fault.Invalid && f.Kind != fault.NotFound || f.Param != tt.param {
			t.Errorf("%s: %v, param %q, want %q", tt.body, err, param(f), tt.param)
		}
	}
}

func param(f *fault.Fault) string {
	if f == nil {
		return ""
	}
	return f.Param
}

// Every body is either at fault or becomes a body that Chat Completions takes.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{ask + `}`, customTools, `{"model":"m","input":[{"type":"reasoning","summary":[]},{"role":"user","content":[{"type":"input_image","image_url":"data:x"}]}],"text":{"format":{"type":"json_object"}}}`,
		`{"model":"m","input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[]}],"tool_choice":{"type":"allowed_tools","tools":[]}}`} {
		f.Add(body)
	}
	seal := sealer(f)
	f.Fuzz(func(t *testing.T, body string) {
		q, err := Decode([]byte(body))
		if err != nil {
			return
		}
		chat, err := q.Chat(&Context{Seal: seal})
		var known *fault.Fault
		if err != nil && !errors.As(err, &known) {
			t.Fatal(err)
		}
		if err == nil && !json.Valid(chat.Body) {
			t.Fatalf("%s", chat.Body)
		}
		if echo := append([]byte(`{"x":1`), (&Answers{Request: q}).appendEcho(nil)...); err == nil && !json.Valid(echo) {
			t.Fatalf("%s", echo)
		}
	})
}
