package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
)

// ErrNoUsage says that a chunk has the usage mark but no usage object at its top level.
var ErrNoUsage = errors.New("engine: the chunk carries no usage")

// openAIUsage is the usage object of OpenAI's dialect, with the fields that engines add.
type openAIUsage struct {
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	Details    *struct {
		Cached     *int64 `json:"cached_tokens"`
		CacheWrite int64  `json:"cache_write_tokens"`
		Image      int64  `json:"image_tokens"`
		Multimodal int64  `json:"multimodal_tokens"`
		Audio      int64  `json:"audio_tokens"`
	} `json:"prompt_tokens_details"`
	Generated *struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// timings is llama.cpp's count, on every chunk when timings_per_token is set.
type timings struct {
	Cached    *int64 `json:"cache_n"`
	Computed  *int64 `json:"prompt_n"`
	Generated *int64 `json:"predicted_n"`
}

// counts is what an engine said, before it is made disjoint.
type counts struct {
	prompt, cached, cacheWrite, image, audio int64
	completion, reasoning                    int64
	cachedKnown                              bool
}

// usageOf reads a chunk in OpenAI's dialect.
func usageOf(chunk []byte) (Report, error) {
	raw, _ := usageFields(chunk)
	if raw == nil {
		return Report{}, ErrNoUsage
	}
	return openAIReport(raw)
}

// usageFields finds the usage and timings objects at the chunk's top level; nil where there is none.
func usageFields(chunk []byte) (openai, llama []byte) {
	m := scan.Object(bytes.TrimPrefix(bytes.TrimSpace(chunk), []byte("data:")))
	for m.Next() {
		if m.Value[0] != '{' {
			continue
		}
		switch string(m.Key) {
		case "usage":
			openai = m.Value
		case "timings":
			llama = m.Value
		}
	}
	return openai, llama
}

func openAIReport(raw []byte) (Report, error) {
	var u openAIUsage
	if err := json.Unmarshal(raw, &u); err != nil {
		return Report{}, fmt.Errorf("engine: usage that is no usage: %w", err)
	}
	if u.Prompt == nil || u.Completion == nil {
		return Report{}, errors.New("engine: usage without prompt_tokens or completion_tokens")
	}
	n := counts{prompt: *u.Prompt, completion: *u.Completion}
	if d := u.Details; d != nil {
		n.cacheWrite, n.audio, n.image = d.CacheWrite, d.Audio, max(d.Image, d.Multimodal)
		if min(d.Image, d.Multimodal) < 0 {
			return Report{}, errors.New("engine: negative image tokens")
		}
		if d.Cached != nil {
			n.cached, n.cachedKnown = *d.Cached, true
		}
	}
	if u.Generated != nil {
		n.reasoning = u.Generated.Reasoning
	}
	return n.report(raw)
}

func timingsReport(raw []byte) (Report, error) {
	var t timings
	if err := json.Unmarshal(raw, &t); err != nil {
		return Report{}, fmt.Errorf("engine: timings that are no timings: %w", err)
	}
	if t.Cached == nil || t.Computed == nil || t.Generated == nil {
		return Report{}, errors.New("engine: timings without cache_n, prompt_n or predicted_n")
	}
	if *t.Cached < 0 || *t.Computed < 0 || *t.Cached > usage.MaxTokens || *t.Computed > usage.MaxTokens {
		return Report{}, fmt.Errorf("engine: impossible timings: cache_n %d, prompt_n %d", *t.Cached, *t.Computed)
	}
	n := counts{prompt: *t.Cached + *t.Computed, cached: *t.Cached, completion: *t.Generated, cachedKnown: true}
	return n.report(raw)
}

// report makes the classes disjoint. Image and audio tokens may lie inside the cached prefix, and no engine says how many
// do: cached is subtracted first, so that no token is ever counted twice.
func (n counts) report(raw []byte) (Report, error) {
	for _, v := range [...]int64{n.prompt, n.cached, n.cacheWrite, n.image, n.audio, n.completion, n.reasoning} {
		if v < 0 || v > usage.MaxTokens {
			return Report{}, fmt.Errorf("engine: usage count %d is impossible", v)
		}
	}
	if n.cached > n.prompt || n.reasoning > n.completion {
		return Report{}, fmt.Errorf("engine: impossible usage: %d of %d prompt tokens cached, %d of %d generated tokens are reasoning",
			n.cached, n.prompt, n.reasoning, n.completion)
	}
	if len(raw) > usage.MaxRawBytes {
		return Report{}, fmt.Errorf("engine: a usage object of %d bytes is impossible", len(raw))
	}
	var v usage.Vector
	v[usage.Requests] = 1
	v[usage.Cached] = n.cached
	left := n.prompt - n.cached
	for _, part := range [...]struct {
		class usage.Class
		n     int64
	}{{usage.CacheWrite, n.cacheWrite}, {usage.Image, n.image}, {usage.Audio, n.audio}} {
		v[part.class] = min(part.n, left)
		left -= v[part.class]
	}
	v[usage.Input] = left
	v[usage.Reasoning] = n.reasoning
	v[usage.Output] = n.completion - n.reasoning
	return Report{Vector: v, Raw: bytes.Clone(raw), CachedKnown: n.cachedKnown}, nil
}
