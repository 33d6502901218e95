package responses

import (
	"slices"
	"unicode/utf8"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
)

type check func(q *Request, name string, v []byte) error

// members are the members of the request. Others are ignored, and named in a warning: clients send members of their own.
var members map[string]check

func init() {
	members = map[string]check{
		"model":                  modelName,
		"input":                  func(q *Request, _ string, v []byte) error { q.Input = v; return nil },
		"instructions":           keepString(func(q *Request) *[]byte { return &q.instructions }),
		"stream":                 boolean(func(q *Request) *bool { return &q.Stream }),
		"store":                  store,
		"background":             boolean(func(q *Request) *bool { return &q.Background }),
		"previous_response_id":   identifier(func(q *Request) *string { return &q.Previous }),
		"conversation":           conversation,
		"stream_options":         streamOptions,
		"tools":                  func(q *Request, _ string, v []byte) error { q.toolsGiven = v; return nil },
		"tool_choice":            func(q *Request, _ string, v []byte) error { q.choiceGiven = v; return nil },
		"parallel_tool_calls":    parallelCalls,
		"max_output_tokens":      wholeNumber(func(q *Request) *[]byte { return &q.maxOutput }, 1, usage.MaxTokens),
		"max_tool_calls":         maxToolCalls,
		"temperature":            keepNumber(func(q *Request) *[]byte { return &q.temperature }, 0, 2),
		"top_p":                  keepNumber(func(q *Request) *[]byte { return &q.topP }, 0, 1),
		"presence_penalty":       keepNumber(func(q *Request) *[]byte { return &q.presence }, -2, 2),
		"frequency_penalty":      keepNumber(func(q *Request) *[]byte { return &q.frequency }, -2, 2),
		"top_logprobs":           topLogprobs,
		"text":                   textOptions,
		"reasoning":              reasoningOptions,
		"include":                include,
		"truncation":             truncation,
		"metadata":               metadata,
		"prompt_cache_key":       cacheKey,
		"safety_identifier":      keepString(func(q *Request) *[]byte { return &q.safety }),
		"user":                   keepString(func(q *Request) *[]byte { return &q.user }),
		"service_tier":           serviceTier,
		"prompt":                 prompt,
		"prompt_cache_retention": ignored,
		"prompt_cache_options":   ignored,
	}
}

func store(q *Request, name string, v []byte) error {
	q.StoreSaid = true
	return boolean(func(q *Request) *bool { return &q.Store })(q, name, v)
}

func ignored(q *Request, name string, _ []byte) error { q.ignore("%s", name); return nil }

func modelName(q *Request, name string, v []byte) error {
	if !isString(v) {
		return wantType(name, "a string")
	}
	if q.Model = text(v); len(q.Model) > maxModelBytes {
		return invalid(name, "model is too long.")
	}
	return nil
}

func keepString(into func(*Request) *[]byte) check {
	return func(q *Request, name string, v []byte) error {
		if !isString(v) {
			return wantType(name, "a string")
		}
		*into(q) = v
		return nil
	}
}

func keepNumber(into func(*Request) *[]byte, low, high float64) check {
	return func(q *Request, name string, v []byte) error {
		*into(q) = v
		return number(name, v, low, high)
	}
}

func wholeNumber(into func(*Request) *[]byte, low, high int64) check {
	return func(q *Request, name string, v []byte) error {
		*into(q) = v
		_, err := integer(name, v, low, high)
		return err
	}
}

func boolean(into func(*Request) *bool) check {
	return func(q *Request, name string, v []byte) error {
		if !isBool(v) {
			return wantType(name, "true or false")
		}
		*into(q) = v[0] == 't'
		return nil
	}
}

func identifier(into func(*Request) *string) check {
	return func(q *Request, name string, v []byte) error {
		if !isString(v) || len(v) > maxIDBytes || len(v) <= len(`""`) {
			return wantType(name, "an id")
		}
		*into(q) = text(v)
		return nil
	}
}

// conversation is an id, or an object with one.
func conversation(q *Request, name string, v []byte) error {
	if isObject(v) {
		f, err := fields(v, "id")
		if err != nil {
			return within(name, err)
		}
		if v, name = f[0], name+".id"; v == nil {
			return wantType(name, "an id")
		}
	}
	return identifier(func(q *Request) *string { return &q.Conversation })(q, name, v)
}

func streamOptions(q *Request, name string, v []byte) error {
	f, err := fields(v, "include_obfuscation")
	if err != nil {
		return within(name, err)
	}
	if v := f[0]; v != nil {
		if !isBool(v) {
			return wantType(name+".include_obfuscation", "true or false")
		}
		if v[0] == 't' {
			q.ignore("%s.include_obfuscation", name)
		}
	}
	return nil
}

func parallelCalls(q *Request, name string, v []byte) error {
	if !isBool(v) {
		return wantType(name, "true or false")
	}
	q.parallel = v
	return nil
}

// maxToolCalls is about tools that a server runs: none are run here.
func maxToolCalls(q *Request, name string, v []byte) error {
	q.ignore("%s", name)
	q.maxToolCalls = v
	_, err := integer(name, v, 1, usage.MaxTokens)
	return err
}

