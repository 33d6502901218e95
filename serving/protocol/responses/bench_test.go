package responses

import (
	"strconv"
	"strings"
	"testing"

	"millrace/serving/protocol"
)

// BenchmarkChunk is what one chunk of an engine's stream costs, in each dialect, whole and streamed.
func BenchmarkChunk(b *testing.B) {
	const n = 256
	chunks := make([][]byte, n)
	for i := range chunks {
		chunks[i] = []byte(`{"id":"x","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":100,"completion_tokens":` +
			strconv.Itoa(i+1) + `,"total_tokens":107}}`)
	}
	a := answersTo(b, ask+`}`)
	for _, bb := range []struct {
		name string
		make func() protocol.Answer
	}{
		{"responses stream", func() protocol.Answer { return a.New(true, params()) }}, {"responses whole", func() protocol.Answer { return a.New(false, params()) }},
		{"chat stream", func() protocol.Answer { return protocol.NewChatStream(params()) }}, {"chat whole", func() protocol.Answer { return protocol.NewChatWhole(params()) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			out := make([]byte, 0, 64<<10)
			for done := 0; done < b.N; done += n {
				answer := bb.make()
				for _, c := range chunks {
					var err error
					if out, _, err = answer.Add(out[:0], c); err != nil {
						b.Fatal(err)
					}
				}
				answer.Release()
			}
		})
	}
}

// BenchmarkRequest is what a request costs that an agent sends: 20 turns with tools, about 24 KiB.
func BenchmarkRequest(b *testing.B) {
	var items, messages []string
	text := strings.Repeat("some words of a conversation ", 10)
	for i := range 20 {
		id := strconv.Itoa(i)
		items = append(items, `{"type":"message","role":"user","content":[{"type":"input_text","text":"`+text+`"}]}`, `{"type":"function_call","call_id":"c`+id+`","name":"f","arguments":"{\"a\":1}"}`,
			`{"type":"function_call_output","call_id":"c`+id+`","output":"`+text+`"}`, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"`+text+`","annotations":[]}]}`)
		messages = append(messages, `{"role":"user","content":"`+text+`"}`, `{"role":"assistant","content":null,"tool_calls":[{"id":"c`+id+`","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]}`,
			`{"role":"tool","tool_call_id":"c`+id+`","content":"`+text+`"}`, `{"role":"assistant","content":"`+text+`"}`)
	}
	const params = `{"type":"object","properties":{"a":{"type":"integer","description":"A number of something that somebody needs."}}}`
	request := []byte(`{"model":"m","stream":true,"input":[` + strings.Join(items, ",") + `],"tools":[{"type":"function","name":"f","parameters":` + params + `}]}`)
	chat := []byte(`{"model":"m","stream":true,"messages":[` + strings.Join(messages, ",") + `],"tools":[{"type":"function","function":{"name":"f","parameters":` + params + `}}]}`)
	b.Run("responses", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(request)))
		for b.Loop() {
			q, err := Decode(request)
			if err == nil {
				_, err = q.Chat(&Context{})
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("chat", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(chat)))
		for b.Loop() {
			if _, err := protocol.DecodeChat(chat); err != nil {
				b.Fatal(err)
			}
		}
	})
}
