package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"millrace/internal/fault"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Limits of requests.
const (
	MaxBodyBytes   = 32 << 20 // 1M tokens of text and a few images fit
	MaxN           = 16       // choices of one request
	maxMembers     = 256      // of the body
	maxDepth       = 256      // of objects and arrays in one another: engines recurse
	maxModelBytes  = 256
	maxStops       = 4
	MaxBuiltStops  = 16 // of dialects that set no limit; engines take as many
	maxTopLogprobs = 20
	maxTools       = 1024
)

// Task is what is asked of an engine.
type Task int

// The tasks.
const (
	TaskChat      Task = iota
	TaskText           // a prompt instead of messages
	TaskEmbedding      // input instead of messages, no text comes back
)

// ChatRequest is a checked Chat Completions request: what Millrace needs to know of it, and a body for engines.
type ChatRequest struct {
	Body         []byte // the client's, without what is dropped
	Model        string // the public name
	Stream       bool
	IncludeUsage bool  // streamed: with a usage chunk
	MaxTokens    int64 // per choice; 0 = not given
	N            int
	Service      usage.Service
	TellService  bool                           // service_tier was given: the answer says which it was
	CacheKey     string                         // prompt_cache_key: a session's hint for routing
	Ignored      field.Ignored                  // what was accepted and dropped
	Extras       []string                       // members that are an engine's own, or nobody's
	CustomTools  []string                       // names of tools whose input is text; engines get functions
	OneCall      bool                           // parallel_tool_calls is false
	Legacy       bool                           // functions instead of tools: the answer has function_call
	RemoteImages int                            // images that are named by an address and not fetched yet
	ImagePlace   func(message, part int) string // where in the client's request an image is; nil = where it is in the body
	Task         Task                           // what is asked of the engine
	Messages     []byte                         // as the client sent them, or the prompt, for routing
	TextBytes    int64                          // bytes of text in the messages, for estimates
}

// chatReader is one body being checked.
type chatReader struct {
	req      *ChatRequest
	edits    []edit
	dropped  []string // members that engines do not get
	limit    int64    // max_completion_tokens
	options  bool     // stream_options were given
	logprobs bool
	top      bool     // top_logprobs were given
	toolList []byte   // tools
	tools    []string // their names
	choice   []byte   // tool_choice

	toolTexts      [][]byte // each tool as engines get it
	functionList   []byte   // functions
	functionChoice []byte   // function_call
	legacyCalls    int      // calls of functions in the history
	added          []byte   // members for engines, each after a comma
	stops          int      // stop sequences at most
	known          map[string]member
	prompts        int    // of a completion
	thinks         bool   // thinking is asked for
	thoughtless    []edit // that give assistant messages with calls an empty reasoning
	built          *Built // of a body that another dialect wrote; nil = the client's own
}

// edit replaces a span of the body.
type edit struct {
	start, end int
	text       string
}

// byStart puts edits in order: what is put in before what stands there.
func byStart(a, b edit) int { return cmp.Or(a.start-b.start, a.end-b.end) }

// DecodeChat checks a body. What is wrong with it is a fault of kind Invalid that names the member. The request keeps
// slices of body.
func DecodeChat(body []byte) (*ChatRequest, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "The request body is not valid JSON.").WithCode("invalid_json")
	}
	return (&chatReader{req: &ChatRequest{Body: body, N: 1, TextBytes: -1}, stops: maxStops, known: chatMembers}).decode()
}

// Built is what a dialect knows of the messages that it wrote: it made them of what it had checked, so they are not read again.
type Built struct {
	Messages     int   // how many there are
	TextBytes    int64 // of text in the messages
	RemoteImages int   // images by address, each checked by CheckImage
}

