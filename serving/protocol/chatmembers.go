package protocol

import (
	"math"
	"strconv"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// chatMembers are the members of OpenAI's request and what holds for each. What is not here is an engine's own, or
// nobody's: the model's list says what passes. What steers engines (engine.Steers) is refused.
var chatMembers map[string]member

type member struct {
	name   string
	check  check
	needed bool // null is as wrong as absence
}

func init() {
	checks := map[string]check{
		"model":                 model,
		"messages":              messages,
		"stream":                stream,
		"stream_options":        streamOptions,
		"max_tokens":            maxTokens,
		"max_completion_tokens": maxTokens,
		"n":                     choices,
		"temperature":           number(0, 2),
		"top_p":                 number(0, 1),
		"frequency_penalty":     number(-2, 2),
		"presence_penalty":      number(-2, 2),
		"seed":                  seed,
		"logit_bias":            logitBias,
		"logprobs":              logprobs,
		"top_logprobs":          topLogprobs,
		"stop":                  stop,
		"response_format":       responseFormat,
		"reasoning_effort":      reasoningEffort,
		"parallel_tool_calls": func(r *chatReader, name string, v []byte) error {
			r.req.OneCall = v[0] == 'f'
			return anyBool(r, name, v)
		},
		"tools":            tools,
		"tool_choice":      func(r *chatReader, _ string, v []byte) error { r.choice = v; return nil },
		"prompt_cache_key": cacheKey,
		"session_id":       cacheKey,
		"modalities":       modalities,
		"service_tier":     serviceTier,

		"audio":              refused("there is no audio output."),
		"web_search_options": refused("there is no web search."),
		"functions":          functions,
		"function_call":      functionCall,

		"user":                   ignored,
		"safety_identifier":      ignored,
		"metadata":               ignored,
		"store":                  ignored,
		"verbosity":              ignored,
		"prediction":             ignored,
		"moderation":             ignored,
		"prompt_cache_options":   ignored,
		"prompt_cache_retention": ignored,
	}
	chatMembers = members(checks)
}

func members(checks map[string]check) map[string]member {
	out := make(map[string]member, len(checks))
	for name, c := range checks {
		out[name] = member{name, c, name == "model" || name == "messages" || name == "prompt"}
	}
	return out
}

func model(r *chatReader, name string, v []byte) error {
	if !field.IsString(v) {
		return field.WantType(name, "a string")
	}
	r.req.Model = field.Text(v)
	if len(r.req.Model) > maxModelBytes {
		return invalid(name, "model is too long.")
	}
	return nil
}

func stream(r *chatReader, name string, v []byte) error {
	r.req.Stream = v[0] == 't'
	return anyBool(r, name, v)
}

// streamMembers are the options of a stream.
var streamMembers = []string{"include_usage", "include_obfuscation"}

func streamOptions(r *chatReader, name string, v []byte) error {
	if !field.IsObject(v) {
		return field.WantType(name, "an object")
	}
	r.options = true
	var o [2][]byte // engines get options of ours
	if err := field.Read(v, streamMembers, o[:], func(strange []byte) { r.req.Ignored.Add("stream_options.", strange) }); err != nil {
		return field.Within(name, err)
	}
	for i, v := range o {
		if v != nil && !field.IsBool(v) {
			return field.WantType(name+"."+streamMembers[i], "true or false")
		}
	}
	r.req.IncludeUsage = string(o[0]) == "true"
	if string(o[1]) == "true" {
		r.req.Ignored.Name("stream_options.include_obfuscation")
	}
	return nil
}

func maxTokens(r *chatReader, name string, v []byte) error {
	n, err := field.Integer(name, v, 1, usage.MaxTokens)
	if name == "max_completion_tokens" {
		r.limit = n
	} else {
		r.req.MaxTokens = n
	}
	return err
}

func choices(r *chatReader, name string, v []byte) error {
	n, err := field.Integer(name, v, 1, MaxN)
	r.req.N = int(n)
	return err
}

func seed(_ *chatReader, name string, v []byte) error {
	_, err := field.Integer(name, v, math.MinInt64, math.MaxInt64)
	return err
}

func logitBias(r *chatReader, name string, v []byte) error {
	if !field.IsObject(v) {
		return field.WantType(name, "an object")
	}
	bias := number(-100, 100)
	m := scan.Object(v)
	for m.Next() {
		if _, err := strconv.Atoi(string(m.Key)); err != nil {
			return invalid(name, "logit_bias maps token ids to numbers.")
		}
		if err := bias(r, name, m.Value); err != nil {
			return err
		}
	}
	return nil
}

func logprobs(r *chatReader, name string, v []byte) error {
	r.logprobs = v[0] == 't'
	return anyBool(r, name, v)
}

func topLogprobs(r *chatReader, name string, v []byte) error {
	n, err := field.Integer(name, v, 0, maxTopLogprobs)
	r.top = n > 0
	return err
}

func stop(r *chatReader, name string, v []byte) error {
	const want = "a string, or up to 4 strings, none of them empty"
	if field.IsString(v) {
		if len(v) <= len(`""`) {
			return field.WantType(name, want)
		}
		return nil
	}
	e, n := scan.Array(v), 0
	for e.Next() {
		if n++; !field.IsString(e.Value) || len(e.Value) <= len(`""`) || n > r.stops {
			return field.WantType(name, want)
		}
	}
	if e.Err() != nil {
		return field.WantType(name, want)
	}
	return nil
}

// formatMembers are a response format's, schemaMembers those of its JSON schema.
var (
	formatMembers = []string{"type", "json_schema"}
	schemaMembers = []string{"name", "description", "schema", "strict"}
)

func responseFormat(r *chatReader, name string, v []byte) error {
	if !field.IsObject(v) {
		return field.WantType(name, "an object")
	}
	var f [2]found
	if err := r.object("response_format.", v, formatMembers, f[:]); err != nil {
		return field.Within(name, err)
	}
	switch field.Text(f[0].value) {
	case "text", "json_object":
		return nil
	case "json_schema":
		schema := f[1].value
		if !field.IsObject(schema) {
			return field.WantType(name+".json_schema", "an object with name and schema")
		}
		var s [4]found
		return field.Within(name+".json_schema", r.object("response_format.json_schema.", schema, schemaMembers, s[:]))
	}
	return field.WantType(name+".type", "one of text, json_object, json_schema")
}

// effort is how much is to be thought.
var effort = oneOf("none", "minimal", "low", "medium", "high", "xhigh", "max")

func reasoningEffort(r *chatReader, name string, v []byte) error {
	r.thinks = string(v) != `"none"`
	return effort(r, name, v)
}

func cacheKey(r *chatReader, name string, v []byte) error {
	if !field.IsString(v) {
		return field.WantType(name, "a string")
	}
	r.req.CacheKey = field.Text(v)
	r.dropped = append(r.dropped, name) // a hint for us alone
	return nil
}

func modalities(_ *chatReader, name string, v []byte) error {
	e := scan.Array(v)
	for e.Next() {
		if string(e.Value) != `"text"` {
			return invalid(name, "Only the modality text is supported.").WithCode("unsupported_parameter")
		}
	}
	if e.Err() != nil {
		return field.WantType(name, "an array of strings")
	}
	return nil
}

// serviceTier is for the gate, which knows what is offered; engines have their own ways.
func serviceTier(r *chatReader, name string, v []byte) error {
	if !field.IsString(v) {
		return field.WantType(name, "one of auto, default, flex, priority")
	}
	switch field.Text(v) {
	case "auto", "default":
	case "flex":
		r.req.Service = usage.Batch
	case "priority":
		r.req.Service = usage.Priority
	case "scale":
		return invalid(name, "There is no scale tier here. Leave service_tier out, or send \"default\".").WithCode("unsupported_value")
	default:
		return field.WantType(name, "one of auto, default, flex, priority")
	}
	r.req.TellService = true
	r.dropped = append(r.dropped, name)
	return nil
}

// OfChat reports whether Chat Completions has a member of this name: other dialects pass on only what it does not.
func OfChat(name string) bool {
	_, known := chatMembers[name]
	return known
}
