package sim

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/fault"
)

// openaiVoice is a provider's with OpenAI's dialect, as OpenAI itself speaks it: reasoning is counted and not shown, usage
// comes at the end alone, and what it does not know it refuses by name.
type openaiVoice struct{ vllmVoice }

func (openaiVoice) traits() traits { return traits{apart: true, emptyDelta: "{}", nullUsage: true} }

func (openaiVoice) opening() string { return `{"role":"assistant","content":"","refusal":null}` }

func (openaiVoice) text(b []byte, p part, json string) []byte {
	if p == reasoning {
		return b
	}
	return append(append(append(b, `{"content":"`...), json...), `"}`...)
}

func (openaiVoice) going() string { return `,"logprobs":null,"finish_reason":null}]` }

func (openaiVoice) end(b []byte, reason, _ string) []byte {
	return append(append(append(b, `,"logprobs":null,"finish_reason":"`...), reason...), `"}]`...)
}

func (openaiVoice) usage(b []byte, n counted) []byte {
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), n.prompt, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), n.generated, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), n.prompt+n.generated, 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), n.cached, 10)
	b = strconv.AppendInt(append(b, `,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":`...), n.reasoning, 10)
	return append(b, `,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`...)
}

func (openaiVoice) message(text, _ string, calls []wholeCall) map[string]any {
	m := message(text, calls)
	m["refusal"], m["annotations"] = nil, []any{}
	return m
}

func (openaiVoice) stopMember() string { return "" }

var openaiMembers = strings.Fields(`messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
	metadata modalities n parallel_tool_calls prediction presence_penalty prompt prompt_cache_key reasoning_effort response_format safety_identifier
	seed service_tier stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
	best_of echo suffix`)

func (openaiVoice) takes(_ *request, key string, value []byte) (bool, error) {
	if !slices.Contains(openaiMembers, key) {
		return false, unknownParameter(key)
	}
	if key == "stream_options" {
		if err := onlyMembers(value, key, "include_usage", "include_obfuscation"); err != nil {
			return false, unknownParameter("stream_options.continuous_usage_stats")
		}
	}
	return true, nil
}

func unknownParameter(name string) error {
	return fault.New(fault.Invalid, "Unknown parameter: '%s'.", name).WithParam(name).WithCode("unknown_parameter")
}

func (openaiVoice) overflow(q *request, prompt, context int) error {
	if prompt < context && prompt+q.maxTokens <= context {
		return nil
	}
	return fault.New(fault.Invalid, "This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the messages, %d in the completion). Please reduce the length of the messages or completion.",
		context, prompt+q.maxTokens, prompt, q.maxTokens).WithParam("messages").WithCode("context_length_exceeded")
}

func (openaiVoice) refusal(status int, f *fault.Fault) any {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": f.Message, "type": kind, "param": orNull(f.Param), "code": orNull(f.Code)}}
}

func (openaiVoice) routes(*Engine, *http.ServeMux) {}

func (openaiVoice) metric(string) string { return "" }
