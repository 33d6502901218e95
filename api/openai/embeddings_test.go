package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/gate/gatetest"
)

// Texts become vectors, and what is billed is their tokens, once.
func TestEmbeddings(t *testing.T) {
	s := newStand(t, engine.Sim, simulated(t))
	answer, body := s.do("POST", "/v1/embeddings", `{"model":"acme/test","input":["the river","the mill","the river"],"dimensions":8,"user":"u"}`)
	var got struct {
		Object, Model string
		Data          []struct {
			Index     int
			Embedding []float64
		}
		Usage struct {
			Prompt int64 `json:"prompt_tokens"`
			Total  int64 `json:"total_tokens"`
		}
	}
	if err := json.Unmarshal(body, &got); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%d %v %s", answer.StatusCode, err, body)
	}
	if len(got.Data) != 3 || len(got.Data[0].Embedding) != 8 || got.Data[0].Embedding[1] != got.Data[2].Embedding[1] || got.Data[0].Embedding[1] == got.Data[1].Embedding[1] ||
		got.Object != "list" || got.Model != "acme/test" || got.Usage.Prompt == 0 || got.Usage.Total != got.Usage.Prompt || strings.Contains(string(body), "inner") {
		t.Errorf("%s", body)
	}
	if w := answer.Header.Get("Millrace-Warning"); w != "ignored: user" {
		t.Errorf("warning %q", w)
	}
	e := s.Event(t)
	want := usage.Vector{usage.Input: got.Usage.Prompt, usage.Requests: 1}
	if e.Usage != want || e.Ending != usage.Complete || e.Dialect != "embedding" || e.Charge == 0 {
		t.Errorf("%+v", e)
	}
	for _, bad := range []string{`"input":5`, `"input":[]`, `"encoding_format":"hex","input":"a"`, `"dimensions":0,"input":"a"`, `"user":"u"`, `"input":"a","cache_salt":"x"`} {
		if answer, body := s.do("POST", "/v1/embeddings", `{"model":"acme/test",`+bad+`}`); answer.StatusCode != 400 || !strings.Contains(string(body), `"param":"`) {
			t.Errorf("%s: %d %s", bad, answer.StatusCode, body)
		}
	}
}

func TestEmbeddingsThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		script gatetest.Script
		status int
	}{
		"no such API":    {gatetest.Refuse(404, `{"detail":"Not Found"}`), 400},
		"a stream":       {gatetest.Stream("data: {}\n\n"), 502},
		"no JSON":        {gatetest.Refuse(200, `<html>`), 502},
		"no vectors":     {gatetest.Refuse(200, `{"usage":{"prompt_tokens":3}}`), 502},
		"cut in between": {gatetest.Cut(`{"data":[`, 5), 502},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, engine.OpenAI, gatetest.NewEngine(t, tt.script))
			answer, body := s.do("POST", "/v1/embeddings", `{"model":"acme/test","input":"a"}`)
			if answer.StatusCode != tt.status || strings.Contains(string(body), "html") {
				t.Errorf("%d %s", answer.StatusCode, body)
			}
			if e := s.Event(t); e.Charge != 0 || e.Ending != usage.FailedUnbilled {
				t.Errorf("%+v", e)
			}
		})
	}
	// An engine that does not count: the texts' length is the estimate.
	s := newStand(t, engine.OpenAI, gatetest.NewEngine(t, gatetest.Refuse(200, `{"data":[{"embedding":[1]}]}`, "Content-Type: application/json\r\n")))
	if answer, body := s.do("POST", "/v1/embeddings", `{"model":"acme/test","input":"a river of texts"}`); answer.StatusCode != 200 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	if e := s.Event(t); !e.Estimated || e.Usage[usage.Input] == 0 {
		t.Errorf("%+v", e)
	}
}
