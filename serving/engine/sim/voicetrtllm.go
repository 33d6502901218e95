package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// trtllmVoice is TensorRT-LLM's trtllm-serve: it leaves nulls out and refuses what it does not know.
type trtllmVoice struct{ vllmVoice }

func (trtllmVoice) traits() traits {
	return traits{continuous: true, lineEnd: " ", metricsPath: "/prometheus/metrics", polled: true}
}

func (trtllmVoice) opening() string { return `{"role":"assistant"}` }

func (trtllmVoice) text(b []byte, p part, json string) []byte {
	if p == reasoning {
		return append(append(append(b, `{"content":"","reasoning_content":"`...), json...), `"}`...)
	}
	return append(append(append(b, `{"content":"`...), json...), `","reasoning_content":""}`...)
}

// call has an id and a name once; a call that was forced by name has no id, its choice's index, and the name every time.
func (trtllmVoice) call(b []byte, c callPiece) []byte {
	if c.forced {
		b = append(b, `{"tool_calls":[{"type":"function","index":`...)
		b = scan.Quote(append(strconv.AppendInt(b, int64(c.choice), 10), `,"function":{"name":`...), c.name)
		return append(append(append(b, `,"arguments":"`...), c.arguments...), `"}}]}`...)
	}
	b = append(b, `{"content":"","reasoning_content":"","tool_calls":[{`...)
	if c.first {
		b = append(append(append(b, `"id":"`...), c.id...), `",`...)
	}
	b = strconv.AppendInt(append(b, `"type":"function","index":`...), int64(c.index), 10)
	b = append(b, `,"function":{`...)
	if c.first {
		b = append(scan.Quote(append(b, `"name":`...), c.name), ',')
	}
	return append(append(append(b, `"arguments":"`...), c.arguments...), `"}}]}`...)
}

func (trtllmVoice) going() string { return "}]" }

func (trtllmVoice) end(b []byte, reason, stop string) []byte {
	b = append(append(append(b, `,"finish_reason":"`...), reason...), '"')
	if stop != "" {
		b = scan.Quote(append(b, `,"stop_reason":`...), stop)
	}
	return append(b, "}]"...)
}

func (trtllmVoice) usage(b []byte, n counted) []byte { return append(n.append(b), '}') }

func (trtllmVoice) message(text, thought string, calls []wholeCall) map[string]any {
	m := message(text, calls)
	m["content"], m["reasoning_content"] = text, thought
	return m
}

// trtllmMembers are those of its request.
var trtllmMembers = strings.Fields(`messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n
	presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice parallel_tool_calls user
	reasoning_effort thinking_token_budget best_of use_beam_search top_k top_p_min min_p repetition_penalty length_penalty early_stopping
	stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens
	echo add_generation_prompt add_special_tokens documents chat_template chat_template_kwargs priority`)

// disaggMembers are those of disaggregated_params.
var disaggMembers = strings.Fields(`request_type first_gen_tokens first_gen_log_probs first_gen_logits ctx_request_id encoded_opaque_state draft_tokens
	disagg_request_id ctx_dp_rank ctx_info_endpoint schedule_style ctx_usage return_prompt_token_ids_b64 resolved_thinking`)

func (v trtllmVoice) takes(q *request, key string, value []byte) (bool, error) {
	switch {
	case key == "cache_salt" && q.chat, key == "prompt" && !q.chat:
		return true, nil
	case key == "disaggregated_params":
		return true, onlyMembers(value, key, disaggMembers...)
	case key == "prompt_token_ids" && q.chat:
		return true, nil
	case !slices.Contains(trtllmMembers, key):
		return false, forbidden(key)
	case key == "priority":
		p, err := strconv.ParseFloat(string(value), 64)
		if err != nil || p < 0 || p > 1 {
			return false, validation("less_than_equal", key, "Input should be between 0 and 1")
		}
		q.rank = int((0.5 - p) * 1000) // the highest first
		return false, nil
	case key == "reasoning_effort" && !slices.Contains([]string{`"low"`, `"medium"`, `"high"`, `"max"`, `"none"`}, string(value)):
		return false, validation("literal_error", key, "Input should be 'low', 'medium', 'high', 'max' or 'none'")
	case key == "tools":
		return true, v.checkTools(value)
	case key == "response_format":
		return true, onlyMembers(value, key, "type", "schema", "json_schema", "regex", "ebnf", "format")
	case key == "stream_options":
		return true, onlyMembers(value, key, "include_usage", "continuous_usage_stats")
	}
	return true, nil
}

func (trtllmVoice) checkTools(value []byte) error {
	e := scan.Array(value)
	for e.Next() {
		if err := onlyMembers(e.Value, "tools", "type", "function"); err != nil {
			return err
		}
		for m := scan.Object(e.Value); m.Next(); {
			if string(m.Key) == "function" {
				if err := onlyMembers(m.Value, "tools.function", "name", "description", "parameters", "strict"); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func onlyMembers(object []byte, at string, names ...string) error {
	m := scan.Object(object)
	for m.Next() {
		if !slices.Contains(names, string(m.Key)) {
			return forbidden(at + "." + string(m.Key))
		}
	}
	return nil
}

func forbidden(at string) error {
	return validation("extra_forbidden", at, "Extra inputs are not permitted")
}

// validation is pydantic's complaint, which trtllm-serve answers as one string.
func validation(kind, at, why string) error {
	return fault.New(fault.Invalid, "%s", fmt.Sprintf("[{'type': '%s', 'loc': ('body', '%s'), 'msg': '%s'}]", kind, at, why)).WithCode("validation")
}

// overflow looks at the prompt only: an answer ends at the longest sequence.
func (trtllmVoice) overflow(q *request, prompt, context int) error {
	if prompt >= context {
		return fault.New(fault.Invalid, "The sum of prompt length (%d.0), query length (0) should not exceed max_num_tokens (%d)", prompt, context)
	}
	q.maxTokens = min(q.maxTokens, context-prompt)
	return nil
}

func (trtllmVoice) refusal(status int, f *fault.Fault) any {
	if f.Code == "validation" {
		return map[string]any{"error": f.Message}
	}
	return sglangVoice{}.refusal(status, f)
}

func (trtllmVoice) routes(e *Engine, m *http.ServeMux) {
	m.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": "simulated"})
	})
	m.HandleFunc("POST /_internal/tokenize", e.serveTokenize)
	m.HandleFunc("POST /kv_cache_events", e.servePoll)
}

// metric gives the names of trtllm-serve.
func (trtllmVoice) metric(name string) string {
	switch name {
	case "num_requests_running", "num_requests_waiting", "time_to_first_token_seconds":
		return "trtllm_" + name
	case "kv_cache_usage_perc":
		return "trtllm_kv_cache_utilization"
	case "prefix_cache_hits_total":
		return "trtllm_prompt_cached_tokens_total"
	case "prefix_cache_queries_total":
		return "trtllm_prompt_tokens_total"
	case "generation_tokens_total":
		return "trtllm_generation_tokens_total"
	}
	return ""
}
