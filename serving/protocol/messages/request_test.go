package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/seal"
	"millrace/serving/protocol"
)

// testSeal is one organization's.
func testSeal(t testing.TB) protocol.ReasoningSeal {
	t.Helper()
	master, err := seal.New(bytes.Repeat([]byte{7}, seal.KeyBytes))
	if err != nil {
		t.Fatal(err)
	}
	return protocol.ReasoningSeal{Sealer: master, Org: ids.ID{1}}
}

// request makes a body of members beside model and max_tokens.
func request(members string) string { return `{"model":"m","max_tokens":100,` + members + `}` }

func asking(messages string) string { return request(`"messages":[` + messages + `]`) }

const (
	hi    = `{"role":"user","content":"hi"}`
	used  = `{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{"a":1}}]}`
	toolF = `{"name":"f","input_schema":{"type":"object"}}`
)

func withTools(members string) string {
	return request(`"messages":[` + hi + `],"tools":[` + toolF + `],` + members)
}

// sent is what engines get of a body, as the JSON of one member; "" when it is not there.
func sent(t *testing.T, q *Request, name string) string {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal(q.Chat.Body, &body); err != nil {
		t.Fatalf("%v: %s", err, q.Chat.Body)
	}
	return string(body[name])
}

func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatalf("%v: %s", err, want)
	}
	return json.Unmarshal([]byte(got), &a) == nil && reflect.DeepEqual(a, b)
}

