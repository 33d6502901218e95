package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"millrace/internal/fault"
)

// sglang drives SGLang (0.5.20 or newer), supervised or attached.
type sglang struct{}

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
	return Caps{CacheSalt: true, ContinuousUsage: true, CachedOnEveryChunk: true, KVEvents: true, Tokens: true, Supervised: true, Rank: true, Prefill: true}
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

// Command runs SGLang's server. Cached token counts need --enable-cache-report, loads --enable-metrics. Ranks count from the
// lowest, and nobody's running answer is thrown back for a rank: it would be computed, and waited for, twice.
func (sglang) Command(s Spec) (Command, error) {
	if err := s.check(SGLang, s.ModelPath != ""); err != nil {
		return Command{}, err
	}
	path, args := s.Executable, []string(nil)
	if path == "" {
		path, args = "python3", []string{"-m", "sglang.launch_server"}
	}
	args = append(args, "--model-path", s.ModelPath, "--served-model-name", s.Model, "--host", "127.0.0.1", "--port", strconv.Itoa(s.Port),
		"--page-size", strconv.Itoa(sglangPage), "--enable-cache-report", "--enable-metrics",
		"--enable-priority-scheduling", "--schedule-low-priority-values-first", "--default-priority-value", "0", "--disable-priority-preemption")
	args = flag(args, "--context-length", s.Context)
	args = flag(args, "--max-running-requests", int64(s.Slots))
	args = flag(args, "--max-queued-requests", int64(s.Queue))
	args = flag(args, "--tp-size", int64(s.Parallel.Tensor))
	args = flag(args, "--pp-size", int64(s.Parallel.Pipeline))
	args = flag(args, "--ep-size", int64(s.Parallel.Expert))
	if s.Parallel.Data > 1 {
		args = append(flag(args, "--dp-size", int64(s.Parallel.Data)), "--enable-dp-attention")
	}
	if s.HostCache > 0 {
		args = append(args, "--enable-hierarchical-cache", "--hicache-size", gigabytes(s.HostCache/s.Parallel.ranks()))
	}
	args, err := s.withEvents(args, sglangEvents(s))
	if err != nil {
		return Command{}, err
	}
	return Command{Path: path, Args: append(args, s.Extra...), Env: []string{"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=false", "DO_NOT_TRACK=1"}}, nil
}

// sglangEventConfig is vLLM's but for the switch, which is the publisher's name.
type sglangEventConfig struct {
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint,omitempty"`
	Topic     string `json:"topic"`
}

func sglangEvents(s Spec) sglangEventConfig {
	v := vllmEvents(s)
	return sglangEventConfig{Publisher: v.Publisher, Endpoint: v.Endpoint, Replay: v.Replay, Topic: v.Topic}
}

func (sglang) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens")
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

// flag appends a flag with a number, nothing for 0.
func flag(args []string, name string, n int64) []string {
	if n <= 0 {
		return args
	}
	return append(args, name, strconv.FormatInt(n, 10))
}

const gigabyte = 1_000_000_000

// gigabytes rounds down, but not to none.
func gigabytes(bytes int64) string { return strconv.FormatInt(max(bytes/gigabyte, 1), 10) }

// check looks for what every supervised engine needs.
func (s Spec) check(f Family, weights bool) error {
	if !weights || s.Model == "" || s.Port == 0 {
		return fmt.Errorf("engine: %s needs a model, its path and a port: %+v", f, s)
	}
	return nil
}

// withEvents appends the settings of KV events. Ranks of one engine publish at ports of their own, which nobody has bound:
// with several there are none.
func (s Spec) withEvents(args []string, config any) ([]string, error) {
	if s.KVPort == 0 || s.Parallel.Data > 1 {
		return args, nil
	}
	events, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("engine: event settings: %w", err)
	}
	return append(args, "--kv-events-config", string(events)), nil
}
