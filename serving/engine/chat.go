package engine

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// chatRules is what one family's bodies need beyond what all share.
type chatRules struct {
	forced    string          // members every body gets, without surrounding commas
	salt      bool            // knows cache_salt
	requestID bool            // knows request_id
	rank      bool            // knows priority
	template  bool            // knows chat_template_kwargs: open models are told there not to think
	capName   string          // the name of the token cap; "" = the one the client used, else max_tokens
	drop      map[string]bool // the family's own fields that a client must never set
}

// setAgain are the fields that a body gets from ChatParams.
var setAgain = set("stream", "stream_options", "model", "max_tokens", "max_completion_tokens")

// steering are the fields by which Millrace steers engines, of every engine that we know: a client that sets one could
// read another tenant's cache, point an engine at a foreign peer, jump the queue or run code. They go to no engine.
var steering = set(
	"cache_salt", "priority", "request_id", "rid", "extra_key",
	"kv_transfer_params", "ec_transfer_params", "disaggregated_params", "vllm_xargs", "nvext",
	"bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
	"data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank", "session_params", "session_id",
	"custom_logit_processor", "custom_params", "input_embeds", "return_hidden_states", "lora_path",
	"return_token_ids", "prompt_logprobs", "echo", "timings_per_token",
	"chat_template", "media_io_kwargs", "mm_processor_kwargs", "logits_processors", "prompt_token_ids", "continuous_usage_stats",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// prepare is PrepareChat for every family: one walk over the top level, kept members copied as they are, ours appended.
func (r *chatRules) prepare(dst, body []byte, p ChatParams) ([]byte, error) {
	dst = append(dst, `{"model":`...)
	dst = scan.Quote(dst, p.Model)
	var limit, legacy []byte // raw values of max_completion_tokens and max_tokens
	unthinking := false      // by reasoning_effort, and nothing is said to the template
	told := false
	m := scan.Object(body)
	for m.Next() {
		switch string(m.Key) {
		case "max_completion_tokens":
			limit = m.Value
			continue
		case "max_tokens":
			legacy = m.Value
			continue
		case "reasoning_effort":
			unthinking = string(m.Value) == `"none"`
		case "chat_template_kwargs":
			told = !absent(m.Value)
		}
		if r.refuses(m.Key) {
			continue
		}
		dst = append(dst, ',')
		dst = append(dst, body[m.Start:m.End]...)
	}
	if m.Err() != nil || scan.Space(body, m.Offset()) != len(body) {
		return nil, fault.New(fault.Invalid, "The request body must be a JSON object.")
	}
	if p.Plain {
		return append(dst, '}'), nil
	}
	dst, err := r.tokenCap(dst, limit, legacy, p.MaxTokens)
	if err != nil {
		return nil, err
	}
	if r.template && unthinking && !told {
		dst = append(dst, noThinking...)
	}
	if r.salt && p.Salt != "" {
		dst = append(dst, `,"cache_salt":`...)
		dst = scan.Quote(dst, p.Salt)
	}
	if r.requestID && p.RequestID != "" {
		dst = append(dst, `,"request_id":`...)
		dst = scan.Quote(dst, p.RequestID)
	}
	if r.rank && p.Rank != 0 {
		dst = strconv.AppendInt(append(dst, `,"priority":`...), int64(p.Rank), 10)
	}
	dst = append(dst, ',')
	dst = append(dst, r.forced...)
	return append(dst, '}'), nil
}

// noThinking says by the names that templates of open models have for it (Qwen's and GLM's, DeepSeek's) what OpenAI's own
// effort "none" says. Templates pass over what they do not know.
const noThinking = `,"chat_template_kwargs":{"enable_thinking":false,"thinking":false}`

// Steers reports whether a member of a chat body steers engines and so is no client's to set, however its name is cased.
func Steers(key []byte) bool { return has(steering, key) }

// refuses tells whether a client's member is left out.
func (r *chatRules) refuses(key []byte) bool {
	return has(setAgain, key) || has(steering, key) || has(r.drop, key)
}

// has looks a member's name up without regard to case. Servers written in Go match names so, the Kelvin sign and the long
// s included, so names are compared as those servers do.
func has(names map[string]bool, key []byte) bool {
	for _, c := range key {
		if 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf {
			return names[strings.ToLower(strings.ToUpper(string(key)))]
		}
	}
	return names[string(key)]
}

// tokenCap appends the cap on generated tokens: the client's, max_completion_tokens before max_tokens, lowered to ours.
func (r *chatRules) tokenCap(dst, limit, legacy []byte, ours int64) ([]byte, error) {
	name, raw := "max_completion_tokens", limit
	if absent(limit) {
		name, raw = "max_tokens", legacy
	}
	tokens := ours
	if !absent(raw) {
		asked, ok := wholeNumber(raw)
		if !ok || asked < 1 {
			return nil, fault.New(fault.Invalid, "%s must be a whole number of at least 1.", name).WithParam(name)
		}
		if tokens <= 0 || asked < tokens {
			tokens = asked
		}
	}
	if tokens <= 0 {
		return dst, nil
	}
	if r.capName != "" {
		name = r.capName
	}
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return strconv.AppendInt(dst, tokens, 10), nil
}

func absent(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// wholeNumber reads a JSON number that is an integer, 1e3 and 16.0 included.
func wholeNumber(raw []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