func TestConversationsForEngines(t *testing.T) {
	s := testSeal(t)
	sealed := string(s.Append(nil, []byte(`se\"cret`)))
	const png = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`
	const image = `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
	for _, tt := range []struct{ name, body, want string }{
		{"text", asking(hi), `[{"role":"user","content":"hi"}]`},
		{"escapes stay", asking(`{"role":"user","content":"\u00e9\n\"\\ 😀"}`), `[{"role":"user","content":"é\n\"\\ 😀"}]`},
		{"system", request(`"system":"S","messages":[` + hi + `]`), `[{"role":"system","content":"S"},{"role":"user","content":"hi"}]`},
		{"shaped like Claude Code's", request(`"stream":true,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1.197; cch=abcde;"},{"type":"text","text":"A"},` +
			`{"type":"text","text":"B","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"u1"},{"type":"text","text":"u2","cache_control":{"type":"ephemeral"}}]},{"role":"system","content":"mid"}]`),
			`[{"role":"system","content":"A\n\nB"},{"role":"user","content":"u1\n\nu2"},{"role":"system","content":"mid"}]`},
		{"system at the start of messages", request(`"system":"S","messages":[{"role":"system","content":[{"type":"text","text":"T"}]},` + hi + `]`),
			`[{"role":"system","content":"S\n\nT"},{"role":"user","content":"hi"}]`},
		{"one role in a row", asking(hi + `,{"role":"user","content":[{"type":"text","text":"ho"}]},{"role":"assistant","content":"a"},{"role":"assistant","content":"b"},` + hi),
			`[{"role":"user","content":"hi\n\nho"},{"role":"assistant","content":"a\n\nb"},{"role":"user","content":"hi"}]`},
		{"empty blocks", asking(`{"role":"user","content":[{"type":"text","text":""},{"type":"text","text":"x"}]},{"role":"assistant","content":[]},{"role":"assistant","content":[{"type":"text","text":""}]},` + hi),
			`[{"role":"user","content":"x"},{"role":"user","content":"hi"}]`},
		{"images", asking(`{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"},` + png + `,{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}},{"type":"text","text":"c"}]}`),
			`[{"role":"user","content":[{"type":"text","text":"a\n\nb"},` + image + `,{"type":"image_url","image_url":{"url":"https://x.example/a.png"}},{"type":"text","text":"c"}]}]`},
		{"a tool's result", asking(used + `,{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"c1","content":"ok"}]}`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"},{"role":"user","content":"and"}]`},
		{"parallel calls", asking(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"c1","name":"f","input":{"s":"a\"b\\"}},{"type":"tool_use","id":"c2","name":"g"}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1"}]}`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":"t","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"s\":\"a\\\"b\\\\\"}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c2","content":"x\n\ny"},{"role":"tool","tool_call_id":"c1","content":""}]`},
		{"a tool that failed", asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":"boom"}]}`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"Error: boom"}]`},
		{"a tool that says that it failed", asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":"<tool_use_error>x"}]}`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"<tool_use_error>x"}]`},
		{"images in a result", asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[` + png + `]},{"type":"text","text":"so?"}]}`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"(The images of this result follow.)"},{"role":"user","content":[` + image + `,{"type":"text","text":"so?"}]}]`},
		{"thinking comes back", asking(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":"s"},{"type":"tool_use","id":"c1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"ok"}]}`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"}]`},
		{"omitted thinking comes back", asking(hi + `,{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"` + sealed + `"},{"type":"redacted_thinking","data":"zzz"},{"type":"text","text":"a"}]},` + hi),
			`[{"role":"user","content":"hi"},{"role":"assistant","content":"a","reasoning_content":"se\"cret"},{"role":"user","content":"hi"}]`},
		{"foreign signatures say nothing", asking(hi + `,{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"EqQBCgIYAg=="},{"type":"text","text":"a"}]},` + hi),
			`[{"role":"user","content":"hi"},{"role":"assistant","content":"a"},{"role":"user","content":"hi"}]`},
		{"a thinking model's call without thinking", request(`"thinking":{"type":"adaptive"},"messages":[` + used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"ok"}]}]`),
			`[{"role":"user","content":"go"},{"role":"assistant","content":null,"reasoning_content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"ok"}]`},
		{"documents of text", asking(`{"role":"user","content":[{"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}},{"type":"search_result","source":"https://s","title":"R","content":[{"type":"text","text":"found"}]}]}`),
			`[{"role":"user","content":"T\n\nD\n\nR\n\nhttps://s\n\nfound"}]`},
		{"what a server's tools did", asking(hi + `,{"role":"assistant","content":[{"type":"server_tool_use","id":"s1","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s1","content":[]},{"type":"text","text":"a","citations":[]}]},` + hi),
			`[{"role":"user","content":"hi"},{"role":"assistant","content":"a"},{"role":"user","content":"hi"}]`},
		{"prefill", asking(hi + `,{"role":"assistant","content":"{"}`), `[{"role":"user","content":"hi"},{"role":"assistant","content":"{"}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, err := Decode([]byte(tt.body), Options{Seal: s})
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.Of(err).Param)
			}
			if got := sent(t, q, "messages"); !sameJSON(t, got, tt.want) {
				t.Fatalf("got  %s\nwant %s", got, tt.want)
			}
			if strings.Contains(string(q.Chat.Body), "cache_control") {
				t.Error("cache_control reached the engine")
			}
			if prefill := sent(t, q, "continue_final_message") == "true"; prefill != (tt.name == "prefill") || prefill != (q.Prefill == "messages[1]") {
				t.Errorf("prefill %v, %q", prefill, q.Prefill)
			}
		})
	}
}

func TestSettingsForEngines(t *testing.T) {
	function := func(rest string) string { return `[{"type":"function","function":{"name":"f",` + rest + `}}]` }
	thinking := func(rest string) string { return request(`"messages":[` + hi + `],` + rest) }
	for _, tt := range []struct{ body, member, want string }{
		{asking(hi), "max_completion_tokens", `100`},
		{asking(hi), "model", `"m"`},
		{asking(hi), "stream", ``},
		{asking(hi), "tools", ``},
		{request(`"messages":[` + hi + `],"stream":true`), "stream", `true`},
		{request(`"messages":[` + hi + `],"stop_sequences":["END","\u00e9"]`), "stop", `["END","é"]`},
		{request(`"messages":[` + hi + `],"stop_sequences":[]`), "stop", ``},
		{request(`"messages":[` + hi + `],"stop_sequences":["1","2","3","4","5"]`), "stop", `["1","2","3","4","5"]`},
		{request(`"messages":[` + hi + `],"temperature":0.5,"top_p":0.9,"top_k":40`), "top_k", `40`},
		{request(`"messages":[` + hi + `],"temperature":0.5,"top_p":0.9,"top_k":0`), "top_k", ``},
		{request(`"messages":[` + hi + `],"temperature":1`), "temperature", `1`},
		{withTools(`"stream":false`), "tools", function(`"parameters":{"type":"object"}`)},
		{request(`"messages":[` + hi + `],"tools":[{"name":"f","type":"custom","description":"d\n","strict":true,"cache_control":{"type":"ephemeral"},"defer_loading":true,"input_schema":{"properties":{"cache":{"type":"string"}}}}]`), "tools",
			function(`"description":"d\n","parameters":{"type":"object","properties":{"cache":{"type":"string"}}},"strict":true`)},
		{request(`"messages":[` + hi + `],"tools":[{"name":"f","input_schema":{ }}]`), "tools", function(`"parameters":{"type":"object"}`)},
		{request(`"messages":[` + hi + `],"tools":[{"name":"f"}]`), "tools", function(`"parameters":{"type":"object","properties":{}}`)},
		{request(`"messages":[` + hi + `],"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5},` + toolF + `]`), "tools", function(`"parameters":{"type":"object"}`)},
		{request(`"messages":[` + hi + `],"tools":[],"tool_choice":{"type":"auto"}`), "tool_choice", ``},
		{withTools(`"tool_choice":{"type":"auto"}`), "tool_choice", `"auto"`},
		{withTools(`"tool_choice":{"type":"any"}`), "tool_choice", `"required"`},
		{withTools(`"tool_choice":{"type":"none"}`), "tool_choice", `"none"`},
		{withTools(`"tool_choice":{"type":"tool","name":"f"}`), "tool_choice", `{"type":"function","function":{"name":"f"}}`},
		{withTools(`"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`), "parallel_tool_calls", `false`},
		{withTools(`"tool_choice":{"type":"auto","disable_parallel_tool_use":false}`), "parallel_tool_calls", ``},
		{thinking(`"thinking":{"type":"disabled"}`), "reasoning_effort", `"none"`},
		{thinking(`"thinking":{"type":"disabled"},"output_config":{"effort":"high"}`), "reasoning_effort", `"none"`},
		{thinking(`"thinking":{"type":"adaptive"}`), "reasoning_effort", ``},
		{thinking(`"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}`), "reasoning_effort", `"high"`},
		{thinking(`"output_config":{"effort":"max"}`), "reasoning_effort", `"max"`},
		{`{"model":"m","max_tokens":32000,"messages":[` + hi + `],"thinking":{"type":"enabled","budget_tokens":2048}}`, "reasoning_effort", `"low"`},
		{`{"model":"m","max_tokens":32000,"messages":[` + hi + `],"thinking":{"type":"enabled","budget_tokens":10000}}`, "reasoning_effort", `"medium"`},
		{`{"model":"m","max_tokens":32000,"messages":[` + hi + `],"thinking":{"type":"enabled","budget_tokens":31999}}`, "reasoning_effort", `"high"`},
		{thinking(`"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`), "response_format",
			`{"type":"json_schema","json_schema":{"name":"response","strict":true,"schema":{"type":"object"}}}`},
		{thinking(`"output_format":{"type":"json_schema","schema":{"type":"object"}}`), "response_format",
			`{"type":"json_schema","json_schema":{"name":"response","strict":true,"schema":{"type":"object"}}}`},
		{thinking(`"service_tier":"auto"`), "service_tier", ``},
		{thinking(`"metadata":{"user_id":"u"}`), "metadata", ``},
		{thinking(`"system":null,"tools":null,"thinking":null`), "reasoning_effort", ``},
	} {
		q, err := Decode([]byte(tt.body), Options{Seal: testSeal(t)})
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		if got := sent(t, q, tt.member); tt.want == "" && got != "" || tt.want != "" && !sameJSON(t, got, tt.want) {
			t.Errorf("%s: %s is %s, want %s", tt.body, tt.member, got, tt.want)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	with := func(rest string) string { return request(`"messages":[` + hi + `],` + rest) }
	for _, tt := range []struct{ body, param string }{
		{``, ""}, {`[]`, ""}, {`{"model":`, ""}, {"{\"model\":\"\xff\"}", ""},
		{`{"max_tokens":1,"messages":[` + hi + `]}`, "model"},
		{`{"model":"","max_tokens":1,"messages":[` + hi + `]}`, "model"},
		{`{"model":1,"max_tokens":1,"messages":[` + hi + `]}`, "model"},
		{`{"model":"m","messages":[` + hi + `]}`, "max_tokens"},
		{`{"model":"m","max_tokens":0,"messages":[` + hi + `]}`, "max_tokens"},
		{`{"model":"m","max_tokens":1.5,"messages":[` + hi + `]}`, "max_tokens"},
		{`{"model":"m","max_tokens":"1","messages":[` + hi + `]}`, "max_tokens"},
		{`{"model":"m","max_tokens":1}`, "messages"},
		{asking(``), "messages"},
		{request(`"messages":{}`), "messages"},
		{asking(`1`), "messages[0]"},
		{asking(hi + `,{"content":"x"}`), "messages[1].role"},
		{asking(`{"role":"tool","content":"x"}`), "messages[0].role"},
		{asking(`{"role":"user"}`), "messages[0].content"},
		{asking(`{"role":"user","content":""}`), "messages[0].content"},
		{asking(`{"role":"user","content":[]}`), "messages[0].content"},
		{asking(`{"role":"user","content":[{"type":"text","text":""}]}`), "messages[0].content"},
		{asking(`{"role":"user","content":5}`), "messages[0].content"},
		{asking(`{"role":"user","role":"user","content":"x"}`), "messages[0].role"},
		{asking(`{"role":"user","content":["x"]}`), "messages[0].content[0]"},
		{asking(`{"role":"user","content":[{"text":"x"}]}`), "messages[0].content[0].type"},
		{asking(`{"role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text"},
		{asking(`{"role":"user","content":[{"type":"text","text":1}]}`), "messages[0].content[0].text"},
		{asking(hi + `,{"role":"user","content":[{"type":"text","text":"a"},{"type":"video"}]}`), "messages[1].content[1].type"},
		{asking(`{"role":"user","content":[{"type":"thinking","thinking":"x","signature":"y"}]}`), "messages[0].content[0].type"},
		{asking(`{"role":"user","content":[{"type":"container_upload","file_id":"x"}]}`), "messages[0].content[0].type"},
		{asking(`{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"x"}}]}`), "messages[0].content[0].source.type"},
		{asking(`{"role":"user","content":[{"type":"image"}]}`), "messages[0].content[0].source"},
		{asking(`{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"x"}}]}`), "messages[0].content[0].source.type"},
		{asking(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"x"}}]}`), "messages[0].content[0].source.media_type"},
		{asking(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png"}}]}`), "messages[0].content[0].source.data"},
		{asking(hi + `,{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":{"type":"url","url":"file:///etc/passwd"}}]}`), "messages[1].content[1].source.url"},
		{asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"other","content":"x"}]}`), "messages[2].content[0].tool_use_id"},
		{asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"},{"type":"tool_result","tool_use_id":"c1","content":"x"}]}`), "messages[2].content[1].tool_use_id"},
		{asking(`{"role":"user","content":[{"type":"tool_result","content":"x"}]}`), "messages[0].content[0].tool_use_id"},
		{asking(used + `,{"role":"user","content":"never mind"}`), "messages[1]"},
		{asking(used + `,{"role":"user","content":"never mind"},{"role":"assistant","content":"well"},` + hi), "messages[1]"},
		{asking(`{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f"},{"type":"tool_use","id":"c2","name":"f"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":"x"}]}`), "messages[1]"},
		{asking(`{"role":"user","content":[{"type":"search_result","source":"s","title":"t","content":[{"type":"search_result","source":"s","title":"t","content":"x"}]}]}`), "messages[0].content[0].content[0].type"},
		{asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"audio"}]}]}`), "messages[2].content[0].content[0].type"},
		{asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":"yes"}]}`), "messages[2].content[0].is_error"},
		{asking(used), "messages[1]"},
		{asking(hi + `,{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}`), "messages[1].content[0].id"},
		{asking(hi + `,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"{}"}]}`), "messages[1].content[0].input"},
		{asking(hi + `,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"a","name":"f","input":{}}]}`), "messages[1].content[1].id"},
		{with(`"system":5`), "system"}, {with(`"system":[{"type":"image"}]`), "system[0].type"},
		{with(`"model":"again"`), "model"},
		{with(`"stream":"yes"`), "stream"},
		{with(`"stop_sequences":"x"`), "stop_sequences"}, {with(`"stop_sequences":["a",""]`), "stop_sequences[1]"},
		{with(`"stop_sequences":["` + strings.Repeat(`a","`, 16) + `b"]`), "stop_sequences"},
		{with(`"temperature":1.5`), "temperature"}, {with(`"temperature":-1`), "temperature"}, {with(`"top_p":"1"`), "top_p"}, {with(`"top_k":-1`), "top_k"},
		{with(`"tools":{}`), "tools"}, {with(`"tools":[{}]`), "tools[0].name"}, {with(`"tools":[{"name":"f","input_schema":[]}]`), "tools[0].input_schema"},
		{with(`"tools":[` + toolF + `,` + toolF + `]`), "tools[1].name"},
		{with(`"tools":[{"name":"two words","input_schema":{}}]`), "tools[0].name"}, {with(`"tools":[{"name":"f","type":5}]`), "tools[0].type"},
		{asking(`{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}`), "messages[0].content[0].text"},
		{with(`"tools":[{"name":"` + strings.Repeat("n", 129) + `","input_schema":{}}]`), "tools[0].name"},
		{withTools(`"tool_choice":"auto"`), "tool_choice"}, {withTools(`"tool_choice":{}`), "tool_choice.type"}, {withTools(`"tool_choice":{"type":"required"}`), "tool_choice.type"},
		{withTools(`"tool_choice":{"type":"tool"}`), "tool_choice.name"}, {withTools(`"tool_choice":{"type":"tool","name":"g"}`), "tool_choice.name"},
		{with(`"tool_choice":{"type":"any"}`), "tool_choice"},
		{with(`"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}`), "tool_choice"},
		{with(`"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"tool","name":"web_search"}`), "tool_choice.name"},
		{with(`"thinking":true`), "thinking"}, {with(`"thinking":{}`), "thinking.type"}, {with(`"thinking":{"type":"on"}`), "thinking.type"},
		{with(`"thinking":{"type":"enabled"}`), "thinking.budget_tokens"}, {with(`"thinking":{"type":"enabled","budget_tokens":10}`), "thinking.budget_tokens"},
		{`{"model":"m","max_tokens":1024,"messages":[` + hi + `],"thinking":{"type":"enabled","budget_tokens":1024}}`, "thinking.budget_tokens"},
		{with(`"thinking":{"type":"adaptive","display":"all"}`), "thinking.display"},
		{with(`"output_config":{"effort":"huge"}`), "output_config.effort"}, {with(`"output_config":{"effort":3}`), "output_config.effort"}, {with(`"output_config":{"format":{"type":"xml"}}`), "output_config.format.type"},
		{with(`"output_config":{"format":{"type":"json_schema"}}`), "output_config.format.schema"}, {with(`"output_config":[]`), "output_config"},
		{with(`"service_tier":"priority"`), "service_tier"}, {with(`"metadata":"x"`), "metadata"},
		{with(`"mcp_servers":[{"type":"url","url":"https://x","name":"x"}]`), "mcp_servers"}, {with(`"container":"c"`), "container"}, {with(`"thread":{}`), "thread"},
		{with(`"context_management":{"edits":[{"type":"clear_tool_uses_20250919"},{"type":"compact_20260112"}]}`), "context_management.edits[1].type"},
		{with(`"ec_transfer_params":1`), "ec_transfer_params"},
		{with(`"bootstrap_host":1`), "bootstrap_host"},
		{with(`"bootstrap_port":1`), "bootstrap_port"},
		{with(`"bootstrap_room":1`), "bootstrap_room"},
		{with(`"disaggregated_params":1`), "disaggregated_params"},
		{with(`"data_parallel_rank":1`), "data_parallel_rank"},
		{with(`"routed_dp_rank":1`), "routed_dp_rank"},
		{with(`"disagg_prefill_dp_rank":1`), "disagg_prefill_dp_rank"},
		{with(`"kv_transfer_params":{}`), "kv_transfer_params"}, {with(`"cache_salt":"x"`), "cache_salt"}, {with(`"Priority":1`), "Priority"},
	} {
		q, err := Decode([]byte(tt.body), Options{Seal: testSeal(t)})
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || f.Param != tt.param {
			t.Errorf("%.200s: %v at %+v, want %q", tt.body, err, f, tt.param)
		} else if q != nil || f.Message == "" {
			t.Errorf("%s: %+v, %q", tt.body, q, f.Message)
		}
	}
}

