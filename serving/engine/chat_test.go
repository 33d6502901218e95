package engine_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace/internal/fault"
	"millrace/serving/engine"
	"millrace/serving/engine/tok"
)

func driver(t testing.TB, f engine.Family) engine.Driver {
	t.Helper()
	d, err := engine.Lookup(f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPrepareChat(t *testing.T) {
	const always = `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
	for _, c := range []struct {
		name, body, want string
		family           engine.Family
		p                engine.ChatParams
	}{
		{"model and stream are replaced", `{"model":"acme/x","messages":[],"stream":false}`,
			`{"model":"tiny","messages":[],` + always, engine.VLLM, engine.ChatParams{Model: "tiny"}},
		{"unknown members stay byte for byte", `{ "messages" : [ { "a":1 } ] , "x_y":  1.50 , "top_k":null }`,
			`{"model":"m","messages" : [ { "a":1 } ],"x_y":  1.50,"top_k":null,` + always, engine.VLLM, engine.ChatParams{Model: "m"}},
		{"what steers engines is removed, escaped or repeated names too",
			`{"cache_salt":"theirs","cache\u005fsalt":"x","priority":-9,"kv_transfer_params":{"remote_host":"evil"},"bootstrap_room":1,"request_id":"r","stream_options":{"include_usage":false},"model":"a","model":"b","Model":"c","PRIORITY":1,"ſtream":false,"Max_Tokens":9}`,
			`{"model":"m","cache_salt":"ours","request_id":"req_1",` + always, engine.VLLM, engine.ChatParams{Model: "m", Salt: "ours", RequestID: "req_1"}},
		{"a cap where there was none", `{"messages":[]}`, `{"model":"m","messages":[],"max_tokens":50,` + always, engine.Sim, engine.ChatParams{Model: "m", MaxTokens: 50}},
		{"a lower cap", `{"max_tokens":9999}`, `{"model":"m","max_tokens":50,` + always, engine.Sim, engine.ChatParams{Model: "m", MaxTokens: 50}},
		{"the client's smaller cap stays", `{"max_tokens":7}`, `{"model":"m","max_tokens":7,` + always, engine.Sim, engine.ChatParams{Model: "m", MaxTokens: 50}},
		{"max_completion_tokens wins", `{"max_tokens":7,"max_completion_tokens":9}`, `{"model":"m","max_completion_tokens":9,` + always, engine.VLLM, engine.ChatParams{Model: "m"}},
		{"null is no cap", `{"max_tokens":null}`, `{"model":"m",` + always, engine.VLLM, engine.ChatParams{Model: "m"}},
		{"no thinking is said to the template too", `{"reasoning_effort":"none"}`,
			`{"model":"m","reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":false,"thinking":false},` + always, engine.VLLM, engine.ChatParams{Model: "m"}},
		{"what a client says to the template stays", `{"reasoning_effort":"none","chat_template_kwargs":{"x":1}}`,
			`{"model":"m","reasoning_effort":"none","chat_template_kwargs":{"x":1},` + always, engine.VLLM, engine.ChatParams{Model: "m"}},
		{"providers have no template", `{"reasoning_effort":"none"}`,
			`{"model":"m","reasoning_effort":"none","stream":true,"stream_options":{"include_usage":true}}`, engine.OpenAI, engine.ChatParams{Model: "m"}},
		{"names are quoted", `{}`, `{"model":"a\"b","cache_salt":"é",` + always, engine.VLLM, engine.ChatParams{Model: `a"b`, Salt: "é"}},
		{"llama.cpp counts by timings, knows max_tokens only", `{"max_completion_tokens":5,"n_predict":9999,"id_slot":1}`,
			`{"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true}`, engine.LlamaCpp, engine.ChatParams{Model: "m", Salt: "s", RequestID: "r"}},
		{"SGLang has other names", `{"session_id":"s","input_ids":[1],"top_k":5}`,
			`{"model":"m","top_k":5,"cache_salt":"s","rid":"r","priority":-1,` + always, engine.SGLang, engine.ChatParams{Model: "m", Salt: "s", RequestID: "r", Rank: -1}},
		{"TensorRT-LLM gets what it knows", `{"messages":[],"xtc_threshold":0.1,"top_k":5,"modalities":["text"],"Top_k":6,"reasoning_effort":"xhigh","max_completion_tokens":9}`,
			`{"model":"m","messages":[],"top_k":5,"reasoning_effort":"high","max_completion_tokens":9,"cache_salt":"s","priority":0.750,` + always, engine.TRTLLM, engine.ChatParams{Model: "m", Salt: "s", RequestID: "r", Rank: -1}},
		{"the least effort is low", `{"reasoning_effort":"minimal"}`, `{"model":"m","reasoning_effort":"low",` + always, engine.TRTLLM, engine.ChatParams{Model: "m"}},
		{"TensorRT-LLM's tools too", `{"tools":[{"type":"function","cache_control":{},"function":{"name":"f","x":1,"parameters":{"x":1},"strict":true}}]}`,
			`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"x":1},"strict":true}}],"priority":0.250,` + always, engine.TRTLLM, engine.ChatParams{Model: "m", Rank: 1}},
		{"providers get nothing they may not know", `{"max_tokens":5}`,
			`{"model":"gpt","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, engine.OpenAI, engine.ChatParams{Model: "gpt", Salt: "s", RequestID: "r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := driver(t, c.family).PrepareChat([]byte("kept"), []byte(c.body), c.p)
			if err != nil || string(got) != "kept"+c.want {
				t.Errorf("got  %s, %v\nwant kept%s", got, err, c.want)
			}
		})
	}
}

func TestPrepareChatRefuses(t *testing.T) {
	for body, param := range map[string]string{
		`[]`: "", `"x"`: "", `{} {}`: "", `{`: "", ``: "", `{"max_tokens":0}`: "max_tokens", `{"max_tokens":-1}`: "max_tokens",
		`{"max_tokens":"9"}`: "max_tokens", `{"max_completion_tokens":1.5}`: "max_completion_tokens", `{"max_tokens":1e99}`: "max_tokens",
	} {
		_, err := driver(t, engine.VLLM).PrepareChat(nil, []byte(body), engine.ChatParams{Model: "m"})
		if !fault.Is(err, fault.Invalid) || fault.Of(err).Param != param {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// The fuzzer's oracle is encoding/json: what was kept is what a decoder sees, what is ours is ours, nothing else is there.
func FuzzPrepareChat(f *testing.F) {
	f.Add([]byte(`{"model":"a","messages":[{"role":"user","content":"h\"i\\"}],"max_tokens":1e2,"stream_options":{}}`), int64(10))
	f.Add([]byte(`{"cache\u005fsalt":"x","a":1,"a":2}`), int64(0))
	steering := []string{"cache_salt", "priority", "kv_transfer_params", "bootstrap_room", "disaggregated_params", "request_id"}
	f.Fuzz(func(t *testing.T, body []byte, tokens int64) {
		for _, family := range engine.Families() {
			out, err := driver(t, family).PrepareChat(nil, body, engine.ChatParams{Model: "ours", MaxTokens: tokens})
			var in map[string]json.RawMessage
			if !json.Valid(body) || json.Unmarshal(body, &in) != nil || in == nil {
				continue // the caller has checked before; it must only not panic
			}
			if err != nil {
				if name, _, _ := strings.Cut(fault.Of(err).Param, "."); !fault.Is(err, fault.Invalid) || in[name] == nil {
					t.Fatalf("%s: %v", body, err)
				}
				continue
			}
			var got map[string]json.RawMessage
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%s became %s: %v", body, out, err)
			}
			if string(got["model"]) != `"ours"` || string(got["stream"]) != "true" {
				t.Fatalf("%s", out)
			}
			for _, name := range steering {
				if _, there := got[name]; there {
					t.Fatalf("%s is left in %s", name, out)
				}
			}
			for _, name := range []string{"messages", "a", "tools", "temperature"} {
				rewritten := driver(t, family).Drops(name) || name == "tools" && family == engine.TRTLLM
				if !rewritten && !bytes.Equal(in[name], got[name]) {
					t.Fatalf("%s: %s became %s", name, in[name], got[name])
				}
			}
			var cap struct {
				A json.Number `json:"max_tokens"`
				B json.Number `json:"max_completion_tokens"`
			}
			if json.Unmarshal(out, &cap) != nil || tokens > 0 && cap.A == "" && cap.B == "" || cap.A != "" && cap.B != "" {
				t.Fatalf("caps of %s", out)
			}
			for _, n := range []json.Number{cap.A, cap.B} {
				if v, err := n.Int64(); n != "" && (err != nil || v < 1 || tokens > 0 && v > tokens) {
					t.Fatalf("cap %s, ours is %d", n, tokens)
				}
			}
		}
	})
}

// longChat is a 32 KB request with 20 messages and tools, as agents send them.
func longChat(t testing.TB) []byte {
	var messages []map[string]any
	for range 20 {
		messages = append(messages, map[string]any{"role": "user", "content": strings.Repeat("The river \"flows\" past the old mill.\n", 36)})
	}
	tool := map[string]any{"type": "function", "function": map[string]any{"name": "f", "description": strings.Repeat("d", 200),
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}}
	body, err := json.Marshal(map[string]any{"model": "acme/llama", "messages": messages, "tools": []any{tool, tool, tool}, "temperature": 0.5, "max_tokens": 1000, "stream": true})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestPrepareChatAllocatesOnlyItsOutput(t *testing.T) {
	body, d := longChat(t), driver(t, engine.VLLM)
	dst := make([]byte, 0, 2*len(body))
	n := testing.AllocsPerRun(100, func() {
		if _, err := d.PrepareChat(dst, body, engine.ChatParams{Model: "m", Salt: "salt", MaxTokens: 10, RequestID: "r"}); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPrepareChat(b *testing.B) {
	body, d := longChat(b), driver(b, engine.VLLM)
	dst := make([]byte, 0, 2*len(body))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.PrepareChat(dst, body, engine.ChatParams{Model: "m", Salt: "salt", MaxTokens: 10}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPromptBoundHoldsForTheSimulatedTokenizer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "解说解说", "\x01\n\t", "a b c d"}))
		message := rapid.Custom(func(t *rapid.T) map[string]any {
			m := map[string]any{"role": rapid.SampledFrom([]string{"system", "user", "assistant", "tool"}).Draw(t, "role"), "content": text.Draw(t, "text")}
			if rapid.Bool().Draw(t, "parts") {
				m["content"] = []any{map[string]any{"type": "text", "text": text.Draw(t, "part")},
					map[string]any{"type": "image_url", "image_url": map[string]any{"url": text.Draw(t, "url")}}}
			}
			if rapid.Bool().Draw(t, "calls") {
				m["tool_calls"] = []any{map[string]any{"function": map[string]any{"name": text.Draw(t, "fn"), "arguments": text.Draw(t, "args")}}}
			}
			return m
		})
		request := map[string]any{"messages": rapid.SliceOfN(message, 0, 6).Draw(t, "messages")}
		if rapid.Bool().Draw(t, "tools") {
			request["tools"] = []any{map[string]any{"function": map[string]any{"name": text.Draw(t, "tool")}}}
		}
		body, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.ApplyChat(body)
		if err != nil {
			t.Fatal(err)
		}
		if bound := engine.PromptBound(body, 0); bound < int64(len(ids)) {
			t.Fatalf("%d tokens, bound %d: %s", len(ids), bound, body)
		}
	})
}

func TestPromptBound(t *testing.T) {
	image := `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}]}]}`
	if n := engine.PromptBound([]byte(image), 0); n > engine.TemplateTokens+engine.MessageTokens+engine.MediaTokens+100 {
		t.Errorf("an image counts by its bytes: %d", n)
	}
	words := strings.Repeat("x", 1<<20)
	for _, part := range []string{
		`{"image_url":{"url":"data:,"},"type":"text","text":"` + words + `"}`,
		`{"type":"image_url","type":"text","text":"` + words + `"}`,
		`{"type":"image_url","image_url":{"url":"data:,"},"text":"` + words + `"}`,
	} {
		if n := engine.PromptBound([]byte(`{"messages":[{"role":"user","content":[`+part+`]}]}`), 0); n < 1<<20 {
			t.Errorf("text hides behind an image: %d tokens for %.60s", n, part)
		}
	}
	long := `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 5000) + `"}]}`
	if n := engine.PromptBound([]byte(long), 4096); n != 4096 {
		t.Errorf("bound %d above the context", n)
	}
	several := `["` + strings.Repeat("x", 4000) + `","` + strings.Repeat("x", 4000) + `",[1,2,3]]`
	for _, body := range []string{`{"input":` + several + `}`, `{"prompt":` + several + `}`} {
		if n := engine.PromptBound([]byte(body), 4096); n < 8000 || n > 9000 {
			t.Errorf("the context caps each of several prompts, not all of them: %d", n)
		}
	}
	if n := engine.PromptBound([]byte(`{"prompt":[`+strings.Repeat("1000,", 5000)+`1]}`), 4096); n != 4096 {
		t.Errorf("token ids are one prompt: %d", n)
	}
	if n := engine.PromptBound([]byte(long), 0); n < 5000 || n > 6000 {
		t.Errorf("bound %d of 5000 bytes", n)
	}
}
