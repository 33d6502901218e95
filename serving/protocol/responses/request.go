package responses

import (
	"encoding/json"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// Limits of requests.
const (
	maxMembers       = 256 // of the body
	maxModelBytes    = 256
	maxItems         = 16 << 10
	maxParts         = 4 << 10 // of one item
	maxTools         = 1024
	maxToolName      = 128 // bytes
	maxIDBytes       = 256
	maxCacheKeyBytes = 1024
	maxMetadata      = 16
	maxMetadataKey   = 64  // characters
	maxMetadataValue = 512 // characters
	maxTopLogprobs   = 20
)

// Request is a checked request. What is raw is JSON as the client sent it; nil means that it was absent or null.
type Request struct {
	Model        string
	Stream       bool
	Store        bool // OpenAI's default is true
	StoreSaid    bool // it is no default
	Background   bool
	Previous     string // previous_response_id
	Conversation string
	Input        []byte // raw: a string or an array of items
	Metadata     []byte // raw
	Ignored      field.Ignored
	Kept         []byte // array: the input's items as they are kept, once Chat has been asked to keep them

	Encrypted bool // include: reasoning.encrypted_content
	Content   bool // include: reasoning.content
	Logprobs  bool // include: message.output_text.logprobs, or top_logprobs

	instructions, maxOutput, maxToolCalls, temperature, topP, presence, frequency, topLogprobs []byte
	parallel, cacheKey, safety, user, service, truncation                                      []byte
	effort, summary, verbosity, toolsGiven, choiceGiven                                        []byte
	format                                                                                     *format // nil = text

	said   *dialogue // what Chat wrote, where Shorten may be called
	extras []byte    // members, each with a comma before it
	tools  toolbox
}

// Decode checks the members of a body; Chat checks its tools and its input. What is wrong with it is a fault of kind Invalid that names the member. The request keeps slices
// of body.
func Decode(body []byte) (*Request, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "The request body is not valid JSON.").WithCode("invalid_json")
	}
	q := &Request{Store: true}
	seen := make(map[string]bool, 16)
	m := scan.Object(body)
	for m.Next() {
		name := string(m.Key)
		if seen[name] {
			return nil, field.Invalid(field.Clip(name), "%q is given twice.", field.Clip(name))
		}
		if len(seen) == maxMembers {
			return nil, fault.New(fault.Invalid, "The request has more than %d members.", maxMembers)
		}
		seen[name] = true
		if field.IsNull(m.Value) {
			continue
		}
		if err := q.member(name, m.Value, body[m.Start:m.End]); err != nil {
			return nil, err
		}
	}
	if m.Err() != nil {
		return nil, fault.New(fault.Invalid, "The request body must be a JSON object.")
	}
	return q, q.finish()
}

func (q *Request) member(name string, v, both []byte) error {
	if check, known := members[name]; known {
		return check(q, name, v)
	}
	if protocol.OfChat(name) {
		q.Ignored.Name(name)
	} else {
		q.extras = append(append(q.extras, ','), both...) // an engine's own, or nobody's: the model's list decides
	}
	return nil
}

// read reads the named members of an object. Others are named to the client: they have no effect.
func (q *Request) read(place string, raw []byte, names []string, into [][]byte) error {
	return field.Read(raw, names, into, func(name []byte) { q.Ignored.Add(place, name) })
}

// finish checks what depends on several members.
func (q *Request) finish() error {
	switch {
	case q.Model == "":
		return field.Invalid("model", "You must provide a model.").WithCode("missing_required_parameter")
	case q.Input == nil && q.Previous == "" && q.Conversation == "":
		return field.Invalid("input", "You must provide input.").WithCode("missing_required_parameter")
	case q.Previous != "" && q.Conversation != "":
		return field.Invalid("conversation", "Send previous_response_id or conversation, not both.")
	case q.Background && !q.Store:
		return field.Invalid("background", "A response in the background needs store: true.")
	}
	if q.Input != nil && !field.IsString(q.Input) && !field.IsArray(q.Input) {
		return field.WantType("input", "a string or an array of items")
	}
	return nil
}

// MaxOutput is the most tokens that the client wants; 0 = not said.
func (q *Request) MaxOutput() (n int64) {
	if q.maxOutput != nil {
		n, _ = field.Integer("max_output_tokens", q.maxOutput, 1, usage.MaxTokens)
	}
	return n
}
