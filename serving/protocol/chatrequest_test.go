package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/usage"
)

// with is a good request with further members.
func with(members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"model":"m","messages":[{"role":"user","content":"hi"}]` + members + `}`
}

func TestGoodRequests(t *testing.T) {
	for _, members := range []string{
		``, `"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}`, `"stream":false`, `"stream":null,"stream_options":null,"n":null`,
		`"temperature":0,"top_p":1,"frequency_penalty":-2,"presence_penalty":2.0,"seed":-5`, `"n":16,"max_tokens":1,"max_completion_tokens":4194304`,
		`"stop":"x"`, `"stop":["a","b","c","d"]`, `"stop":null`, `"logprobs":true,"top_logprobs":20`, `"logit_bias":{"50256":-100}`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}}`, `"response_format":{"type":"json_object"}`,
		`"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false`,
		`"tool_choice":"auto"`, `"reasoning_effort":"high"`, `"modalities":["text"]`, `"service_tier":"auto"`, `"top_k":5,"min_p":0.1,"chat_template_kwargs":{"a":1}`,
		`"user":"u","store":false,"metadata":{"a":"b"}`,
	} {
		if _, err := DecodeChat([]byte(with(members))); err != nil {
			t.Errorf("%s: %v", members, err)
		}
	}
	for _, messages := range []string{
		`[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"low"}}]}]`,
		`[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}]`,
		`[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"}]}]`,
		`[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"reasoning_content":"r"},{"role":"user","name":"bob","content":""}]`,
	} {
		if _, err := DecodeChat([]byte(`{"model":"m","messages":` + messages + `}`)); err != nil {
			t.Errorf("%s: %v", messages, err)
		}
	}
}