func TestWhatIsIgnoredIsNamed(t *testing.T) {
	const result = `{"role":"user","content":"go"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"f","input":{},"caller":{"type":"direct"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1",`
	for _, tt := range []struct{ body, want string }{
		{asking(hi), ""},
		{request(`"messages":[` + hi + `],"cache_control":{},"speed":"fast","inference_geo":"us","fallbacks":[],"mcp_servers":[],"diagnostics":{},"container":null,"n":2`),
			"cache_control speed inference_geo fallbacks diagnostics n"},
		{request(`"messages":[` + hi + `],"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`), "context_management"},
		{request(`"messages":[` + hi + `],"metadata":{"user_id":"u","account":"a"},"thinking":{"type":"adaptive","x":1},"output_config":{"y":2,"format":{"type":"json_schema","schema":{},"name":"n"}}`),
			"thinking.x output_config.y output_config.format.name metadata.account"},
		{request(`"messages":[` + hi + `],"tools":[{"name":"bash","max_uses":5,"type":"bash_20250124"},{"name":"f","input_examples":[],"cache_control":{}}],"tool_choice":{"type":"auto","z":1}`),
			"tools[0] (bash_20250124) tools[].input_examples tools[].cache_control tool_choice.z"},
		{request(`"system":[{"type":"text","text":"s","cache_control":{}}],"messages":[{"role":"user","id":"m","content":[{"type":"text","text":"a","cache_control":{},"citations":[]}]},{"role":"user","content":[{"type":"text","text":"b","cache_control":{}}]}]`),
			"system[].cache_control messages[].id messages[].content[].cache_control messages[].content[].citations"},
		{asking(`{"role":"user","content":[{"type":"text","text":"a","title":"t"}]}`), "messages[].content[].title"},
		{asking(`{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA","x":1},"title":"t"}]}`),
			"messages[].content[].title messages[].content[].source.x"},
		{asking(result + `"content":[{"type":"text","text":"a","cache_control":{}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"},"citations":{}}],"y":1}]}`),
			"messages[].content[].y messages[].content[].content[].cache_control messages[].content[].content[].citations"},
		{asking(hi + `,{"role":"assistant","content":[{"type":"redacted_thinking","data":"zz"},{"type":"text","text":"a"}]},` + hi), "redacted_thinking"},
	} {
		q, err := Decode([]byte(tt.body), Options{Seal: testSeal(t)})
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		if got := strings.Join(q.Chat.Ignored, " "); got != tt.want {
			t.Errorf("%s\ngot  %s\nwant %s", tt.body, got, tt.want)
		}
	}
}

