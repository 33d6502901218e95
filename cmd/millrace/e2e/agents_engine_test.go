package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// scriptedEngine is an OpenAI-compatible engine that plays a model for one agent: it calls the agent's shell, and then says
// what the shell printed. The word is never in a request before the shell has put it together.
type scriptedEngine struct {
	url, first, second string
	calls, answers     atomic.Int64 // turns: the call of the shell, the answer to its result
}

// scriptedRequest is what the engine reads of a request.
type scriptedRequest struct {
	Stream   bool
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
	Tools []struct{ Function struct{ Name string } }
}

// shells are the agents' tools that run a command, with the arguments that each wants for one.
var shells = map[string]func(command string) any{
	"Bash":          func(c string) any { return map[string]string{"command": c, "description": "Print a word"} },
	"bash":          func(c string) any { return map[string]string{"command": c, "description": "Print a word"} },
	"exec_command":  func(c string) any { return map[string]string{"cmd": c} },
	"shell_command": func(c string) any { return map[string]string{"command": c} },
}

func startScriptedEngine(t *testing.T) *scriptedEngine {
	t.Helper()
	e := &scriptedEngine{first: "mill" + rand.Text(), second: "race" + rand.Text()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"scripted","object":"model","max_model_len":200000}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in scriptedRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Errorf("the engine cannot read a request: %v", err)
			http.Error(w, `{"error":{"message":"unreadable"}}`, http.StatusBadRequest)
			return
		}
		e.write(w, in)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	e.url = server.URL
	return e
}

// said is the last answer's text, when the agent has brought the shell's result.
func (e *scriptedEngine) said() string { return "The shell printed " + e.first + e.second }

// turn gives the message that answers a request, and how it ends.
func (e *scriptedEngine) turn(in scriptedRequest) (message map[string]any, finish string) {
	for _, m := range in.Messages {
		if m.Role != "tool" {
			continue
		}
		if !strings.Contains(string(m.Content), e.first+e.second) {
			return map[string]any{"content": "The shell failed: " + string(m.Content)}, "stop"
		}
		e.answers.Add(1)
		return map[string]any{"content": e.said()}, "stop"
	}
	for _, tool := range in.Tools {
		if arguments, ok := shells[tool.Function.Name]; ok {
			e.calls.Add(1)
			raw, _ := json.Marshal(arguments("printf '%s%s' " + e.first + " " + e.second)) // of strings: it cannot fail
			call := map[string]any{"index": 0, "id": "call_1", "type": "function", "function": map[string]any{"name": tool.Function.Name, "arguments": string(raw)}}
			return map[string]any{"content": nil, "tool_calls": []any{call}}, "tool_calls"
		}
	}
	return map[string]any{"content": "A word"}, "stop" // a title, or the engine's own readiness
}

func (e *scriptedEngine) write(w http.ResponseWriter, in scriptedRequest) {
	message, finish := e.turn(in)
	message["role"] = "assistant"
	choice := map[string]any{"index": 0, "finish_reason": finish}
	usage := map[string]int{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
	answer := map[string]any{"id": "chatcmpl-1", "created": 1, "model": "scripted", "choices": []any{choice}}
	if !in.Stream {
		choice["message"], answer["usage"], answer["object"] = message, usage, "chat.completion"
		_ = json.NewEncoder(w).Encode(answer) // the reader may have gone
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	answer["object"] = "chat.completion.chunk"
	pieces := []map[string]any{{"delta": message, "finish_reason": nil}, {"delta": map[string]any{}, "finish_reason": finish}}
	for _, p := range pieces {
		p["index"] = 0
		answer["choices"] = []any{p}
		event(w, answer)
	}
	answer["choices"], answer["usage"] = []any{}, usage
	event(w, answer)
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func event(w http.ResponseWriter, chunk any) {
	b, _ := json.Marshal(chunk) // of strings and numbers: it cannot fail
	fmt.Fprintf(w, "data: %s\n\n", b)
}