func topLogprobs(q *Request, name string, v []byte) error {
	n, err := integer(name, v, 0, maxTopLogprobs)
	q.topLogprobs = v
	q.Logprobs = q.Logprobs || n > 0
	return err
}

// included are what include may name; those that are false belong to tools that nobody runs here.
var included = map[string]bool{
	"reasoning.encrypted_content": true, "reasoning.content": true, "message.output_text.logprobs": true,
	"web_search_call.action.sources": false, "web_search_call.results": false, "file_search_call.results": false,
	"code_interpreter_call.outputs": false, "computer_call_output.output.image_url": false, "message.input_image.image_url": false,
}

func include(q *Request, name string, v []byte) error {
	if !isArray(v) {
		return wantType(name, "an array of strings")
	}
	e := scan.Array(v)
	for i := 0; e.Next(); i++ {
		what := text(e.Value)
		acts, known := included[what]
		switch {
		case !known:
			return invalid(at(name, i), "There is nothing to include called %q.", clip(what)).WithCode("unsupported_value")
		case !acts:
			q.ignore("include (%s)", what)
		}
		q.Encrypted = q.Encrypted || what == "reasoning.encrypted_content"
		q.Content = q.Content || what == "reasoning.content"
		q.Logprobs = q.Logprobs || what == "message.output_text.logprobs"
	}
	return nil
}

func truncation(q *Request, name string, v []byte) error {
	q.truncation = v
	return oneOf(name, v, "auto", "disabled")
}

func metadata(q *Request, name string, v []byte) error {
	q.Metadata = v
	return CheckMetadata(name, v)
}

// CheckMetadata checks a metadata object: at most 16 pairs of strings.
func CheckMetadata(name string, v []byte) error {
	if !isObject(v) {
		return wantType(name, "an object of strings")
	}
	m, n := scan.Object(v), 0
	for m.Next() {
		key := clip(string(m.Key))
		n++
		switch {
		case n > maxMetadata:
			return invalid(name, "metadata has more than %d pairs.", maxMetadata)
		case utf8.RuneCount(m.Key) > maxMetadataKey:
			return invalid(name, "A key of metadata is longer than %d characters.", maxMetadataKey)
		case !isString(m.Value):
			return wantType(name+"."+key, "a string")
		case len(m.Value) > maxMetadataValue && utf8.RuneCountInString(text(m.Value)) > maxMetadataValue:
			return invalid(name+"."+key, "A value of metadata is longer than %d characters.", maxMetadataValue)
		}
	}
	return nil
}

func cacheKey(q *Request, name string, v []byte) error {
	if !isString(v) || len(v) > maxCacheKeyBytes {
		return wantType(name, "a short string")
	}
	q.cacheKey = v
	return nil
}

// Priority reports whether the client asks to be served before others.
func (q *Request) Priority() bool { return text(q.service) == "priority" }

func serviceTier(q *Request, name string, v []byte) error {
	q.service = v
	if text(v) == "scale" {
		return invalid(name, "There is no scale tier here. Leave service_tier out, or send \"default\".").WithCode("unsupported_value")
	}
	return oneOf(name, v, "auto", "default", "flex", "priority")
}

func prompt(_ *Request, name string, _ []byte) error {
	return unsupported(name, "Prompt templates are not supported here: send instructions and input.")
}

// ---- reasoning and text --------------------------------------------------------------------------------------------

var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func reasoningOptions(q *Request, name string, v []byte) error {
	if !isObject(v) {
		return wantType(name, "an object")
	}
	m := scan.Object(v)
	for m.Next() {
		key := string(m.Key)
		if isNull(m.Value) {
			continue
		}
		switch key {
		case "effort":
			q.effort = m.Value
			if !isString(m.Value) || !slices.Contains(efforts, text(m.Value)) {
				return oneOf(name+".effort", m.Value, efforts...)
			}
		case "summary", "generate_summary":
			q.summary = m.Value
			if err := oneOf(name+"."+key, m.Value, "auto", "concise", "detailed"); err != nil {
				return err
			}
		default:
			q.ignore("%s.%s", name, shown(key))
		}
	}
	return nil
}

func textOptions(q *Request, name string, v []byte) error {
	f, err := fields(v, "format", "verbosity")
	if err != nil {
		return within(name, err)
	}
	if q.verbosity = f[1]; f[1] != nil {
		if err := oneOf(name+".verbosity", f[1], "low", "medium", "high"); err != nil {
			return err
		}
		if text(f[1]) != "medium" {
			q.ignore("%s.verbosity", name)
		}
	}
	if q.format = f[0]; f[0] == nil {
		return nil
	}
	return within(name+".format", checkFormat(f[0]))
}

func checkFormat(v []byte) error {
	f, err := fields(v, "type", "name", "schema", "description", "strict")
	if err != nil {
		return err
	}
	switch text(f[0]) {
	case "text", "json_object":
		return nil
	case "json_schema":
	default:
		return wantType("type", "one of text, json_object, json_schema")
	}
	switch {
	case !isString(f[1]) || len(f[1]) > maxToolName:
		return wantType("name", "a short string")
	case !isObject(f[2]):
		return wantType("schema", "a JSON schema")
	case f[3] != nil && !isString(f[3]):
		return wantType("description", "a string")
	case f[4] != nil && !isBool(f[4]):
		return wantType("strict", "true or false")
	}
	return nil
}