func TestWhatIsPeeked(t *testing.T) {
	body := `{"messages":[{"role":"user","content":"12345678"}],"mod\u0065l":"acme\/é","max_tokens":5,"max_completion_tokens":7,"n":2,"stream":true,"stream_options":{"include_usage":true},"prompt_cache_key":"k"}`
	q, err := DecodeChat([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if q.Model != "acme/é" || q.MaxTokens != 7 || q.N != 2 || !q.Stream || !q.IncludeUsage || q.CacheKey != "k" || q.TextBytes != 10 || strings.Join(q.Ignored, " ") != "max_tokens" {
		t.Fatalf("%+v", q)
	}
	if strings.Contains(string(q.Body), "prompt_cache_key") || !json.Valid(q.Body) {
		t.Errorf("body %s", q.Body)
	}
}

// Every mistake is a 400 that names the member.
func TestBadRequests(t *testing.T) {
	for _, tt := range []struct{ body, param string }{
		{``, ""}, {`{`, ""}, {`[]`, ""}, {`null`, ""}, {`"x"`, ""}, {`{"model":"m"}x`, ""}, {"{\"model\":\"\xff\"}", ""},
		{`{}`, "model"}, {`{"model":null,"messages":[]}`, "model"}, {`{"model":1}`, "model"}, {`{"model":""}`, "model"},
		{`{"model":"m"}`, "messages"}, {`{"model":"m","messages":null}`, "messages"}, {`{"model":"m","messages":[]}`, "messages"}, {`{"model":"m","messages":{}}`, "messages"},
		{`{"model":"m","messages":[1]}`, "messages[0]"}, {`{"model":"m","messages":[{"content":"x"}]}`, "messages[0].role"},
		{`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"robot","content":"x"}]}`, "messages[1].role"},
		{`{"model":"m","messages":[{"role":"user"}]}`, "messages[0].content"}, {`{"model":"m","messages":[{"role":"user","content":5}]}`, "messages[0].content"},
		{`{"model":"m","messages":[{"role":"user","content":[]}]}`, "messages[0].content"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]}`, "messages[0].content[0].text"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]}`, "messages[0].content[0].type"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{}}]}]}`, "messages[0].content[0].type"},
		{`{"model":"m","messages":[{"role":"system","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}`, "messages[0].content[0].type"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]}`, "messages[0].content[0].image_url.url"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x","url":"http://10.0.0.1/"}}]}]}`, "messages[0].content[0].image_url.url"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","image_url":{"url":"http://10.0.0.1/"}}]}]}`, "messages[0].content[0].type"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","video_url":{"url":"http://10.0.0.1/"}}]}]}`, "messages[0].content[0].video_url"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x","url":"https://10.0.0.1/"}}]}]}`, "messages[0].content[0].image_url.url"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x","url":"file:///etc/passwd"}}]}]}`, "messages[0].content[0].image_url.url"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"},"image_url":{"url":"data:x"}}]}]}`, "messages[0].content[0].image_url"},
		{`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}],"content":"x"}]}`, "messages[0].content"},
		{`{"model":"m","messages":[{"role":"tool","content":"x"}]}`, "messages[0].tool_call_id"},
		{`{"model":"m","messages":[{"role":"assistant","content":null}]}`, "messages[0].content"},
		{`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f"}}]}]}`, "messages[0].tool_calls[0]"},
		{`{"model":"m","model":"n","messages":[]}`, "model"}, {`{"a":1,"\u0061":2}`, "a"},
		{with(`"stream":"yes"`), "stream"}, {with(`"stream_options":{"include_usage":true}`), "stream_options"}, {with(`"stream":true,"stream_options":[]`), "stream_options"},
		{with(`"stream":true,"stream_options":{"include_usage":1}`), "stream_options.include_usage"},
		{with(`"max_tokens":0`), "max_tokens"}, {with(`"max_tokens":1.5`), "max_tokens"}, {with(`"max_tokens":"5"`), "max_tokens"}, {with(`"max_completion_tokens":-1`), "max_completion_tokens"},
		{with(`"max_tokens":99999999`), "max_tokens"}, {with(`"n":0`), "n"}, {with(`"n":17`), "n"},
		{with(`"temperature":2.1`), "temperature"}, {with(`"temperature":"hot"`), "temperature"}, {with(`"top_p":-0.1`), "top_p"}, {with(`"presence_penalty":3`), "presence_penalty"},
		{with(`"seed":1.5`), "seed"}, {with(`"stop":""`), "stop"}, {with(`"stop":["a","b","c","d","e"]`), "stop"}, {with(`"stop":[""]`), "stop"}, {with(`"stop":5`), "stop"},
		{with(`"top_logprobs":3`), "top_logprobs"}, {with(`"logprobs":true,"top_logprobs":21`), "top_logprobs"}, {with(`"logit_bias":{"x":1}`), "logit_bias"}, {with(`"logit_bias":{"1":101}`), "logit_bias"},
		{with(`"response_format":{"type":"xml"}`), "response_format.type"}, {with(`"response_format":{"type":"json_schema"}`), "response_format.json_schema"},
		{with(`"reasoning_effort":"extreme"`), "reasoning_effort"}, {with(`"tools":{}`), "tools"}, {with(`"tools":[{"type":"function"}]`), "tools[0]"}, {with(`"tools":[{"type":"custom","custom":{}}]`), "tools[0]"},
		{with(`"tool_choice":"required"`), "tool_choice"}, {with(`"tool_choice":{"type":"function","function":{"name":"g"}}`), "tool_choice"}, {with(`"tool_choice":{"type":"custom"}`), "tool_choice"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`), "tool_choice.allowed_tools.tools"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[` +
			strings.Repeat(`{"type":"function","function":{"name":"f"}},`, maxTools) + `{"type":"function","function":{"name":"f"}}]}}`), "tool_choice.allowed_tools.tools"},
		{with(`"modalities":["text","audio"]`), "modalities"}, {with(`"audio":{}`), "audio"}, {with(`"web_search_options":{}`), "web_search_options"}, {with(`"functions":[]`), "functions"}, {with(`"functions":[{"name":"f"}],"function_call":{"name":"g"}`), "function_call"}, {with(`"functions":[{"name":"f"}],"tools":[]`), "functions"},
		{`{"model":"m","messages":[{"role":"function","name":"f","content":"7"}]}`, "messages[0].role"}, {with(`"function_call":"auto"`), "function_call"},
		{with(`"metadata":` + strings.Repeat("[", 300) + strings.Repeat("]", 300)), ""},
		{with(`"service_tier":"gold"`), "service_tier"}, {with(`"service_tier":"scale"`), "service_tier"}, {with(`"service_tier":1`), "service_tier"}, {with(`"parallel_tool_calls":1`), "parallel_tool_calls"}, {with(`"prompt_cache_key":5`), "prompt_cache_key"},
	} {
		q, err := DecodeChat([]byte(tt.body))
		if got := fault.Of(err); err == nil || got.Kind != fault.Invalid || got.Param != tt.param || got.Message == "" {
			t.Errorf("%s:\n%v, %v; want param %q", tt.body, q, err, tt.param)
		}
	}
}

