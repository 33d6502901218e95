package engine

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"millrace/serving/engine/tok"
)

// simulated drives the engine of package sim. It speaks vLLM's dialect and metrics; beyond vLLM it has cached counts on
// every chunk, and token ids that are computed here without asking it.
type simulated struct{ vllmVerbs }

var simChat = chatRules{
	forced:    `"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`,
	salt:      true,
	requestID: "request_id",
	rank:      lowFirst,
	constrain: vllmConstraints,
	template:  true,
}

const simBlockTokens = 16

func (simulated) Family() Family { return Sim }
func (simulated) Label() string  { return "simulated engine (no real model)" }
func (simulated) BlockSize() int { return simBlockTokens }

func (simulated) Caps() Caps {
	return Caps{CacheSalt: true, ContinuousUsage: true, CachedOnEveryChunk: true, KVEvents: true, Tokens: true, Supervised: true, Rank: true, Prefill: true,
		Cancel: true, Sleep: true, LoRA: true, Grow: true, Shrink: true, AnyRole: true, ResetPrefix: true,
		RankHeader: rankHeader}
}

func (simulated) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return simChat.prepare(dst, body, p)
}

func (simulated) Drops(member string) bool { return simChat.drops(member) }
func (simulated) Alive() string            { return "/health" }

func (simulated) UsageMark() []byte                  { return []byte(usageMark) }
func (simulated) Usage(chunk []byte) (Report, error) { return usageOf(chunk) }

// Command runs `millrace sim-engine`; Executable is the millrace program, which may be the agent's own.
func (simulated) Command(s Spec) (Command, error) {
	program := cmp.Or(s.Executable, s.Agent)
	if program == "" || s.Model == "" || s.Port == 0 {
		return Command{}, fmt.Errorf("engine: the simulated engine needs its program, a model name and a port: %+v", s)
	}
	args := []string{"sim-engine", "--port", strconv.Itoa(s.Port), "--model", s.Model}
	args = flag(args, "--context", s.Context)
	args = flag(args, "--slots", int64(s.Slots))
	args = flag(args, "--queue", int64(s.Queue))
	if s.KVPort > 0 {
		args = append(args, "--kv-endpoint", loopback(s.KVPort))
	}
	if s.ReplayPort > 0 {
		args = append(args, "--replay-endpoint", loopback(s.ReplayPort))
	}
	if _, ranks := s.Ranks(); ranks > 1 { // numbered from 0 on each host: there is nothing behind it that spans hosts
		args = append(args, "--ranks", strconv.Itoa(ranks))
	}
	args = flag(args, "--elastic", int64(s.Elastic))
	if t := s.Transfer; t != nil && s.Role != Encoder {
		if s.Role != "" {
			args = append(args, "--role", s.Role)
		}
		args = append(args, "--transfer-address", hostPort(cmp.Or(s.Address, "127.0.0.1"), t.Port))
		if t.Engine != "" {
			args = append(args, "--transfer-engine", t.Engine)
		}
	}
	return Command{Path: program, Args: append(args, s.Extra...), Env: s.environment()}, nil
}

func (simulated) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens")
}

func (simulated) Load(ctx context.Context, c *http.Client, base string) (Load, error) {
	return vllmLoad(ctx, c, base)
}

func (simulated) Tokens(_ context.Context, _ *http.Client, _ string, chatBody []byte) ([]uint32, error) {
	return tok.ApplyChat(chatBody)
}
