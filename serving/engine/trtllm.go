package engine

import (
	"context"
	"net/http"
	"strconv"

	"millrace/serving/engine/kvevent"
	"millrace/serving/engine/scan"
)

// trtllm drives TensorRT-LLM's trtllm-serve (1.2 or newer), supervised or attached. It refuses members that it does not
// know, and takes a cache salt with messages only.
type trtllm struct{ noVerbs }

var trtllmChat = chatRules{
	forced:    `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`,
	salt:      true,
	rank:      fraction,
	chatOnly:  true,
	constrain: trtllmConstraints,
	only: set("messages", "prompt", "input", "encoding_format", "dimensions", "user",
		"frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "top_logprobs", "n", "seed", "stop", "temperature", "top_p",
		"tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
		"top_k", "min_p", "repetition_penalty", "length_penalty", "early_stopping", "stop_token_ids", "include_stop_str_in_output",
		"ignore_eos", "min_tokens", "skip_special_tokens", "spaces_between_special_tokens", "add_generation_prompt", "documents",
		"chat_template_kwargs", "thinking_token_budget"),
	rewrite: map[string]func([]byte) []byte{"tools": plainTools, "reasoning_effort": trtllmEffort},
}

const trtllmBlock = 32 // tokens_per_block by default

func (trtllm) Family() Family { return TRTLLM }
func (trtllm) Label() string  { return "TensorRT-LLM" }
func (trtllm) BlockSize() int { return trtllmBlock }
func (trtllm) Alive() string  { return "/health" }

// Caps: events are polled (PollEvents) and tell no salt, and nothing tells a chat's tokens: prefixes are followed by bytes.
func (trtllm) Caps() Caps {
	return Caps{CacheSalt: true, ContinuousUsage: true, CachedOnEveryChunk: true, Supervised: true, Rank: true, ChatOnly: true, Polled: true}
}

func (trtllm) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return trtllmChat.prepare(dst, body, p)
}

func (trtllm) Drops(member string) bool { return trtllmChat.drops(member) }

func (trtllm) UsageMark() []byte                  { return []byte(usageMark) }
func (trtllm) Usage(chunk []byte) (Report, error) { return usageOf(chunk) }

// fraction is a priority between 0 and 1, the highest first, 0.5 for everybody.
func fraction(dst []byte, rank int) []byte {
	size := max(rank, -rank)
	return strconv.AppendFloat(dst, 0.5-0.5*float64(rank)/float64(1+size), 'f', 3, 64)
}

// trtllmEffort gives the nearest effort that the engine has.
func trtllmEffort(value []byte) []byte {
	switch string(value) {
	case `"minimal"`:
		return []byte(`"low"`)
	case `"xhigh"`:
		return []byte(`"high"`)
	}
	return value
}

// plainTools keeps of tools what the engine takes: it refuses one with a member more.
func plainTools(value []byte) []byte {
	out := []byte{'['}
	e := scan.Array(value)
	for e.Next() {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = keepMembers(out, e.Value, func(key string, v []byte) []byte {
			switch key {
			case "function":
				return keepMembers(nil, v, func(key string, v []byte) []byte {
					switch key {
					case "name", "description", "parameters", "strict":
						return v
					}
					return nil
				})
			case "type":
				return v
			}
			return nil
		})
	}
	if e.Err() != nil {
		return value
	}
	return append(out, ']')
}

// keepMembers copies an object with what keep gives for each member, without those for which it gives nil.
func keepMembers(dst, object []byte, keep func(key string, value []byte) []byte) []byte {
	dst = append(dst, '{')
	first := true
	m := scan.Object(object)
	for m.Next() {
		v := keep(string(m.Key), m.Value)
		if v == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(scan.Quote(dst, string(m.Key)), ':'), v...)
	}
	return append(dst, '}')
}

func (trtllm) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens")
}

func (trtllm) Load(ctx context.Context, c *http.Client, base string) (Load, error) {
	return trtllmLoad(ctx, c, base)
}

func (trtllm) Tokens(context.Context, *http.Client, string, []byte) ([]uint32, error) {
	return nil, ErrUnsupported
}

// PollEvents takes the KV events that have gathered since the last poll. There may be one poller only: each event is given
// once.
func (trtllm) PollEvents(ctx context.Context, c *http.Client, base string) (kvevent.Polled, error) {
	answer, err := call(ctx, c, http.MethodPost, base+"/kv_cache_events", nil, kvevent.MaxMessageBytes)
	if err != nil {
		return kvevent.Polled{}, err
	}
	return kvevent.DecodePolled(answer, trtllmBlock)
}
