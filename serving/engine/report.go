package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
)

// ErrNoUsage says that a chunk has the usage mark but no usage object at its top level.
var ErrNoUsage = errors.New("engine: the chunk carries no usage")

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
	return openAIReport(raw, false)
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

// none marks a count that the engine did not give.
const none = math.MinInt64

// openAIReport reads the usage object of OpenAI's dialect, with the members that engines add. It runs for every request
// and every progress event, so it scans: decoding costs ten times as much. beside says that reasoning tokens may stand at
// the object's top level instead of in the details.
func openAIReport(raw []byte, beside bool) (Report, error) {
	if !json.Valid(raw) {
		return Report{}, errors.New("engine: usage that is no usage")
	}
	n := counts{prompt: none, completion: none, cached: none}
	var image, multimodal int64
	err := readCounts(raw, wanted{"prompt_tokens", &n.prompt}, wanted{"completion_tokens", &n.completion})
	if err == nil && beside {
		err = readCounts(raw, wanted{"reasoning_tokens", &n.reasoning})
	}
	if details := member(raw, "prompt_tokens_details"); err == nil && details != nil {
		err = readCounts(details, wanted{"cached_tokens", &n.cached}, wanted{"cache_write_tokens", &n.cacheWrite}, wanted{"image_tokens", &image},
			wanted{"multimodal_tokens", &multimodal}, wanted{"audio_tokens", &n.audio})
	}
	if details := member(raw, "completion_tokens_details"); err == nil && details != nil {
		err = readCounts(details, wanted{"reasoning_tokens", &n.reasoning})
	}
	switch {
	case err != nil:
		return Report{}, err
	case n.prompt == none || n.completion == none:
		return Report{}, errors.New("engine: usage without prompt_tokens or completion_tokens")
	case min(image, multimodal) < 0:
		return Report{}, errors.New("engine: negative image tokens")
	}
	n.image = max(image, multimodal)
	if n.cachedKnown = n.cached != none; !n.cachedKnown {
		n.cached = 0
	}
	return n.report(raw)
}

// wanted says where the count of one name goes.
type wanted struct {
	name string
	into *int64
}

// readCounts reads the whole numbers of an object by their names; null is as good as absent.
func readCounts(object []byte, all ...wanted) error {
	m := scan.Object(object)
	for m.Next() {
		for _, w := range all {
			if string(m.Key) != w.name || string(m.Value) == "null" {
				continue
			}
			v, err := strconv.ParseInt(string(m.Value), 10, 64)
			if err != nil {
				return fmt.Errorf("engine: %s is no count: %.40s", w.name, m.Value)
			}
			*w.into = v
		}
	}
	return m.Err()
}

// member finds a member of an object, nil when it is not there or null.
func member(object []byte, name string) (value []byte) {
	m := scan.Object(object)
	for m.Next() {
		if string(m.Key) == name {
			value = m.Value
		}
	}
	if string(value) == "null" {
		return nil
	}
	return value
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
