package gate_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"millrace/internal/fault"
	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/catalogue"
	"millrace/serving/engine"
	"millrace/serving/engine/sim"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
)

var personalities = map[engine.Family]string{engine.VLLM: "vllm", engine.SGLang: "sglang", engine.TRTLLM: "trtllm", engine.OpenAI: "openai"}

// character is a gate before an engine with a personality.
func character(t *testing.T, family engine.Family) *gatetest.Stand {
	t.Helper()
	d, err := engine.Lookup(family)
	if err != nil {
		t.Fatal(err)
	}
	e, err := sim.New(sim.Config{Model: "inner", Context: 8192, Personality: personalities[family], BlockSize: cmp.Or(d.BlockSize(), 16)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	h := httptest.NewServer(e.Handler())
	t.Cleanup(func() { cancel(); running.Wait(); h.Close() })
	return gatetest.New(t, gatetest.Options{Family: family}, &gatetest.Engine{URL: h.URL})
}

func tell(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Whatever the engine, an answer is billed by its exact count, and what does not fit is told in OpenAI's words.
func TestEveryPersonalityIsServedAndBilled(t *testing.T) {
	for family := range personalities {
		t.Run(string(family), func(t *testing.T) {
			s := character(t, family)
			status, answer := tell(t, s.URL, `{"model":"`+gatetest.ModelName+`","messages":[{"role":"user","content":"`+strings.Repeat("a mill ", 1500)+`"}],"max_tokens":8000}`)
			var refused struct{ Error struct{ Code, Param string } }
			if family == engine.TRTLLM { // looks at the prompt only
				if status != http.StatusOK {
					t.Errorf("%d %s", status, answer)
				}
				status, answer = tell(t, s.URL, `{"model":"`+gatetest.ModelName+`","messages":[{"role":"user","content":"`+strings.Repeat("a mill ", 9000)+`"}]}`)
			}
			if err := json.Unmarshal([]byte(answer), &refused); err != nil || status != http.StatusBadRequest || refused.Error.Code != "context_length_exceeded" {
				t.Errorf("%d %s", status, answer)
			}

			s = character(t, family)
			status, answer = tell(t, s.URL, `{"model":"`+gatetest.ModelName+`","messages":[{"role":"user","content":"hello"}],"max_tokens":30}`)
			var got struct {
				Usage struct {
					Prompt     int64 `json:"prompt_tokens"`
					Completion int64 `json:"completion_tokens"`
				}
			}
			if err := json.Unmarshal([]byte(answer), &got); err != nil || status != http.StatusOK || got.Usage.Completion < 1 {
				t.Fatalf("%d %s", status, answer)
			}
			e := s.Event(t)
			if e.Ending != usage.Complete || e.Usage.Prompt() != got.Usage.Prompt || e.Usage.Generated() != got.Usage.Completion || e.Estimated {
				t.Errorf("%+v, the client was told %+v", e, got.Usage)
			}
		})
	}
}

// What an engine leaves out is named; a prompt of text goes to no engine that cannot salt it.
func TestLeftOutMembersAreNamed(t *testing.T) {
	s := character(t, engine.TRTLLM)
	chat, err := protocol.DecodeChat([]byte(`{"model":"` + gatetest.ModelName + `","messages":[{"role":"user","content":"hi"}],"top_k":5,"xtc_threshold":0.1,"regex":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: s.Dialect})
	if err != nil {
		t.Fatal(err)
	}
	if err := ticket.Serve(t.Context(), httptest.NewRecorder()); err != nil {
		t.Fatal(err)
	}
	if strings.Join(chat.Ignored, " ") != "xtc_threshold" {
		t.Errorf("ignored: %q", chat.Ignored)
	}
	text := func() *protocol.ChatRequest {
		q, err := protocol.DecodeCompletion([]byte(`{"model":"` + gatetest.ModelName + `","prompt":"once","max_tokens":5}`))
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	if _, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: text(), Dialect: s.Dialect}); !fault.Is(err, fault.Invalid) || fault.Of(err).Code != "unsupported_model" {
		t.Error(err)
	}
	other := character(t, engine.VLLM)
	s.Model.Units = append(s.Model.Units, other.Model.Units...)
	for range 20 {
		ticket, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: text(), Dialect: s.Dialect})
		if err != nil {
			t.Fatal(err)
		}
		if err := ticket.Serve(t.Context(), httptest.NewRecorder()); err != nil {
			t.Fatalf("%v", err)
		}
	}
	for _, e := range s.Log.Events()[1:] {
		if unit := e.Attempts[0].Unit; unit != other.Model.Units[0].ID {
			t.Errorf("a prompt of text went to %v of %v", unit, []*catalogue.Unit(s.Model.Units))
		}
	}
}
