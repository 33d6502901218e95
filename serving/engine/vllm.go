package engine

import (
	"context"
	"encoding/json"
	"net/http"

	"millrace/internal/fault"
)

// vllm drives vLLM (0.30 or newer), supervised or attached.
type vllm struct{ vllmVerbs }

var vllmChat = chatRules{
	forced:    `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`,
	salt:      true,
	requestID: "request_id",
	rank:      lowFirst,
	constrain: vllmConstraints,
	template:  true,
	drop:      set("mm_processor_kwargs", "logits_processors", "bad_words_ids", "return_prompt_text"),
}

const (
	vllmBlockTokens = 16
	usageMark       = `"usage":{`
)

// rankHeader names a data-parallel rank; a value that is no number is passed over without a word.
const rankHeader = "X-Data-Parallel-Rank"

func (vllm) Family() Family { return VLLM }
func (vllm) Label() string  { return "vLLM" }
func (vllm) BlockSize() int { return vllmBlockTokens }

func (vllm) Caps() Caps {
	return Caps{CacheSalt: true, ContinuousUsage: true, KVEvents: true, Tokens: true, Supervised: true, Rank: true, Prefill: true,
		Cancel: true, Sleep: true, LoRA: true, Grow: true, Shrink: true, AnyRole: true, ResetPrefix: true,
		RankHeader: rankHeader}
}

func (vllm) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return vllmChat.prepare(dst, body, p)
}

func (vllm) Drops(member string) bool { return vllmChat.drops(member) }
func (vllm) Alive() string            { return "/health" }

func (vllm) UsageMark() []byte                  { return []byte(usageMark) }
func (vllm) Usage(chunk []byte) (Report, error) { return usageOf(chunk) }

func (vllm) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens")
}

func (vllm) Load(ctx context.Context, c *http.Client, base string) (Load, error) {
	return vllmLoad(ctx, c, base)
}

// Tokens asks the render endpoint, which applies the engine's own chat template.
func (vllm) Tokens(ctx context.Context, c *http.Client, base string, chatBody []byte) ([]uint32, error) {
	answer, err := call(ctx, c, http.MethodPost, base+ChatPath+"/render", chatBody, maxTokensBytes)
	if err != nil {
		return nil, err
	}
	var got struct {
		Tokens []uint32 `json:"token_ids"`
	}
	if err := json.Unmarshal(answer, &got); err != nil || len(got.Tokens) == 0 {
		return nil, fault.New(fault.Upstream, "The engine rendered no tokens: %s", quote(answer))
	}
	return got.Tokens, nil
}
