package gate_test

import (
	"net/http"
	"testing"

	"millrace/internal/ids"
	"millrace/serving/gate"
	"millrace/serving/gate/gatetest"
	"millrace/serving/protocol"
)

// However an engine words it, the length of a prompt that is too long is known.
func TestOverflowsTellThePrompt(t *testing.T) {
	for body, want := range map[string]int64{
		`{"error":{"message":"This model's maximum context length is 64 tokens. However, your request has 5000 input tokens. Please reduce the length of the input messages."}}`:                                       5000,
		`{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion)."}`:                                                         4000,
		`{"error":{"message":"The decoder prompt (length 5000) is longer than the maximum model length of 4096."}}`:                                                                                                    5000,
		`{"message":"Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion."}`: 4000,
		`{"error":{"message":"The input (5000 tokens) is longer than the model's context length (4096 tokens)."}}`:                                                                                                     5000,
		`{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}`:                                                     5000,
		`{"object":"error","message":"The sum of prompt length (5000.0), query length (0) should not exceed max_num_tokens (4096)","type":"BadRequestError","param":null,"code":400}`:                                  5000,
		`{"error":{"message":"BadRequestError: This model's maximum context length is exceeded."}}`:                                                                                                                    0,
		`{"error":{"message":"It is too long.","code":"context_length_exceeded"}}`:                                                                                                                                     0,
		`{"error":{"message":"max_tokens=99 cannot be greater than max_model_len=64","code":400}}`:                                                                                                                     0,
	} {
		s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, gatetest.Refuse(http.StatusBadRequest, body)))
		chat, err := protocol.DecodeChat([]byte(`{"model":"` + gatetest.ModelName + `","messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: s.Dialect})
		if err != nil {
			t.Fatal(err)
		}
		o, ok := gate.OverflowOf(ticket.Serve(t.Context(), nil))
		if !ok || o.Prompt != want || o.Window != s.Model.Context {
			t.Errorf("%s: %v %+v, want %d", body, ok, o, want)
		}
	}
}

// What an engine quotes of a client's words is not the engine's own.
func TestQuotedWordsAreNoOverflow(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"Invalid role 'maximum context length'.","code":400}}`,
		`{"error":{"message":"1 validation error: input_value='This model\u0027s maximum context length is 5', input_type=str","type":"BadRequestError"}}`,
		`{"detail":[{"loc":["body","messages"],"input":"context length"}]}`,
		`{"error":{"message":"Unknown tool prompt is too long","type":"max_model_len"}}`,
	} {
		s := gatetest.New(t, gatetest.Options{Direct: true}, gatetest.NewEngine(t, gatetest.Refuse(http.StatusBadRequest, body)))
		chat, err := protocol.DecodeChat([]byte(`{"model":"` + gatetest.ModelName + `","messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := s.Gate.Admit(t.Context(), gate.Request{ID: ids.New(), Caller: s.Caller, Chat: chat, Dialect: s.Dialect})
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := gate.OverflowOf(ticket.Serve(t.Context(), nil)); ok {
			t.Errorf("%s: %+v", body, o)
		}
	}
}
