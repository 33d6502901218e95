package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"millrace/internal/fault"
)

// vllm drives vLLM (0.30 or newer), supervised or attached.
type vllm struct{}

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

func (vllm) Family() Family { return VLLM }
func (vllm) Label() string  { return "vLLM" }
func (vllm) BlockSize() int { return vllmBlockTokens }

func (vllm) Caps() Caps {
	return Caps{CacheSalt: true, ContinuousUsage: true, KVEvents: true, Tokens: true, Supervised: true, Rank: true, Prefill: true}
}

func (vllm) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return vllmChat.prepare(dst, body, p)
}

func (vllm) Drops(member string) bool { return vllmChat.drops(member) }
func (vllm) Alive() string            { return "/health" }

func (vllm) UsageMark() []byte                  { return []byte(usageMark) }
func (vllm) Usage(chunk []byte) (Report, error) { return usageOf(chunk) }

// Command runs `vllm serve`. Cached token counts need --enable-prompt-tokens-details. The engine dials the agent for KV
// events, so that nothing with prompts in it listens beyond loopback.
func (vllm) Command(s Spec) (Command, error) {
	if err := s.check(VLLM, s.ModelPath != ""); err != nil {
		return Command{}, err
	}
	path := s.Executable
	if path == "" {
		path = "vllm"
	}
	args := []string{
		"serve", s.ModelPath, "--served-model-name", s.Model, "--host", "127.0.0.1", "--port", strconv.Itoa(s.Port),
		"--enable-prefix-caching", "--enable-prompt-tokens-details", "--scheduling-policy", "priority",
	}
	args = flag(args, "--max-model-len", s.Context)
	args = flag(args, "--max-num-seqs", int64(s.Slots))
	args = flag(args, "--max-num-queued-reqs", int64(s.Queue))
	args = flag(args, "--tensor-parallel-size", int64(s.Parallel.Tensor))
	args = flag(args, "--pipeline-parallel-size", int64(s.Parallel.Pipeline))
	args = flag(args, "--data-parallel-size", int64(s.Parallel.Data))
	if s.Parallel.Expert > 1 {
		args = append(args, "--enable-expert-parallel") // over all GPUs
	}
	if s.HostCache > 0 {
		args = append(args, "--kv-offloading-size", strconv.FormatInt(max(s.HostCache>>30, 1), 10)) // GiB
	}
	args, err := s.withEvents(args, vllmEvents(s))
	if err != nil {
		return Command{}, err
	}
	return Command{Path: path, Args: append(args, s.Extra...), Env: []string{"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1"}}, nil
}

type vllmEventConfig struct {
	Enable    bool   `json:"enable_kv_cache_events"`
	Publisher string `json:"publisher"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint,omitempty"`
	Topic     string `json:"topic"`
}

func vllmEvents(s Spec) vllmEventConfig {
	c := vllmEventConfig{Enable: true, Publisher: "zmq", Endpoint: loopback(s.KVPort), Topic: "kv-events"}
	if s.ReplayPort > 0 {
		c.Replay = loopback(s.ReplayPort)
	}
	return c
}

func loopback(port int) string { return "tcp://127.0.0.1:" + strconv.Itoa(port) }

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
