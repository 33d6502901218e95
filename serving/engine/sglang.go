package engine

import (
	"context"
	"encoding/json"
	"net/http"

	"millrace/internal/fault"
)

// sglang drives SGLang (0.5.20 or newer), supervised or attached.
type sglang struct{ sglangVerbs }

var sglangChat = chatRules{
	forced:    `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`,
	salt:      true,
	requestID: "rid",
	rank:      lowFirst, // as Command starts it: by itself it takes higher numbers first
	constrain: sglangConstraints,
	drop: set("input_ids", "return_routed_experts", "routed_experts_start_len", "return_cached_tokens_details", "return_prompt_token_ids",
		"return_meta_info", "ngram_corpus_id", "custom_labels", "decode_tp_size"),
}

// sglangPage is what Command asks for; by itself SGLang takes a page of one token or what its kernels need.
const sglangPage = 16

func (sglang) Family() Family { return SGLang }
func (sglang) Label() string  { return "SGLang" }
func (sglang) BlockSize() int { return sglangPage }
func (sglang) Alive() string  { return "/ping" } // /health generates a token each time

func (sglang) Caps() Caps {
	return Caps{CacheSalt: true, ContinuousUsage: true, CachedOnEveryChunk: true, KVEvents: true, Tokens: true, Supervised: true, Rank: true, Prefill: true,
		Cancel: true, Sleep: true, LoRA: true, Grow: true, SwitchRole: true, ResetPrefix: true, RankHeader: "X-Override-Routed-Dp-Rank"}
}

func (sglang) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return sglangChat.prepare(dst, body, p)
}

func (sglang) Drops(member string) bool { return sglangChat.drops(member) }

func (sglang) UsageMark() []byte { return []byte(usageMark) }

// Usage reads reasoning tokens beside the details too: that is where releases before 0.5.23 put them.
func (sglang) Usage(chunk []byte) (Report, error) {
	raw, _ := usageFields(chunk)
	if raw == nil {
		return Report{}, ErrNoUsage
	}
	return openAIReport(raw, true)
}

// Ready also proves a server that only does prefill or decode: such a one takes nothing without a peer, so it is given the
// one that stands for none. Others pass over it.
func (sglang) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens", `"bootstrap_host":"2.2.2.2","bootstrap_room":0`)
}

func (sglang) Load(ctx context.Context, c *http.Client, base string) (Load, error) {
	return sglangLoad(ctx, c, base)
}

// Tokens asks the tokenizer's endpoint, which takes messages since 0.5.20 and applies the engine's own template.
func (sglang) Tokens(ctx context.Context, c *http.Client, base string, chatBody []byte) ([]uint32, error) {
	answer, err := call(ctx, c, http.MethodPost, base+"/tokenize", chatBody, maxTokensBytes)
	if err != nil {
		return nil, err
	}
	var got struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Tokens) == 0 {
		return nil, fault.New(fault.Upstream, "The engine told no tokens: %s", quote(answer))
	}
	return got.Tokens, nil
}
