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
