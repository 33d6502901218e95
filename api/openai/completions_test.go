package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
)

type textAnswer struct {
	ID, Object, Model string
	Choices           []struct {
		Index  int
		Text   string
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	}
}

// Text completions, whole and streamed: every prompt's every answer is there, whole equals what the stream says, and both
// are billed by the engine's count.
func TestTextCompletions(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	const request = `{"model":"acme/test","prompt":["once upon","the river"],"n":2,"max_tokens":12,"seed":7`
	answer, body := s.do("POST", "/v1/completions", request+`}`)
	var whole textAnswer
	if err := json.Unmarshal(body, &whole); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%d %v %s", answer.StatusCode, err, body)
	}
	if whole.Object != "text_completion" || !strings.HasPrefix(whole.ID, "cmpl-") || whole.Model != "acme/test" || len(whole.Choices) != 4 || whole.Usage.Completion != 48 {
		t.Errorf("%s", body)
	}
	if e := s.Log.Events()[0]; e.Dialect != "completion" || e.Usage.Generated() != 48 || e.Usage.Prompt() != whole.Usage.Prompt {
		t.Errorf("%+v", e)
	}
	_, body = s.do("POST", "/v1/completions", request+`,"stream":true,"stream_options":{"include_usage":true}}`)
	texts, finishes, usages := make([]string, 4), make([]int, 4), 0
	events := strings.Split(strings.TrimSpace(string(body)), "\n\n")
	if events[len(events)-1] != "data: [DONE]" {
		t.Fatalf("%s", body)
	}
	for _, e := range events[:len(events)-1] {
		var c textAnswer
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &c); err != nil || c.Object != "text_completion" {
			t.Fatalf("%s: %v", e, err)
		}
		if c.Usage != nil {
			usages++
		}
		for _, choice := range c.Choices {
			texts[choice.Index] += choice.Text
			if choice.Finish != nil {
				finishes[choice.Index]++
			}
		}
	}
	for i, c := range whole.Choices {
		if texts[i] != c.Text || finishes[i] != 1 || c.Text == "" || *c.Finish == "" {
			t.Errorf("choice %d: %q, %d finishes; whole %q", i, texts[i], finishes[i], c.Text)
		}
	}
	if usages != 1 {
		t.Errorf("%d usages", usages)
	}
	if n := len(s.Log.Events()); n != 2 {
		t.Errorf("%d events", n)
	}
	if _, body = s.do("POST", "/v1/completions", `{"model":"acme/test","prompt":[1,2,3]}`); json.Unmarshal(body, &whole) != nil || whole.Usage.Prompt != 3 || whole.Usage.Completion > 16 {
		t.Errorf("token ids: %s", body)
	}
	for _, bad := range []string{`"prompt":5`, `"prompt":[]`, `"prompt":["a",1]`, `"prompt":[-1]`, `"prompt":"a","echo":true`, `"prompt":"a","best_of":3`, `"prompt":"a","suffix":"x"`,
		`"prompt":"a","logprobs":3`, `"prompt":["a","b","c"],"n":6`, `"max_tokens":3`, `"prompt":"a","cache_salt":"x"`} {
		if answer, body := s.do("POST", "/v1/completions", `{"model":"acme/test",`+bad+`}`); answer.StatusCode != 400 || !strings.Contains(string(body), `"param":"`) {
			t.Errorf("%s: %d %s", bad, answer.StatusCode, body)
		}
	}
}

// An engine that has no such path is no failing engine: chats still go there.
func TestTextFromAnEngineWithoutIt(t *testing.T) {
	e := gatetest.NewEngine(t, gatetest.Refuse(404, `{"detail":"Not Found"}`))
	s := newStand(t, engine.OpenAI, e)
	for range 5 {
		if answer, body := s.do("POST", "/v1/completions", `{"model":"acme/test","prompt":"a"}`); answer.StatusCode != 400 || !strings.Contains(string(body), "unsupported_model") {
			t.Fatalf("%d %s", answer.StatusCode, body)
		}
	}
	e.Play(gatetest.Stream("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	if answer, body := s.do("POST", "/v1/chat/completions", hello+`}`); answer.StatusCode != 200 {
		t.Errorf("%d %s", answer.StatusCode, body)
	}
}
