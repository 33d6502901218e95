package sim

import (
	"net/http"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/scan"
)

// sglangVoice is SGLang 0.5.23's, started with --enable-cache-report and --schedule-low-priority-values-first.
type sglangVoice struct{}

// sglangEnd is the id of the token that ends an answer by itself.
const sglangEnd = "2"

func (sglangVoice) traits() traits {
	return traits{apart: true, emptyDelta: `{"reasoning_content":null}`, continuous: true, metricsPath: "/metrics", shape: kvevent.Named, stopsByToken: sglangEnd}
}

func (sglangVoice) opening() string {
	return `{"reasoning_content":null,"role":"assistant","content":""}`
}

func (sglangVoice) text(b []byte, p part, json string) []byte {
	if p == reasoning {
		b = append(b, `{"reasoning_content":"`...)
	} else {
		b = append(b, `{"reasoning_content":null,"content":"`...)
	}
	return append(append(b, json...), `"}`...)
}

func (sglangVoice) call(b []byte, c callPiece) []byte {
	b = append(b, `{"role":null,"content":null,"reasoning_content":null,"tool_calls":[{"id":`...)
	if c.first {
		b = append(append(append(b, `"call_`...), strings.ReplaceAll(c.id, "-", "")...), '"')
	} else {
		b = append(b, "null"...)
	}
	b = strconv.AppendInt(append(b, `,"index":`...), int64(c.index), 10)
	b = append(b, `,"type":"function","function":{"name":`...)
	if c.first {
		b = scan.Quote(b, c.name)
	} else {
		b = append(b, "null"...)
	}
	return append(append(append(b, `,"arguments":"`...), c.arguments...), `"}}]}`...)
}

func (sglangVoice) going() string {
	return `,"logprobs":null,"finish_reason":null,"matched_stop":null}]`
}

func (sglangVoice) end(b []byte, reason, stop string) []byte {
	b = append(append(append(b, `,"logprobs":null,"finish_reason":"`...), reason...), `","matched_stop":`...)
	switch {
	case stop != "":
		b = scan.Quote(b, stop)
	case reason == "length":
		b = append(b, "null"...)
	default:
		b = append(b, sglangEnd...)
	}
	return append(b, "}]"...)
}

func (sglangVoice) usage(b []byte, n counted) []byte {
	b = strconv.AppendInt(append(n.append(b), `,"reasoning_tokens":`...), n.reasoning, 10)
	if n.reasoning == 0 {
		return append(b, `,"completion_tokens_details":null}`...)
	}
	return append(n.appendReasoning(b), '}')
}

func (sglangVoice) message(text, thought string, calls []wholeCall) map[string]any {
	m := message(text, calls)
	m["content"], m["reasoning_content"] = text, thoughtOf(thought)
	return m
}

func (sglangVoice) stopMember() string { return "matched_stop" }

func (sglangVoice) takes(q *request, key string, value []byte) (bool, error) {
	switch key {
	case "request_id", "structured_outputs", "kv_transfer_params":
		return false, nil
	case "regex":
		q.format.Type, q.format.Regex = "regex", value
	case "ebnf":
		q.format.Type, q.format.EBNF = "ebnf", value
	}
	return true, nil
}

func (sglangVoice) overflow(q *request, prompt, context int) error {
	switch {
	case prompt >= context:
		return fault.New(fault.Invalid, "The input (%d tokens) is longer than the model's context length (%d tokens).", prompt, context)
	case prompt+q.maxTokens > context:
		return fault.New(fault.Invalid, "Requested token count exceeds the model's maximum context length of %d tokens. You requested a total of %d tokens: %d tokens from the input messages and %d tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
			context, prompt+q.maxTokens, prompt, q.maxTokens)
	}
	return nil
}

// refusal has no envelope, and never a param.
func (sglangVoice) refusal(status int, f *fault.Fault) any {
	kind := "BadRequestError"
	if status >= http.StatusInternalServerError {
		kind = "InternalServerError"
	}
	return map[string]any{"object": "error", "message": f.Message, "type": kind, "param": nil, "code": status}
}

func (sglangVoice) routes(e *Engine, m *http.ServeMux) {
	fine := func(http.ResponseWriter, *http.Request) {}
	m.HandleFunc("GET /health", fine)
	m.HandleFunc("GET /ping", fine)
	m.HandleFunc("POST /tokenize", e.serveTokenize)
	m.HandleFunc("POST /v1/tokenize", e.serveTokenize)
	m.HandleFunc("POST /flush_cache", e.serveReset)
	e.sglangVerbs(m)
	m.HandleFunc("GET /v1/loads", func(w http.ResponseWriter, _ *http.Request) {
		var loads []any
		for _, r := range e.active() {
			running, queued, tokens, usage := r.sched.load()
			loads = append(loads, map[string]any{"dp_rank": r.n, "num_running_reqs": running, "num_waiting_reqs": queued,
				"num_waiting_uncached_tokens": tokens, "token_usage": usage})
		}
		writeJSON(w, http.StatusOK, map[string]any{"version": "simulated", "loads": loads})
	})
}

// metric gives SGLang's names.
func (sglangVoice) metric(name string) string {
	switch name {
	case "num_requests_running":
		return "sglang:num_running_reqs"
	case "num_requests_waiting":
		return "sglang:num_queue_reqs"
	case "kv_cache_usage_perc":
		return "sglang:token_usage"
	case "prefix_cache_hits_total":
		return "sglang:cached_tokens_total"
	case "prefix_cache_queries_total":
		return "sglang:prompt_tokens_total"
	case "generation_tokens_total", "time_to_first_token_seconds":
		return "sglang:" + name
	}
	return ""
}