// What only some engines know passes where the model's list has it, as in Chat Completions; else it is named.
func TestEngineExtras(t *testing.T) {
	q, err := Decode([]byte(request(`"messages":[`+hi+`],"ignore_eos":true,"min_p":0.1,"chat_template_kwargs":{"a":[1]},"unknown \"one\"":1,"continue_final_message":true`)), Options{Seal: testSeal(t)})
	if err != nil {
		t.Fatal(err)
	}
	q.Chat.KeepExtras([]string{"ignore_eos", "chat_template_kwargs"})
	for member, want := range map[string]string{"ignore_eos": `true`, "chat_template_kwargs": `{"a":[1]}`, "min_p": "", "continue_final_message": ""} {
		if got := sent(t, q, member); got != want {
			t.Errorf("%s is %s, want %s", member, got, want)
		}
	}
	if got := strings.Join(q.Chat.Ignored, " "); got != `continue_final_message min_p "unknown \"one\""` {
		t.Error(got)
	}
	deep := `"ignore_eos":` + strings.Repeat("[", 300) + strings.Repeat("]", 300)
	if _, err := Decode([]byte(request(`"messages":[`+hi+`],`+deep)), Options{Seal: testSeal(t)}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an engine would recurse: %v", err)
	}
}

func TestSessions(t *testing.T) {
	for user, want := range map[string]string{
		`"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"6f0e\"}"`: "6f0e",
		`"user_abc_account__session_9d1c"`:                                      "9d1c",
		`"somebody"`:                                                            "somebody", `null`: "", `5`: "", `"{\"session_id\":5}"`: `{"session_id":5}`, `"` + strings.Repeat("x", 2000) + `"`: "",
	} {
		q, err := Decode([]byte(request(`"messages":[`+hi+`],"metadata":{"user_id":`+user+`}`)), Options{Seal: testSeal(t)})
		if err != nil || q.Chat.CacheKey != want {
			t.Errorf("%s: %+v, %v, want %q", user, q, err, want)
		}
	}
}

