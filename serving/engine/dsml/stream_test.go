package dsml_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"millrace/serving/engine/dsml"
	"millrace/serving/protocol"
)

// turn reads an engine's chunks by way of a Stream and gives what a dialect would show. It fails when the two forms of the
// answer that protocol knows differ.
func turn(t *testing.T, s *dsml.Stream, events ...string) (answer, *protocol.Turn) {
	t.Helper()
	var turn protocol.Turn
	turn.Reset(&protocol.AnswerParams{ID: "id"})
	stream := protocol.NewChatStream(protocol.AnswerParams{ID: "id", Model: "m"})
	defer stream.Release()
	for _, event := range events {
		chunk, err := s.Add(nil, []byte(event))
		if err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if string(chunk) != "[DONE]" && !json.Valid(chunk) {
			t.Fatalf("%s became %s", event, chunk)
		}
		if _, _, err := turn.Add(nil, chunk, protocol.Silent{}); err != nil {
			t.Fatalf("%s: %v", chunk, err)
		}
		if _, _, err := stream.Add(nil, chunk); err != nil {
			t.Fatalf("%s: %v", chunk, err)
		}
	}
	a := answer{Finish: turn.Finish}
	for _, p := range turn.Parts {
		switch p.Kind {
		case protocol.Reasoning:
			a.Reasoning += unquote(t, p.Text)
		case protocol.Text:
			a.Content += unquote(t, p.Text)
		case protocol.Call:
			a.Calls = append(a.Calls, call{unquote(t, p.Name), unquote(t, p.Text)})
		}
	}
	if stream.Complete() != (turn.Finish != "") {
		t.Error("the stream and the turn differ on whether the answer is complete")
	}
	return a, &turn
}

func unquote(t *testing.T, inside []byte) (s string) {
	t.Helper()
	if err := json.Unmarshal([]byte(`"`+string(inside)+`"`), &s); err != nil {
		t.Fatalf("%s: %v", inside, err)
	}
	return s
}

// event is one chunk of a raw completion.
func event(text, finish string, tokens int) string {
	raw, _ := json.Marshal(text) // strings always marshal
	reason := "null"
	if finish != "" {
		reason = `"` + finish + `"`
	}
	usage := "null"
	if tokens >= 0 {
		usage = fmt.Sprintf(`{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}`, tokens, 10+tokens)
	}
	return fmt.Sprintf(`{"id":"x","object":"text_completion","created":7,"model":"m","choices":[{"index":0,"text":%s,"logprobs":null,"finish_reason":%s}],"usage":%s}`, raw, reason, usage)
}

func events(finish string, texts ...string) (list []string) {
	for i, text := range texts {
		list = append(list, event(text, "", i+1))
	}
	return append(list, event("", finish, len(texts)), "[DONE]")
}

// The recorded answers of deepseek-recipe, whole. Ids are random, an empty delta is none, and usage is the engine's.
func TestTheGoldenAnswers(t *testing.T) {
	var cases []struct {
		Name    string          `json:"name"`
		Texts   []string        `json:"texts"`
		Finish  string          `json:"finish"`
		Request json.RawMessage `json:"request"`
		Message struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function call   `json:"function"`
			} `json:"tool_calls"`
		} `json:"message"`
		Reason string `json:"reason"`
	}
	load(t, "golden.json", &cases)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			p, err := dsml.Render(c.Request, dsml.Options{ThinkByDefault: true})
			if err != nil {
				t.Fatal(err)
			}
			want := answer{Reasoning: c.Message.Reasoning, Content: c.Message.Content, Finish: c.Reason}
			for _, k := range c.Message.ToolCalls {
				want.Calls = append(want.Calls, k.Function)
			}
			got, u := turn(t, dsml.NewStream(p.Parse, nil), events(c.Finish, c.Texts...)...)
			if !equal(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			for i := range u.Parts {
				if n := len(c.Message.ToolCalls); u.Parts[i].Kind == protocol.Call && len(u.Parts[i].ID) != len(c.Message.ToolCalls[n-1].ID) {
					t.Errorf("the id %s is not like %s", u.Parts[i].ID, c.Message.ToolCalls[n-1].ID)
				}
			}
		})
	}
}

