package protocol

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Text completions: OpenAI's older API, a prompt in and its continuation out. They share everything with chats but the
// prompt's form and the answer's shape.

// completionTokens is how long an answer is at most when the request does not say, as OpenAI has it.
const completionTokens = 16

// completionMembers are the members of a request for text.
var completionMembers map[string]member

func init() {
	checks := map[string]check{
		"model": model, "prompt": prompt, "stream": stream, "stream_options": streamOptions, "max_tokens": maxTokens, "n": choices,
		"temperature": number(0, 2), "top_p": number(0, 1), "frequency_penalty": number(-2, 2), "presence_penalty": number(-2, 2),
		"seed": seed, "logit_bias": logitBias, "stop": stop, "service_tier": serviceTier, "prompt_cache_key": cacheKey, "session_id": cacheKey,
		"user": ignored, "best_of": bestOf, "echo": echo, "suffix": suffix,
		"logprobs": refused("text completions tell no logprobs; Chat Completions do."),
	}
	completionMembers = members(checks)
}

// DecodeCompletion checks the body of a request for text. Faults are as DecodeChat's. Several prompts count as choices.
func DecodeCompletion(body []byte) (*ChatRequest, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "The request body is not valid JSON.").WithCode("invalid_json")
	}
	r := chatReader{req: &ChatRequest{Body: body, N: 1, TextBytes: -1, Task: TaskText}, stops: maxStops, known: completionMembers, prompts: 1}
	return r.decode()
}

// prompt is a text, token ids, or several of either.
func prompt(r *chatReader, name string, v []byte) error { return r.texts(name, v, MaxN) }

func (r *chatReader) texts(name string, v []byte, most int) error {
	const want = "a string, an array of strings, or an array of token ids"
	r.req.Messages, r.req.TextBytes = v, int64(len(v))
	if field.IsString(v) {
		return nil
	}
	if !field.IsArray(v) {
		return field.WantType(name, want)
	}
	numbers, lists := 0, 0
	e := scan.Array(v)
	for e.Next() {
		switch {
		case field.IsString(e.Value) || field.IsArray(e.Value):
			lists++
		case token(e.Value):
			numbers++
		default:
			return field.WantType(name, want)
		}
	}
	switch {
	case e.Err() != nil, numbers > 0 && lists > 0, numbers+lists == 0:
		return field.WantType(name, want)
	case lists > most:
		return invalid(name, "There are more than %d texts.", most)
	}
	if numbers > 0 {
		r.req.TextBytes = bytesPerToken * int64(numbers)
		return nil
	}
	r.prompts = lists
	for e := scan.Array(v); e.Next(); {
		if !field.IsArray(e.Value) {
			continue
		}
		in := scan.Array(e.Value)
		for in.Next() {
			if !token(in.Value) {
				return field.WantType(name, want)
			}
		}
	}
	return nil
}

func token(v []byte) bool {
	n, err := strconv.ParseInt(string(v), 10, 32)
	return err == nil && n >= 0
}

func bestOf(r *chatReader, name string, v []byte) error {
	if n, err := field.Integer(name, v, 1, MaxN); err != nil {
		return err
	} else if n > 1 {
		return invalid(name, "best_of is not supported here: ask for n answers.").WithCode("unsupported_parameter")
	}
	r.dropped = append(r.dropped, name)
	return nil
}

func echo(r *chatReader, name string, v []byte) error {
	if string(v) == "true" {
		return invalid(name, "echo is not supported here: the prompt is not sent back.").WithCode("unsupported_parameter")
	}
	r.dropped = append(r.dropped, name)
	return anyBool(r, name, v)
}

func suffix(r *chatReader, name string, v []byte) error {
	if string(v) != `""` {
		return invalid(name, "suffix is not supported here.").WithCode("unsupported_parameter")
	}
	r.dropped = append(r.dropped, name)
	return nil
}

// finishCompletion settles what depends on several members.
func (r *chatReader) finishCompletion() error {
	q := r.req
	if q.N *= r.prompts; q.N > MaxN {
		return invalid("n", "n answers to each of %d prompts are more than %d.", r.prompts, MaxN)
	}
	if q.MaxTokens == 0 {
		q.MaxTokens = completionTokens
		r.added = strconv.AppendInt(append(r.added, `,"max_tokens":`...), completionTokens, 10)
		r.dropped = append(r.dropped, "max_tokens") // it was null
	}
	return nil
}