// DecodeBuilt checks a body that another dialect has built of a request that it has checked to be JSON. That dialect may
// allow more stop sequences than OpenAI's. What it has added of earlier turns counts in the size.
func DecodeBuilt(body []byte, b Built) (*ChatRequest, error) {
	if len(body) > MaxBodyBytes {
		return nil, fault.New(fault.TooLarge, "The request is larger than %d MiB with all that it continues from.", MaxBodyBytes>>20)
	}
	switch {
	case b.Messages > maxMessages:
		return nil, tooManyMessages()
	case b.RemoteImages > maxRemoteImages:
		return nil, tooManyImages().WithParam("messages")
	}
	return (&chatReader{req: &ChatRequest{Body: body, N: 1, TextBytes: -1}, stops: MaxBuiltStops, known: chatMembers, built: &b}).decode()
}

func (r *chatReader) decode() (*ChatRequest, error) {
	body := r.req.Body
	if r.built == nil && tooDeep(body) {
		return nil, depthFault()
	}
	var space [32][]byte
	seen := space[:0]
	m := scan.Object(body)
	for m.Next() {
		for _, k := range seen {
			if bytes.Equal(k, m.Key) {
				return nil, invalid(string(m.Key), "%q is given twice.", field.Clip(m.Key))
			}
		}
		if len(seen) == maxMembers {
			return nil, fault.New(fault.Invalid, "The request has more than %d members.", maxMembers)
		}
		seen = append(seen, m.Key)
		if err := r.member(m.Key, m.Value); err != nil {
			return nil, err
		}
	}
	if m.Err() != nil {
		return nil, fault.New(fault.Invalid, "The request body must be a JSON object.")
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	r.rebuild()
	return r.req, nil
}

func depthFault() *fault.Fault {
	return fault.New(fault.Invalid, "The request has more than %d objects and arrays in one another.", maxDepth).WithCode("invalid_json")
}

// tooDeep reports whether valid JSON is nested more deeply than maxDepth.
func tooDeep(body []byte) bool {
	depth := 0
	for i := 0; i < len(body); {
		switch body[i] {
		case '"':
			i = scan.String(body, i)
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
		i++
	}
	return false
}

// member checks one member. Null is as good as absent, but for what is required.
func (r *chatReader) member(name, v []byte) error {
	m, known := r.known[string(name)]
	if r.built != nil { // what the client nested in it is in the other members
		if m.name == "messages" {
			r.req.Messages, r.req.TextBytes, r.req.RemoteImages = v, r.built.TextBytes, r.built.RemoteImages
			return nil
		}
		if tooDeep(v) {
			return depthFault()
		}
	}
	switch {
	case !known && engine.Steers(name):
		return invalid(string(name), "%s steers engines: only Millrace sets it.", field.Clip(name)).WithCode("unsupported_parameter")
	case !known:
		r.req.Extras = append(r.req.Extras, string(name))
		return nil
	case field.IsNull(v) && !m.needed:
		return nil
	}
	return m.check(r, m.name, v)
}

// ignore drops a member and tells the client.
func (r *chatReader) ignore(name string) {
	r.req.Ignored.Name(name)
	r.dropped = append(r.dropped, name)
}

// replace puts text in the place of a value of the body.
func (r *chatReader) replace(value []byte, text string) {
	from := offset(r.req.Body, value)
	r.edits = append(r.edits, edit{from, from + len(value), text})
}

// finish checks what depends on several members.
func (r *chatReader) finish() error {
	q := r.req
	switch {
	case q.Model == "":
		return invalid("model", "You must provide a model.")
	case q.TextBytes < 0 && q.Task == TaskText:
		return invalid("prompt", "You must provide a prompt.")
	case q.TextBytes < 0 && q.Task == TaskEmbedding:
		return invalid("input", "You must provide an input.")
	case q.TextBytes < 0:
		return invalid("messages", "You must provide messages.")
	case r.options && !q.Stream:
		return invalid("stream_options", "stream_options is only allowed when stream is true.")
	case r.top && !r.logprobs:
		return invalid("top_logprobs", "top_logprobs is only allowed when logprobs is true.")
	}
	switch q.Task {
	case TaskText:
		return r.finishCompletion()
	case TaskEmbedding:
		return nil
	}
	if r.limit > 0 {
		if q.MaxTokens > 0 && q.MaxTokens != r.limit {
			q.Ignored.Name("max_tokens") // it is the same member by its former name
		}
		q.MaxTokens = r.limit
	}
	if err := r.checkLegacy(); err != nil {
		return err
	}
	if err := r.checkToolChoice(); err != nil {
		return err
	}
	r.fillReasoning()
	if len(q.CustomTools) > 0 && r.toolTexts != nil {
		r.keepTools(func(string) bool { return true })
	}
	return nil
}

// KeepExtras drops the extras that are not allowed; they count as ignored.
func (q *ChatRequest) KeepExtras(allowed []string) {
	var dropped []string
	for _, name := range q.Extras {
		if !slices.Contains(allowed, name) {
			dropped = append(dropped, name)
			q.Ignored.Name(name)
		}
	}
	if dropped != nil {
		q.Body = rewrite(q.Body, dropped, nil)
	}
}

// rebuild makes the engines' body where it is not the client's.
func (r *chatReader) rebuild() {
	if len(r.dropped) > 0 || len(r.edits) > 0 || len(r.added) > 0 {
		slices.SortStableFunc(r.edits, byStart)
		out := rewrite(r.req.Body, r.dropped, r.edits)
		r.req.Body = append(append(out[:len(out)-1], r.added...), '}')
	}
}

// rewrite copies an object without some members, and with edits to the others, in their order.
func rewrite(old []byte, dropped []string, edits []edit) []byte {
	out := append(make([]byte, 0, len(old)+64), '{')
	m := scan.Object(old)
	for m.Next() {
		if slices.Contains(dropped, string(m.Key)) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		for len(edits) > 0 && edits[0].start < m.Start {
			edits = edits[1:] // of a member that was dropped
		}
		n := 0
		for n < len(edits) && edits[n].start < m.End {
			n++
		}
		out = appendEdited(out, old, m.Start, m.End, edits[:n])
		edits = edits[n:]
	}
	return append(out, '}')
}

// appendEdited appends a span of a text with edits to it, in their order. An edit within an earlier one has no effect.
func appendEdited(dst, text []byte, from, end int, edits []edit) []byte {
	for _, e := range edits {
		if e.start >= from {
			dst = append(append(dst, text[from:e.start]...), e.text...)
			from = e.end
		}
	}
	return append(dst, text[from:end]...)
}

func invalid(param, format string, args ...any) *fault.Fault {
	return field.Invalid(param, format, args...)
}

// ---- checks of single values ---------------------------------------------------------------------------------------

type check func(r *chatReader, name string, v []byte) error

func anyBool(_ *chatReader, name string, v []byte) error {
	if !field.IsBool(v) {
		return field.WantType(name, "true or false")
	}
	return nil
}

func number(low, high float64) check {
	return func(_ *chatReader, name string, v []byte) error { return field.Number(name, v, low, high) }
}

func oneOf(values ...string) check {
	return func(_ *chatReader, name string, v []byte) error { return field.OneOf(name, v, values...) }
}

func refused(why string) check {
	return func(_ *chatReader, name string, v []byte) error {
		return invalid(name, "%s is not supported here: %s", name, why).WithCode("unsupported_parameter")
	}
}

func ignored(r *chatReader, name string, _ []byte) error {
	r.ignore(name)
	return nil
}

// bytesPerToken turns text into a low estimate of tokens: most languages have fewer bytes a token.
const bytesPerToken = 4

// EstimateTokens is how many tokens so many bytes of text are about, and a prompt never none.
func EstimateTokens(bytes int64) int64 { return bytes/bytesPerToken + 1 }

// Has reports whether the client sent this member.
func (q *ChatRequest) Has(name string) bool {
	m := scan.Object(q.Body)
	for m.Next() {
		if string(m.Key) == name {
			return true
		}
	}
	return false
}
