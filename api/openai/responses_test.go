package openai_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"millrace/internal/seal"
	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol/responses/responsestest"
)

func master() *seal.Master {
	m, err := seal.New(make([]byte, seal.KeyBytes))
	if err != nil {
		panic(err)
	}
	return m
}

const ask = `{"model":"acme/test","input":"hello","max_output_tokens":40`

// A customer's request, streamed and whole, through everything to the simulated engine.
func TestResponses(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	answer, body := s.do("POST", "/v1/responses", ask+`,"stream":true,"store":false}`)
	streamed, err := responsestest.Check(body)
	if err != nil || answer.StatusCode != 200 || streamed.Usage.Output != 40 || streamed.Status != "incomplete" || streamed.Items[0].Text == "" {
		t.Fatalf("%v %d %s", err, answer.StatusCode, body)
	}
	answer, body = s.do("POST", "/v1/responses", ask+`,"store":false,"client_metadata":{},"tools":[{"type":"web_search"}]}`)
	whole, err := responsestest.Whole(body)
	if err != nil || answer.StatusCode != 200 || !responsestest.Same(whole, streamed) {
		t.Fatalf("%v %d %s", err, answer.StatusCode, body)
	}
	if got := answer.Header.Get("Millrace-Warning"); got != "ignored: tools[0] (web_search), client_metadata" {
		t.Errorf("warning %q", got)
	}
}

// Reasoning that was sealed for a client comes back to the engine with the next request.
func TestReasoningGoesRound(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Stream(`data: {"choices":[{"index":0,"delta":{"reasoning":"deep"},"finish_reason":null}]}`+"\n\n"+
		`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`+"\n\ndata: [DONE]\n\n"))
	s := newStand(t, engine.VLLM, e)
	_, body := s.do("POST", "/v1/responses", ask+`,"store":false,"include":["reasoning.encrypted_content"]}`)
	first, err := responsestest.Whole(body)
	if err != nil || len(first.Items) != 2 || first.Items[0].Encrypted == "" {
		t.Fatalf("%v %s", err, body)
	}
	var raw struct{ Output []map[string]any }
	if err := json.Unmarshal(body, &raw); err != nil {
		t.Fatal(err)
	}
	raw.Output[0]["summary"] = []any{} // what the client keeps is the seal
	items, _ := json.Marshal(append(raw.Output, map[string]any{"type": "function_call_output", "call_id": "c", "output": "done"}))
	if answer, body := s.do("POST", "/v1/responses", `{"model":"acme/test","store":false,"input":`+string(items)+`}`); answer.StatusCode != 200 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	if _, sent := e.Last(); !strings.Contains(sent, `"reasoning_content":"deep"`) && !strings.Contains(sent, `"reasoning":"deep"`) {
		t.Fatalf("the engine got %s", sent)
	}
}

// What goes wrong after the begin of a stream is an error event and a failed response; before it, a status.
func TestResponsesThatFail(t *testing.T) {
	const piece = `data: {"choices":[{"index":0,"delta":{"content":"par"},"finish_reason":null}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}` + "\n\n"
	const broken = `data: {"error":{"message":"Traceback: engine died","type":"server_error","code":500}}` + "\n\n"
	reset := func(c net.Conn, _ int) bool {
		gatetest.SendTaken(c, gatetest.StreamHead, gatetest.Chunk(piece))
		return false
	}
	for _, tt := range []struct {
		name   string
		script gatetest.Script
	}{
		{"an error frame", gatetest.Stream(piece + broken)}, {"an error frame, then the end", gatetest.Stream(piece + broken + "data: [DONE]\n\n")},
		{"a chunk with an error", gatetest.Stream(piece + `data: {"choices":[],"error":{"message":"Traceback: engine died"}}` + "\n\n")},
		{"a reset", reset}, {"garbage", gatetest.Stream(piece + "data: {\"choices\":[{\n\n")}, {"no finish", gatetest.Stream(piece + "data: [DONE]\n\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStand(t, engine.VLLM, gatetest.NewEngine(t, tt.script))
			_, body := s.do("POST", "/v1/responses", ask+`,"stream":true,"store":false}`)
			got, err := responsestest.Check(body)
			if err != nil || got.Status != "failed" || got.Error["type"] != "server_error" || strings.Contains(string(body), "Traceback") {
				t.Fatalf("%v %s", err, body)
			}
			answer, body := s.do("POST", "/v1/responses", ask+`,"store":false}`)
			if answer.StatusCode < 500 || !strings.Contains(string(body), `"error":{"message"`) {
				t.Fatalf("%d %s", answer.StatusCode, body)
			}
		})
	}
	s := newStand(t, engine.VLLM, gatetest.NewEngine(t, gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 4096 tokens.","code":400}}`)))
	answer, body := s.do("POST", "/v1/responses", ask+`,"stream":true,"store":false}`)
	if answer.StatusCode != 400 || !strings.Contains(string(body), `"param":"input","code":"context_length_exceeded"`) {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
}

// A client that would rather lose the begin of its conversation than be refused is not refused.
func TestTruncation(t *testing.T) {
	refuse := gatetest.Refuse(400, `{"error":{"message":"This model's maximum context length is 1000 tokens. However, your request has 2000 input tokens.","code":400}}`)
	e := gatetest.NewEngine(t, func(c net.Conn, n int) bool {
		if n%2 == 1 {
			return refuse(c, n)
		}
		return gatetest.Stream(says("Fits."))(c, n)
	})
	s := newStand(t, engine.VLLM, e)
	const long = `{"model":"acme/test","store":false,"input":[{"role":"user","content":"one one one one"},{"role":"assistant","content":"said"},{"role":"user","content":"two"}]`
	answer, body := s.do("POST", "/v1/responses", long+`,"truncation":"auto"}`)
	if answer.StatusCode != 200 || messages(t, e) != `[{"role":"user","content":"two"}]` {
		t.Fatalf("%d %s; the engine got %s", answer.StatusCode, body, messages(t, e))
	}
	if answer, body := s.do("POST", "/v1/responses", long+`}`); answer.StatusCode != 400 || !strings.Contains(string(body), "context_length_exceeded") {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
}

func TestResponsesRefuse(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	for _, tt := range []struct {
		body, param, code string
		status            int
	}{
		{`{"model":"nobody/knows","input":"x"}`, `"model"`, `"model_not_found"`, 404},
		{`{"model":"acme/test"}`, `"input"`, `"missing_required_parameter"`, 400},
		{`{"model":"acme/test","input":"x","max_output_tokens":100000}`, `"max_output_tokens"`, `null`, 400},
		{`{"model":"acme/test","input":"x","previous_response_id":"resp_1"}`, `"previous_response_id"`, `"previous_response_not_found"`, 404},
		{`{"model":"acme/test","input":"x","tools":[{"type":"mcp"}],"tool_choice":"required"}`, `"tool_choice"`, `null`, 400},
		{`{`, `null`, `"invalid_json"`, 400},
	} {
		answer, body := s.do("POST", "/v1/responses", tt.body)
		var got struct {
			Error struct{ Param, Code json.RawMessage }
		}
		if err := json.Unmarshal(body, &got); err != nil || answer.StatusCode != tt.status || string(got.Error.Param) != tt.param || string(got.Error.Code) != tt.code {
			t.Errorf("%s: %d %s", tt.body, answer.StatusCode, body)
		}
	}
}