func TestASessionIDOfItsOwn(t *testing.T) {
	q, err := Decode([]byte(request(`"messages":[`+hi+`],"metadata":{"user_id":"u"},"session_id":"s"`)), Options{Seal: testSeal(t)})
	if err != nil || q.Chat.CacheKey != "s" || strings.Contains(string(q.Chat.Body), "session_id") || len(q.Chat.Ignored) != 0 {
		t.Errorf("%+v, %v", q, err)
	}
}

// What is said of the chat body later is said of the request.
func TestMembersOfTheChatBody(t *testing.T) {
	q, err := Decode([]byte(request(`"system":"S","messages":[`+used+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"x"},{"type":"text","text":"a"},`+
		`{"type":"image","source":{"type":"url","url":"https://x.example/a"}}]}],"tools":[{"type":"bash_20250124","name":"bash"},`+toolF+`]`)), Options{Seal: testSeal(t)})
	if err != nil {
		t.Fatal(err)
	}
	for chat, want := range map[string]string{"messages[0].content": "system", "messages[1]": "messages[0]", "messages[2].tool_calls[0]": "messages[1]",
		"messages[3].content": "messages[2].content[0]", "messages[4].content[1].image_url.url": "messages[2].content[2].source.url", "messages[9]": "messages", "messages": "messages",
		"tools[0].function": "tools[1]", "stop": "stop_sequences", "max_completion_tokens": "max_tokens", "response_format.json_schema": "output_config.format",
		"top_p": "top_p", "model": "model", "": ""} {
		if got := q.Member(chat); got != want {
			t.Errorf("%s: %s, want %s", chat, got, want)
		}
	}
	f := fault.Of(q.Translate(fault.New(fault.Invalid, "The model refused this request: check stop").WithParam("stop")))
	if f.Param != "stop_sequences" || !strings.HasSuffix(f.Message, "check stop_sequences") {
		t.Errorf("%+v", f)
	}
}

// An image that cannot be fetched is named by its place in the messages, also where it is a result's.
func TestTheImageThatCannotBeHad(t *testing.T) {
	image := func(url string) string {
		return `{"type":"image","source":{"type":"url","url":"https://x/` + url + `.png"}}`
	}
	for _, tt := range []struct{ messages, want string }{
		{hi + `,{"role":"assistant","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},` + image("good") + `,{"type":"text","text":"c"},` + image("bad") + `]}`, "messages[2].content[3].source.url"},
		{used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"b"},` + image("bad") + `]},` + image("good") + `]}`, "messages[2].content[0].content[1].source.url"},
	} {
		q, err := Decode([]byte(asking(tt.messages)), Options{Seal: testSeal(t)})
		if err != nil {
			t.Fatal(err)
		}
		err = q.Chat.FetchImages(t.Context(), func(_ context.Context, url string) ([]byte, error) {
			if strings.Contains(url, "bad") {
				return nil, fault.New(fault.Invalid, "No image.")
			}
			return []byte("data:x"), nil
		})
		if f := fault.Of(q.Translate(err)); f.Param != tt.want || f.Message != "No image." {
			t.Errorf("%s: %v at %s, want %s", tt.messages, err, f.Param, tt.want)
		}
	}
}

// Whatever is decoded makes a body that chat takes and that json takes, and never a panic.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{asking(hi), withTools(`"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"adaptive"}`), asking(used + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"x"}]}]}`),
		request(`"system":[{"type":"text","text":"A"}],"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"mr1.AAAA"},{"type":"text","text":"b"}]}]`),
		request(`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}}]}],"output_config":{"format":{"type":"json_schema","schema":{}}}`)} {
		f.Add([]byte(s))
	}
	s := testSeal(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		q, err := Decode(body, Options{Seal: s})
		if err != nil {
			if f := fault.Of(err); f.Kind != fault.Invalid || f.Message == "" {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if !json.Valid(q.Chat.Body) {
			t.Fatalf("%q makes %q", body, q.Chat.Body)
		}
		if _, err := protocol.DecodeChat(q.Chat.Body); err != nil && fault.Of(err).Param != "stop" { // of which there may be more
			t.Fatalf("%q makes %q: %v", body, q.Chat.Body, err)
		}
	})
}