func TestAChunkBecomesOneChunk(t *testing.T) {
	const calls = "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">x\"</｜DSML｜ parameter></｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"g\"></｜DSML｜ invoke></｜DSML｜ calls>"
	s := dsml.NewStream(dsml.ParseOptions{Start: dsml.ReasoningStart, Tools: true}, func(call int) string { return fmt.Sprintf("id%d", call) })
	for _, c := range []struct{ event, want string }{
		{event("Hm", "", 1), `{"object":"chat.completion.chunk","created":7,"choices":[{"index":0,"delta":{"reasoning_content":"Hm"},"finish_reason":null}],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11,"completion_tokens_details":{"reasoning_tokens":1}}}`},
		{event(".\n</think>\nAb", "", 4), `{"object":"chat.completion.chunk","created":7,"choices":[{"index":0,"delta":{"reasoning_content":".","content":"Ab"},"finish_reason":null}],"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"completion_tokens_details":{"reasoning_tokens":2}}}`},
		{event("c"+calls, "", 9), `{"object":"chat.completion.chunk","created":7,"choices":[{"index":0,"delta":{"content":"c","tool_calls":[{"index":0,"id":"id0","type":"function","function":{"name":"f","arguments":"{\"a\": \"x\\\"\"}"}},{"index":1,"id":"id1","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":9,"total_tokens":19,"completion_tokens_details":{"reasoning_tokens":2}}}`},
		{event("more", "stop", 10), `{"object":"chat.completion.chunk","created":7,"choices":[{"index":0,"delta":{},"finish_reason":null}],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20,"completion_tokens_details":{"reasoning_tokens":2}}}`},
		{`{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10,"completion_tokens_details":{"reasoning_tokens":5}}}`, `{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":10,"completion_tokens_details":{"reasoning_tokens":5}}}`},
		{"[DONE]", "[DONE]"},
	} {
		got, err := s.Add(nil, []byte(c.event))
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
		}
	}
	if !s.Done() {
		t.Error("not done")
	}
}

func TestAStopSequenceEndsTheAnswer(t *testing.T) {
	s := dsml.NewStream(dsml.ParseOptions{Stops: []string{"END"}}, nil)
	if s.Done() {
		t.Error("done before it began")
	}
	got, u := turn(t, s, event("Hello E", "", -1), event("ND of it", "", -1))
	if want := (answer{Content: "Hello ", Finish: "stop"}); !equal(got, want) || string(u.Stop) != "END" || !s.Done() {
		t.Errorf("got %+v, stopped by %q, done %v", got, u.Stop, s.Done())
	}
}

func TestReasoningIsCountedWhereChunksTell(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		want   string
	}{
		{"every chunk tells", []string{event("a b", "", 3), event("</think>", "", 4), event("c", "", 5), event("", "stop", 5)}, `"reasoning_tokens":4`},
		{"cut while thinking", []string{event("a b", "", 3), event("", "length", 7)}, `"reasoning_tokens":7`},
		{"only the last tells", []string{event("a b</think>c", "", -1), event("", "stop", 5)}, ""},
		{"two choices", []string{event("a b", "", 3), strings.Replace(event("a</think>b", "", 7), `"index":0`, `"index":1`, 1), event("", "stop", 5)}, ""},
	} {
		s := dsml.NewStream(dsml.ParseOptions{Start: dsml.ReasoningStart}, nil)
		var last []byte
		for _, e := range c.events {
			var err error
			if last, err = s.Add(nil, []byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(last); !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "reasoning_tokens") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestWhatIsNoChunk(t *testing.T) {
	s := dsml.NewStream(dsml.ParseOptions{}, nil)
	for _, bad := range []string{``, `x`, `[]`, `{}`, `{"choices":{}}`, `{"choices":[{"text":7}]}`, `{"choices":[{"index":-1,"text":""}]}`, `{"choices":[{"index":128,"text":""}]}`, `{"choices":[{"index":"0"}]}`} {
		if _, err := s.Add(nil, []byte(bad)); err != dsml.ErrMalformed {
			t.Errorf("%s: %v", bad, err)
		}
	}
	const failure = `{"error":{"message":"out of memory","code":500}}`
	if got, err := s.Add(nil, []byte(failure)); err != nil || string(got) != failure {
		t.Errorf("got %s, %v", got, err)
	}
}

// An engine that goes away has not finished: nothing says that the answer is complete.
func TestAStreamThatBreaksOffIsNotFinished(t *testing.T) {
	got, _ := turn(t, dsml.NewStream(dsml.ParseOptions{Tools: true}, nil), event("Hello\n\n<｜DS", "", 1), "[DONE]")
	if got.Finish != "" || got.Content != "Hello" {
		t.Errorf("got %+v", got)
	}
}

func TestTheRequestOfTheEngine(t *testing.T) {
	const body = `{"model":"public","messages":[{"role":"user","content":[{"type":"text","text":"a<think>"},{"type":"image_url","image_url":{"url":"data:x"}}]}],"thinking":{"type":"disabled"},"temperature":0.5,"stop":"x","seed":null,"user":"u","n":2,"stream":false}`
	p, err := dsml.Render([]byte(body), dsml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"model":"flash","request_id":"r1","segments":[{"special":"<｜begin▁of▁sentence｜>"},{"special":"<｜User｜>"},{"text":"a<think>\n\n"},{"special":"<｜image｜>"},{"special":"<｜Assistant｜>"},{"special":"</think>"}],"images":["data:x"],"temperature":0.5,"n":2,"max_tokens":64,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
	if got := p.AppendRequest(nil, []byte(body), dsml.Request{Model: "flash", ID: "r1", MaxTokens: 64}); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
