package sim

import (
	"net/http"
	"strconv"

	"millrace/internal/fault"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/scan"
)

// vllmVoice is vLLM 0.33's. Unlike vLLM it tells cached tokens on every chunk.
type vllmVoice struct{}

func (vllmVoice) traits() traits {
	return traits{continuous: true, metricsPath: "/metrics", shape: kvevent.Tagged, shutsForResize: true}
}

func (vllmVoice) opening() string { return `{"role":"assistant","content":""}` }

func (vllmVoice) text(b []byte, p part, json string) []byte {
	if p == reasoning {
		b = append(b, `{"reasoning":"`...)
	} else {
		b = append(b, `{"content":"`...)
	}
	return append(append(b, json...), `"}`...)
}

func (vllmVoice) call(b []byte, c callPiece) []byte {
	b = append(b, `{"content":null,"tool_calls":[{`...)
	if !c.first {
		b = strconv.AppendInt(append(b, `"index":`...), int64(c.index), 10)
		return append(append(append(b, `,"function":{"arguments":"`...), c.arguments...), `"}}]}`...)
	}
	b = append(append(append(b, `"id":"`...), c.id...), `","type":"function","index":`...)
	b = strconv.AppendInt(b, int64(c.index), 10)
	b = scan.Quote(append(b, `,"function":{"name":`...), c.name)
	return append(b, `,"arguments":""}}]}`...)
}

func (vllmVoice) going() string { return `,"logprobs":null,"finish_reason":null,"token_ids":null}]` }

func (vllmVoice) end(b []byte, reason, stop string) []byte {
	b = append(append(append(b, `,"logprobs":null,"finish_reason":"`...), reason...), `","stop_reason":`...)
	if stop == "" {
		b = append(b, "null"...)
	} else {
		b = scan.Quote(b, stop)
	}
	return append(b, `,"token_ids":null}]`...)
}

func (vllmVoice) usage(b []byte, n counted) []byte {
	b = n.append(b)
	if n.thinks {
		b = n.appendReasoning(b)
	}
	return append(b, '}')
}

func (vllmVoice) message(text, thought string, calls []wholeCall) map[string]any {
	m := message(text, calls)
	m["refusal"], m["reasoning"] = nil, thoughtOf(thought)
	return m
}

func (vllmVoice) stopMember() string { return "stop_reason" }

// takes ignores what is unknown, and other engines' names for what it knows.
func (vllmVoice) takes(_ *request, key string, _ []byte) (bool, error) {
	switch key {
	case "rid", "regex", "ebnf", "routed_dp_rank", "data_parallel_rank":
		return false, nil
	}
	return true, nil
}

func (vllmVoice) overflow(q *request, prompt, context int) error {
	switch {
	case q.maxTokens > context:
		return invalid("max_tokens", "max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens. (parameter=max_tokens, value=%d)",
			q.maxTokens, context, q.maxTokens)
	case prompt >= context:
		return invalid("input_tokens", "This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages. (parameter=input_tokens, value=%d)",
			context, prompt, prompt)
	case prompt+q.maxTokens > context:
		return invalid("input_tokens", "You passed %d input tokens and requested %d output tokens. However, the model's context length is only %d tokens, resulting in a maximum input length of %d. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
			prompt, q.maxTokens, context, context-q.maxTokens, prompt)
	}
	return nil
}

func (vllmVoice) refusal(status int, f *fault.Fault) any {
	kind := map[fault.Kind]string{fault.Invalid: "BadRequestError", fault.NotFound: "NotFoundError"}[f.Kind]
	if f.Code != "" {
		kind = f.Code
	}
	if kind == "" {
		kind = http.StatusText(status)
	}
	return map[string]any{"error": map[string]any{"message": f.Message, "type": kind, "param": orNull(f.Param), "code": status}}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (vllmVoice) routes(e *Engine, m *http.ServeMux) {
	m.HandleFunc("POST /v1/chat/completions/render", e.serveRender)
	m.HandleFunc("POST /tokenize", e.serveTokenize)
	m.HandleFunc("POST /reset_prefix_cache", e.serveReset)
	e.vllmVerbs(m)
	m.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": "simulated"})
	})
}

func (vllmVoice) metric(name string) string { return "vllm:" + name }