// Reading takes time in proportion to the body, however it is cut up.
func TestManySmallPieces(t *testing.T) {
	many := func(piece string, n int) string { return strings.TrimSuffix(strings.Repeat(piece+",", n), ",") }
	var calls, results strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&calls, `{"type":"tool_use","id":"c%d","name":"f"},`, i)
		fmt.Fprintf(&results, `{"type":"tool_result","tool_use_id":"c%d","u%d":1},`, i, i)
	}
	text := `{"type":"text","text":"` + strings.Repeat("x", 1000) + `"}`
	for name, body := range map[string]string{
		"blocks":   asking(many(`{"role":"user","content":[`+many(text, 4000)+`]}`, 5)),
		"messages": asking(many(`{"role":"user","content":"x"}`, 90_000)),
		"calls": asking(hi + `,{"role":"assistant","content":[` + strings.TrimSuffix(calls.String(), ",") + `]},{"role":"user","content":[` +
			strings.TrimSuffix(results.String(), ",") + `]}`),
	} {
		q, err := Decode([]byte(body), Options{Seal: testSeal(t)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(q.Chat.Body) < len(body)/8 || len(q.Chat.Ignored) > 33 {
			t.Errorf("%s: %d bytes of %d, %d ignored", name, len(q.Chat.Body), len(body), len(q.Chat.Ignored))
		}
	}
}

// BenchmarkDecode is what a request costs that an agent sends, tools and 20 turns of about 24 KB, beside the same for chat.
func BenchmarkDecode(b *testing.B) {
	var turns, chat strings.Builder
	text := strings.Repeat("some words of a conversation ", 10)
	for i := range 20 {
		fmt.Fprintf(&turns, `{"role":"user","content":[{"type":"text","text":"%s"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"f","input":{"a":1}}]},`+
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":"%s"}]},{"role":"assistant","content":[{"type":"text","text":"%s"}]},`, text, i, i, text, text)
		fmt.Fprintf(&chat, `{"role":"user","content":"%s"},{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},`+
			`{"role":"tool","tool_call_id":"c%d","content":"%s"},{"role":"assistant","content":"%s"},`, text, i, i, text, text)
	}
	const schema = `{"type":"object","properties":{"a":{"type":"integer","description":"A number of something that somebody needs."}}}`
	o := Options{Seal: testSeal(b)}
	for _, bb := range []struct {
		name, body string
		decode     func([]byte) error
	}{
		{"messages", request(`"stream":true,"system":"be brief","messages":[` + turns.String() + hi + `],"tools":[{"name":"f","input_schema":` + schema + `}],"thinking":{"type":"adaptive"}`),
			func(body []byte) error { _, err := Decode(body, o); return err }},
		{"chat", `{"model":"m","stream":true,"messages":[{"role":"system","content":"be brief"},` + chat.String() + hi + `],"tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}}],"max_tokens":100}`,
			func(body []byte) error { _, err := protocol.DecodeChat(body); return err }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			body := []byte(bb.body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if err := bb.decode(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
