package responses

import (
	"unicode/utf8"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
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

func ignored(q *Request, name string, _ []byte) error { q.Ignored.Name(name); return nil }

func modelName(q *Request, name string, v []byte) error {
	if !field.IsString(v) {
		return field.WantType(name, "a string")
	}
	if q.Model = field.Text(v); len(q.Model) > maxModelBytes {
		return field.Invalid(name, "model is too long.")
	}
	return nil
}

func keepString(into func(*Request) *[]byte) check {
	return func(q *Request, name string, v []byte) error {
		if !field.IsString(v) {
			return field.WantType(name, "a string")
		}
		*into(q) = v
		return nil
	}
}

func keepNumber(into func(*Request) *[]byte, low, high float64) check {
	return func(q *Request, name string, v []byte) error {
		*into(q) = v
		return field.Number(name, v, low, high)
	}
}

func wholeNumber(into func(*Request) *[]byte, low, high int64) check {
	return func(q *Request, name string, v []byte) error {
		*into(q) = v
		_, err := field.Integer(name, v, low, high)
		return err
	}
}

func boolean(into func(*Request) *bool) check {
	return func(q *Request, name string, v []byte) error {
		if !field.IsBool(v) {
			return field.WantType(name, "true or false")
		}
		*into(q) = v[0] == 't'
		return nil
	}
}

func identifier(into func(*Request) *string) check {
	return func(q *Request, name string, v []byte) error {
		if !field.IsString(v) || len(v) > maxIDBytes || len(v) <= len(`""`) {
			return field.WantType(name, "an id")
		}
		*into(q) = field.Text(v)
		return nil
	}
}

// conversation is an id, or an object with one.
func conversation(q *Request, name string, v []byte) error {
	if field.IsObject(v) {
		var in [1][]byte
		if err := q.read(name+".", v, []string{"id"}, in[:]); err != nil {
			return field.Within(name, err)
		}
		if v, name = in[0], name+".id"; v == nil {
			return field.WantType(name, "an id")
		}
	}
	return identifier(func(q *Request) *string { return &q.Conversation })(q, name, v)
}

func streamOptions(q *Request, name string, v []byte) error {
	var in [1][]byte
	if err := q.read(name+".", v, []string{"include_obfuscation"}, in[:]); err != nil {
		return field.Within(name, err)
	}
	if v := in[0]; v != nil {
		if !field.IsBool(v) {
			return field.WantType(name+".include_obfuscation", "true or false")
		}
		if v[0] == 't' {
			q.Ignored.Name("stream_options.include_obfuscation")
		}
	}
	return nil
}

func parallelCalls(q *Request, name string, v []byte) error {
	if !field.IsBool(v) {
		return field.WantType(name, "true or false")
	}
	q.parallel = v
	return nil
}

// maxToolCalls is about tools that a server runs: none are run here.
func maxToolCalls(q *Request, name string, v []byte) error {
	q.Ignored.Name(name)
	q.maxToolCalls = v
	_, err := field.Integer(name, v, 1, usage.MaxTokens)
	return err
}

func topLogprobs(q *Request, name string, v []byte) error {
	n, err := field.Integer(name, v, 0, maxTopLogprobs)
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
	if !field.IsArray(v) {
		return field.WantType(name, "an array of strings")
	}
	e := scan.Array(v)
	for i := 0; e.Next(); i++ {
		what := field.Text(e.Value)
		acts, known := included[what]
		switch {
		case !known:
			return field.Invalid(field.At(name, i), "There is nothing to include called %q.", field.Clip(what)).WithCode("unsupported_value")
		case !acts:
			q.Ignored.Name("include (" + what + ")")
		}
		q.Encrypted = q.Encrypted || what == "reasoning.encrypted_content"
		q.Content = q.Content || what == "reasoning.content"
		q.Logprobs = q.Logprobs || what == "message.output_text.logprobs"
	}
	return nil
}

func truncation(q *Request, name string, v []byte) error {
	q.truncation = v
	return field.OneOf(name, v, "auto", "disabled")
}

func metadata(q *Request, name string, v []byte) error {
	q.Metadata = v
	return CheckMetadata(name, v)
}

// CheckMetadata checks a metadata object: at most 16 pairs of strings.
func CheckMetadata(name string, v []byte) error {
	if !field.IsObject(v) {
		return field.WantType(name, "an object of strings")
	}
	m, n := scan.Object(v), 0
	for m.Next() {
		key := field.Clip(string(m.Key))
		n++
		switch {
		case n > maxMetadata:
			return field.Invalid(name, "metadata has more than %d pairs.", maxMetadata)
		case utf8.RuneCount(m.Key) > maxMetadataKey:
			return field.Invalid(name, "A key of metadata is longer than %d characters.", maxMetadataKey)
		case !field.IsString(m.Value):
			return field.WantType(name+"."+key, "a string")
		case len(m.Value) > maxMetadataValue && utf8.RuneCountInString(field.Text(m.Value)) > maxMetadataValue:
			return field.Invalid(name+"."+key, "A value of metadata is longer than %d characters.", maxMetadataValue)
		}
	}
	return nil
}

func cacheKey(q *Request, name string, v []byte) error {
	if !field.IsString(v) || len(v) > maxCacheKeyBytes {
		return field.WantType(name, "a short string")
	}
	q.cacheKey = v
	return nil
}

// Priority reports whether the client asks to be served before others.
func (q *Request) Priority() bool { return field.Text(q.service) == "priority" }

func serviceTier(q *Request, name string, v []byte) error {
	q.service = v
	if field.Text(v) == "scale" {
		return field.Invalid(name, "There is no scale tier here. Leave service_tier out, or send \"default\".").WithCode("unsupported_value")
	}
	return field.OneOf(name, v, "auto", "default", "flex", "priority")
}

func prompt(_ *Request, name string, _ []byte) error {
	return field.Unsupported(name, "Prompt templates are not supported here: send instructions and input.")
}

// ---- reasoning and text --------------------------------------------------------------------------------------------

var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

func reasoningOptions(q *Request, name string, v []byte) error {
	var in [3][]byte
	if err := q.read("reasoning.", v, reasoningMembers, in[:]); err != nil {
		return field.Within(name, err)
	}
	if q.effort = in[0]; q.effort != nil {
		if err := field.OneOf(name+".effort", q.effort, efforts...); err != nil {
			return err
		}
	}
	for i, summary := range in[1:] {
		if summary == nil {
			continue
		}
		q.summary = summary
		if err := field.OneOf(name+"."+reasoningMembers[1+i], summary, "auto", "concise", "detailed"); err != nil {
			return err
		}
	}
	return nil
}

var reasoningMembers = []string{"effort", "summary", "generate_summary"}

func textOptions(q *Request, name string, v []byte) error {
	var in [2][]byte
	if err := q.read("text.", v, []string{"format", "verbosity"}, in[:]); err != nil {
		return field.Within(name, err)
	}
	if q.verbosity = in[1]; in[1] != nil {
		if err := field.OneOf(name+".verbosity", in[1], "low", "medium", "high"); err != nil {
			return err
		}
		if field.Text(in[1]) != "medium" {
			q.Ignored.Name("text.verbosity")
		}
	}
	if in[0] == nil {
		return nil
	}
	return field.Within(name+".format", q.readFormat(in[0]))
}

// format is the form of the answer, raw: the schema's members are nil where it has none.
type format struct{ kind, name, schema, description, strict []byte }

var formatMembers = []string{"type", "name", "schema", "description", "strict"}

func (q *Request) readFormat(v []byte) error {
	var f [5][]byte
	if err := q.read("text.format.", v, formatMembers, f[:]); err != nil {
		return err
	}
	q.format = &format{f[0], f[1], f[2], f[3], f[4]}
	switch field.Text(f[0]) {
	case "text", "json_object":
		return nil
	case "json_schema":
	default:
		return field.WantType("type", "one of text, json_object, json_schema")
	}
	switch {
	case !field.IsString(f[1]) || len(f[1]) > maxToolName:
		return field.WantType("name", "a short string")
	case !field.IsObject(f[2]):
		return field.WantType("schema", "a JSON schema")
	case f[3] != nil && !field.IsString(f[3]):
		return field.WantType("description", "a string")
	case f[4] != nil && !field.IsBool(f[4]):
		return field.WantType("strict", "true or false")
	}
	return nil
}
