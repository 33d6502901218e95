package gate

import (
	"errors"
	"regexp"
	"strconv"
)

// Overflow is how far a request missed a model's context, in tokens; 0 = not known.
type Overflow struct {
	Prompt int64
	Window int64
}

// promptCounts are how engines say in their refusals how long the prompt is.
var promptCounts = []*regexp.Regexp{
	regexp.MustCompile(`(\d+) input tokens`),                 // vLLM
	regexp.MustCompile(`(\d+) in the messages`),              // vLLM before
	regexp.MustCompile(`prompt \(length (\d+)\)`),            // vLLM's engine
	regexp.MustCompile(`(\d+) tokens from the input`),        // SGLang
	regexp.MustCompile(`input \((\d+) tokens\)`),             // SGLang
	regexp.MustCompile(`prompt length \((\d+)`),              // TensorRT-LLM
	regexp.MustCompile(`"n_prompt_tokens"\s*:\s*(\d+)`),      // llama.cpp
	regexp.MustCompile(`request \((\d+) tokens\) exceeds`),   // llama.cpp
	regexp.MustCompile(`resulted in (\d+) tokens`),           // OpenAI
	regexp.MustCompile(`prompt is too long: (\d+) tokens >`), // Anthropic
}

// contextCodes are the codes and types by which engines say that prompt and answer do not fit.
var contextCodes = map[string]bool{"context_length_exceeded": true, "exceed_context_size_error": true, "context_window_exceeded": true}

// contextWords are how their messages begin that say so. Further on, a message may quote what the client wrote.
var contextWords = regexp.MustCompile(`(?i)^(?:\w*(?:error|exception)(?: code)?: ?)*(?:` +
	`this model's maximum context length|maximum context length|'max_tokens' or 'max_completion_tokens' is too large|you passed \d+ input tokens|` + // vLLM
	`max_(?:completion_)?tokens ?=? ?\d+ cannot be greater than max_model_len|` +
	`the (?:\w+ )?prompt \((?:total )?length \d+\) is longer than the maximum model length|input length \(?\d+\)? exceeds|` +
	`requested token count exceeds|the input \(\d+ tokens\) is longer than|input length \(\d+ tokens\) exceeds|` + // SGLang
	`the sum of prompt length \(|prompt length \(|` + // TensorRT-LLM
	`(?:the )?request (?:\(\d+ tokens\) )?exceeds the available context size|` + // llama.cpp
	`prompt is too long|prompt contains \d+ tokens|input length and .{0,2}max_tokens.{0,2} exceed context limit)`) // providers

// OverflowOf says by how much, when err is an engine's refusal of a request that does not fit the context.
func OverflowOf(err error) (Overflow, bool) {
	var r *rejected
	if !errors.As(err, &r) || !r.context {
		return Overflow{}, false
	}
	o := Overflow{Window: r.window}
	for _, p := range promptCounts {
		if m := p.FindStringSubmatch(r.text); m != nil {
			o.Prompt, _ = strconv.ParseInt(m[1], 10, 64) // a number that is none is not known
			break
		}
	}
	return o, true
}