func TestWhatEnginesGet(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"f"}}, {"type":"function","function":{"name":"g"}},{"type":"function","function":{"name":"h"}}]`
	for _, tt := range []struct{ body, want, ignored string }{
		{with(`"top_k":5`), with(`"top_k":5`), ""},
		{with(`"user":"u" , "top_k":5,"store":true`), `{"model":"m","messages":[{"role":"user","content":"hi"}],"top_k":5}`, "user store"},
		{with(`"service_tier":"priority","top_k":5`), with(`"top_k":5`), ""},
		{`{"model":"m","messages":[{"role":"assistant","content":null,"function_call":{"arguments":"{}","name":"f"}},{"role":"function","name":"f","content":"7"}],"functions":[{"name":"f"}],"function_call":{"name":"f"}}`,
			`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"call_function_1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_function_1","name":"f","content":"7"}],` +
				`"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false,"tool_choice":{"type":"function","function":{"name":"f"}}}`, ""},
		{`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"type":"custom","id":"c1","custom":{"name":"sh","input":"a \"b\""}}]}],"tools":[{"type":"custom","custom":{"name":"sh","description":"run"}},{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"custom","custom":{"name":"sh"}}}`,
			`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"sh","arguments":"{\"input\":\"a \\\"b\\\"\"}"}}]}],` +
				`"tools":[{"type":"function","function":{"name":"sh","description":"run","parameters":` + CustomParameters + `}},{"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"function","function":{"name":"sh"}}}`, ""},
		{`{"model":"m","messages":[{"role":"assistant","reasoning" : "r","content":"a"},{"role":"assistant","reasoning":"r","reasoning_content":"s","content":"b"}]}`,
			`{"model":"m","messages":[{"role":"assistant","reasoning_content":"r","content":"a"},{"role":"assistant","reasoning":"r","reasoning_content":"s","content":"b"}]}`, ""},
		{`{"model":"m","messages":[{"role": "developer","content":"a"},{"content":"b","role":"developer"}]}`, `{"model":"m","messages":[{"role": "system","content":"a"},{"content":"b","role":"system"}]}`, ""},
		{with(tools + `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"h"}},{"type":"function","function":{"name":"f"}}]}}`),
			with(`"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"h"}}],"tool_choice":"required"`), ""},
	} {
		q, err := DecodeChat([]byte(tt.body))
		if err != nil || string(q.Body) != tt.want || strings.Join(q.Ignored, " ") != tt.ignored {
			t.Errorf("%s:\n%s\n%s\nignored %v, %v", tt.body, q.Body, tt.want, q.Ignored, err)
		}
	}
}

