package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"millrace/internal/fault"
)

// deepInfer drives DeepInfer, which has no HTTP: package deepinfer's adapter stands before it, a process of the agent's own
// program that speaks Chat Completions (docs/deepinfer-adapter.md).
type deepInfer struct{ noVerbs }

var deepInferChat = chatRules{
	forced:    `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`,
	salt:      true,
	requestID: "request_id",
	rank:      lowFirst,
	chatOnly:  true,
	constrain: plainConstraints,
	only: set("messages", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "thinking", "stop", "logprobs", "top_logprobs",
		"temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed", "logit_bias", "n", "min_tokens"),
}

const (
	deepInferBlock = 64 // tokens of a KV block, as the adapter's contract has it
	// adapterCommand is the agent's subcommand.
	adapterCommand = "deepinfer-adapter"
	// deepInferProgram is the engine's program where the spec names none.
	deepInferProgram = "deepinfer-engine"
)

func (deepInfer) Family() Family { return DeepInfer }
func (deepInfer) Label() string  { return "DeepInfer" }
func (deepInfer) BlockSize() int { return deepInferBlock }
func (deepInfer) Alive() string  { return "/health" }

func (deepInfer) Caps() Caps {
	return Caps{CacheSalt: true, ContinuousUsage: true, CachedOnEveryChunk: true, KVEvents: true, Tokens: true, Supervised: true, Rank: true,
		ChatOnly: true, RankHeader: rankHeader, Cancel: true, Drain: true}
}

func (deepInfer) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return deepInferChat.prepare(dst, body, p)
}

func (deepInfer) Drops(member string) bool           { return deepInferChat.drops(member) }
func (deepInfer) UsageMark() []byte                  { return []byte(usageMark) }
func (deepInfer) Usage(chunk []byte) (Report, error) { return usageOf(chunk) }

// Command runs the adapter, which runs the engine: a program that the operator names, perhaps with its first arguments, and
// that takes the arguments of the contract. A shard that is not its replica's first needs no adapter.
func (deepInfer) Command(s Spec) (Command, error) {
	if err := s.check(DeepInfer, s.ModelPath != "" && s.DataDir != ""); err != nil {
		return Command{}, err
	}
	switch {
	case s.Agent == "" && !s.Silent():
		return Command{}, fmt.Errorf("engine: %s needs the agent's own program for its adapter", DeepInfer)
	case s.Role != "" && s.Role != Whole:
		return Command{}, errCannot(DeepInfer, "has no "+s.Role+" role: its hand-over is its own affair")
	case s.LoRA != nil:
		return Command{}, errCannot(DeepInfer, "loads no adapters")
	}
	socket := filepath.Join(s.DataDir, "engine.sock")
	run := append(strings.Fields(cmp.Or(s.Executable, deepInferProgram)), "--socket", socket, "--model-path", s.ModelPath)
	run = flag(run, "--ep", int64(s.Parallel.Expert))
	run = flag(run, "--dp", int64(s.Parallel.Data))
	run = flag(run, "--tp", int64(s.Parallel.Tensor))
	run = flag(run, "--context", s.Context)
	run = flag(run, "--slots", int64(s.Slots))
	run = flag(run, "--queue", int64(s.Queue))
	if sp := s.Speculative; sp != nil {
		if sp.Method != "nextn" {
			return Command{}, errCannot(DeepInfer, "has no speculative decoding by "+sp.Method)
		}
		run = flag(run, "--nextn", int64(sp.Draft))
	}
	if s.Deterministic {
		run = append(run, "--deterministic")
	}
	if s.KVPort > 0 {
		events, replay := s.eventEndpoints()
		run = append(run, "--kv-endpoint", events, "--replay-endpoint", replay)
	}
	if n := s.Nodes; n.many() {
		run = append(run, "--nnodes", strconv.Itoa(n.Count), "--node-rank", strconv.Itoa(n.Rank), "--master", hostPort(n.Master, n.Port))
	}
	run = append(run, s.Extra...)
	env := s.environment("DO_NOT_TRACK=1")
	if s.Silent() {
		return Command{Path: run[0], Args: run[1:], Env: env}, nil
	}
	args := flag([]string{adapterCommand, "--port", strconv.Itoa(s.Port), "--model", s.Model, "--socket", socket}, "--ep", int64(s.Parallel.Expert))
	return Command{Path: s.Agent, Args: append(append(args, "--"), run...), Env: env}, nil
}

func (deepInfer) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens")
}

// Load is the engine's own word, rank by rank.
func (deepInfer) Load(ctx context.Context, c *http.Client, base string) (Load, error) {
	answer, err := call(ctx, c, http.MethodGet, base+"/load", nil, maxMetricBytes)
	if err != nil {
		return Load{}, err
	}
	var got struct {
		Hits    int64 `json:"prefix_hits"`
		Queries int64 `json:"prefix_queries"`
		Ranks   []struct {
			Rank    int     `json:"rank"`
			Running int     `json:"running"`
			Waiting int     `json:"waiting"`
			Queued  int64   `json:"queued_tokens"`
			Usage   float64 `json:"kv_usage"`
		} `json:"ranks"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Load{}, fault.Wrap(err, fault.Upstream, "The engine's load cannot be read.")
	}
	l := Load{PrefixHits: got.Hits, PrefixQueries: got.Queries}
	ranks := rankLoads{}
	for _, r := range got.Ranks {
		*ranks.of(strconv.Itoa(r.Rank)) = RankLoad{Rank: r.Rank, Running: r.Running, Waiting: r.Waiting, QueuedTokens: r.Queued, KVUsage: min(max(r.Usage, 0), 1)}
	}
	ranks.join(&l)
	return l, nil
}

// Tokens are those of the prompt that the adapter renders.
func (deepInfer) Tokens(ctx context.Context, c *http.Client, base string, chatBody []byte) ([]uint32, error) {
	return vllm{}.Tokens(ctx, c, base, chatBody)
}

func (deepInfer) Cancel(ctx context.Context, c *http.Client, base, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	_, err := tell(ctx, c, base+"/cancel", object("request_id", id))
	return err
}

// Drain lets what runs end; the adapter and its engine then exit.
func (deepInfer) Drain(ctx context.Context, c *http.Client, base string, limit time.Duration) error {
	_, err := tell(ctx, c, base+"/drain", object("seconds", int64(cmp.Or(limit, time.Second).Seconds())))
	return err
}
