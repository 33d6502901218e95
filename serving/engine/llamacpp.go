package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"millrace/serving/engine/llamacpp"
)

// llamaCpp drives llama.cpp's server. It ignores continuous_usage_stats; timings_per_token puts counts on every chunk.
type llamaCpp struct{ noVerbs }

var llamaChat = chatRules{
	forced:    `"stream":true,"stream_options":{"include_usage":true},"timings_per_token":true`,
	capName:   "max_tokens",
	constrain: llamaConstraints,
	template:  true,
	drop: set("timings_per_token", "n_predict", "id_slot", "cache_prompt", "n_cache_reuse", "return_progress", "lora",
		"n_keep", "n_discard", "t_max_predict_ms", "response_fields", "return_tokens", "verbose", "generation_prompt"),
}

func (llamaCpp) Family() Family { return LlamaCpp }
func (llamaCpp) Label() string  { return "llama.cpp" }
func (llamaCpp) BlockSize() int { return 0 }

// Caps: a slot's prefix is shared by whoever gets the slot next, and there is no salt.
func (llamaCpp) Caps() Caps {
	return Caps{ContinuousUsage: true, CachedOnEveryChunk: true, Supervised: true, Prefill: true}
}

func (llamaCpp) PrepareChat(dst, body []byte, p ChatParams) ([]byte, error) {
	return llamaChat.prepare(dst, body, p)
}

func (llamaCpp) Drops(member string) bool { return llamaChat.drops(member) }
func (llamaCpp) Alive() string            { return "/health" }

func (llamaCpp) UsageMark() []byte { return []byte(`"timings":{`) }

// Usage prefers the final usage object; before it there are the timings alone.
func (llamaCpp) Usage(chunk []byte) (Report, error) {
	whole, partial := usageFields(chunk)
	switch {
	case whole != nil:
		return openAIReport(whole, false)
	case partial != nil:
		return timingsReport(partial)
	}
	return Report{}, ErrNoUsage
}

// Command runs the server from the Python environment that llamacpp.Setup made in DataDir. ModelPath "" is the model
// that Setup assembled.
func (llamaCpp) Command(s Spec) (Command, error) {
	if s.DataDir == "" || s.Model == "" || s.Port == 0 {
		return Command{}, fmt.Errorf("engine: llama.cpp needs its folder, a model name and a port: %+v", s)
	}
	c := llamacpp.Command(llamacpp.Serve{
		Dir: s.DataDir, Python: s.Executable, Weights: s.ModelPath, Model: s.Model, Port: s.Port, Context: s.Context, Slots: s.Slots,
	})
	return Command{
		Path:  c.Path,
		Args:  append(c.Args, s.Extra...),
		Files: []File{{Path: c.ScriptPath, Data: c.Script, Mode: 0o644}},
	}, nil
}

func (llamaCpp) Ready(ctx context.Context, c *http.Client, base, model string) error {
	return oneToken(ctx, c, base, model, "max_tokens")
}

// Load adds llama.cpp's counters and the fill of its slots.
func (llamaCpp) Load(ctx context.Context, c *http.Client, base string) (Load, error) {
	text, err := call(ctx, c, http.MethodGet, base+"/metrics", nil, maxMetricBytes)
	if err != nil {
		return Load{}, err
	}
	var l Load
	var computed int64
	eachMetric(text, func(name, _ []byte, v float64) {
		switch string(name) {
		case "llamacpp:requests_processing":
			l.Running = int(v)
		case "llamacpp:requests_deferred":
			l.Waiting = int(v)
		case "llamacpp:prompt_tokens_cached_total":
			l.PrefixHits = int64(v)
		case "llamacpp:prompt_tokens_total":
			computed = int64(v)
		}
	})
	l.PrefixQueries = l.PrefixHits + computed
	l.KVUsage = slotUsage(ctx, c, base)
	return l, nil
}

// slotUsage is the share of the context that busy slots hold, 0 when the server does not show its slots.
func slotUsage(ctx context.Context, c *http.Client, base string) float64 {
	answer, err := call(ctx, c, http.MethodGet, base+"/slots", nil, maxMetricBytes)
	if err != nil {
		return 0
	}
	var slots []struct {
		Context int64 `json:"n_ctx"`
		Busy    bool  `json:"is_processing"`
		Prompt  int64 `json:"n_prompt_tokens"`
		Next    []struct {
			Decoded int64 `json:"n_decoded"`
		} `json:"next_token"`
	}
	if json.Unmarshal(answer, &slots) != nil {
		return 0
	}
	var used, total int64
	for _, s := range slots {
		total += s.Context
		if s.Busy {
			used += s.Prompt // the tokens the slot holds: while it generates, the answer so far too
			for _, n := range s.Next {
				used += n.Decoded
			}
		}
	}
	if total == 0 {
		return 0
	}
	return min(float64(used)/float64(total), 1)
}

func (llamaCpp) Tokens(context.Context, *http.Client, string, []byte) ([]uint32, error) {
	return nil, ErrUnsupported
}