// What steers engines is refused, however it is cased; other members beyond OpenAI's pass where the model's list has them.
func TestEngineExtras(t *testing.T) {
	for _, name := range []string{"cache_salt", "priority", "kv_transfer_params", "bootstrap_room", "data_parallel_rank", "Cache_Salt", "PRIORITY", "nvext", "echo"} {
		if q, err := DecodeChat([]byte(with(`"` + name + `":1`))); fault.Of(err).Param != name || fault.Of(err).Code != "unsupported_parameter" {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
	}
	q, err := DecodeChat([]byte(with(`"top_k":5,"min_p":0.1,"temprature":1,"user":"u"`)))
	if err != nil {
		t.Fatal(err)
	}
	q.KeepExtras([]string{"top_k"})
	if got := strings.Join(q.Ignored, " "); string(q.Body) != with(`"top_k":5`) || got != "user min_p temprature" {
		t.Errorf("%s, ignored %s", q.Body, got)
	}
}

func TestServiceTiers(t *testing.T) {
	for value, want := range map[string]struct {
		service usage.Service
		tell    bool
	}{`"auto"`: {usage.Ordinary, true}, `"default"`: {usage.Ordinary, true}, `"flex"`: {usage.Batch, true}, `"priority"`: {usage.Priority, true}, `null`: {usage.Ordinary, false}} {
		q, err := DecodeChat([]byte(with(`"service_tier":` + value)))
		if err != nil || q.Service != want.service || q.TellService != want.tell {
			t.Errorf("%s: %+v, %v", value, q, err)
		}
	}
	p := AnswerParams{ID: "chatcmpl-1", Model: "m", Service: "priority"}
	for _, a := range []Answer{NewChatWhole(p), NewChatStream(p)} {
		out, _, err := a.Add(nil, []byte(`{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}`))
		if out = a.Finish(out, nil); err != nil || !strings.Contains(string(out), `"model":"m","service_tier":"priority","choices"`) {
			t.Errorf("%s, %v", out, err)
		}
	}
}

func TestManyMembersAndMessages(t *testing.T) {
	var members []string
	for i := range maxMembers {
		members = append(members, fmt.Sprintf(`"x%d":1`, i))
	}
	if _, err := DecodeChat([]byte(with(strings.Join(members, ",")))); !fault.Is(err, fault.Invalid) {
		t.Errorf("too many members: %v", err)
	}
	message := `{"role":"user","content":"x"},`
	body := `{"model":"m","messages":[` + strings.TrimSuffix(strings.Repeat(message, maxMessages+1), ",") + `]}`
	if _, err := DecodeChat([]byte(body)); !fault.Is(err, fault.Invalid) {
		t.Errorf("too many messages: %v", err)
	}
	for depth, good := range map[int]bool{200: true, 300: false, 5000: false} { // engines recurse: one died of 9,000
		deep := with(`"x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth))
		if _, err := DecodeChat([]byte(deep)); (err == nil) != good {
			t.Errorf("%d deep: %v", depth, err)
		}
	}
}

// A body that passes is one that a strict decoder reads the same way, and so is what engines get.
func FuzzDecodeChat(f *testing.F) {
	for _, members := range []string{``, `"user":"u","n":2`, `"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"f"}}]}}`} {
		f.Add([]byte(with(members)))
	}
	f.Add([]byte(`{"model":"m","messages":[{"role":"developer","content":[{"type":"text","text":"a"}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := slices.Clone(body)
		q, err := DecodeChat(body)
		if err != nil {
			if fault.Of(err).Kind != fault.Invalid {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		var plain, sent struct {
			Model string
			N     *int
		}
		if err := json.Unmarshal(before, &plain); err != nil {
			t.Fatalf("%q passed: %v", before, err)
		}
		if err := json.Unmarshal(q.Body, &sent); err != nil {
			t.Fatalf("%q became %q: %v", before, q.Body, err)
		}
		if string(before) != string(body) {
			t.Fatal("the client's body was changed")
		}
		_ = q.Has("stream")
	})
}

func BenchmarkDecodeChat(b *testing.B) {
	content := strings.Repeat("The river flows past the old mill. ", 32)
	body := []byte(`{"model":"acme/test","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"` + content + `"}],"stream":true,"max_tokens":100,"temperature":0.7}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeChat(body); err != nil {
			b.Fatal(err)
		}
	}
}

func TestBuiltBodiesHaveTheLimitOfBodies(t *testing.T) {
	built := with(`"top_k":5`)
	for _, tt := range []struct {
		bytes int
		kind  fault.Kind
	}{{MaxBodyBytes, 0}, {MaxBodyBytes + 1, fault.TooLarge}} {
		body := built + strings.Repeat(" ", tt.bytes-len(built))
		if _, err := DecodeBuilt([]byte(body), Built{Messages: 1}); (err != nil) != (tt.kind != 0) || err != nil && !fault.Is(err, tt.kind) {
			t.Errorf("%d bytes: %v", tt.bytes, err)
		}
	}
}

// What a dialect says of the messages that it wrote has the limits of messages.
func TestWrittenMessagesHaveTheLimitsOfMessages(t *testing.T) {
	for _, tt := range []struct {
		known Built
		body  string
		bad   bool
	}{
		{Built{Messages: maxMessages, RemoteImages: maxRemoteImages, TextBytes: 7}, with(``), false}, {Built{Messages: maxMessages + 1}, with(``), true},
		{Built{Messages: 1, RemoteImages: maxRemoteImages + 1}, with(``), true},
		{Built{Messages: 1}, with(`"top_k":` + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)), true},
	} {
		q, err := DecodeBuilt([]byte(tt.body), tt.known)
		if (err != nil) != tt.bad || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", tt.known, err)
		}
		if err == nil && (q.TextBytes != 7 || q.RemoteImages != maxRemoteImages || string(q.Messages) != `[{"role":"user","content":"hi"}]`) {
			t.Errorf("%+v", q)
		}
	}
}
