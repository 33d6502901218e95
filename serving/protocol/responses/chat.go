package responses

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
)

// Context is what a request stands on. The zero value is nothing.
type Context struct {
	Items  [][]byte                        // arrays of items of the turns before, oldest first
	Seal   *protocol.ReasoningSeal         // opens what was sealed here; nil = nothing is
	Find   func(id string) ([]byte, error) // a kept item by its id, nil when there is none; nil = none are kept
	After  []byte                          // an array of items that follow the request's own
	Keep   string                          // items of the input are kept: what the ids end in that they get, nothing = they are not
	Refuse bool                            // tools that OpenAI runs are refused, not dropped
}

// open gives what was sealed, the inside of a string; nil for anything else.
func (c *Context) open(sealed []byte) []byte {
	if c.Seal == nil || !isString(sealed) {
		return nil
	}
	return c.Seal.Open(inside(sealed))
}

func (c *Context) find(id string) ([]byte, error) {
	if c.Find == nil {
		return nil, nil
	}
	return c.Find(id)
}

// Chat writes the Chat Completions request that says the same. It is called once for each request.
func (q *Request) Chat(c *Context) (*protocol.ChatRequest, error) {
	q.tools.refuse = c.Refuse
	if q.toolsGiven != nil {
		if err := q.tools.read(q, "tools", q.toolsGiven); err != nil {
			return nil, err
		}
	}
	d := dialogue{q: q, before: c, out: make([]byte, 0, len(q.Input)+len(q.instructions)+256)}
	if err := d.build(); err != nil {
		return nil, err
	}
	if err := q.tools.choose(q.choiceGiven); err != nil {
		return nil, err
	}
	if q.Truncates() {
		q.said = &d
	}
	return q.decode(&d)
}

// decode checks the request for the engines, as every request is.
func (q *Request) decode(d *dialogue) (*protocol.ChatRequest, error) {
	chat, err := protocol.DecodeBuilt(q.body(d))
	if err != nil {
		return nil, q.translate(err, d.origins)
	}
	for _, name := range chat.Ignored {
		q.ignore("%s", name)
	}
	chat.Ignored = q.Ignored
	chat.IncludeUsage = true
	return chat, nil
}

// build writes the messages.
func (d *dialogue) build() error {
	d.item = -1
	if v := d.q.instructions; v != nil {
		d.system = append(d.system, inside(v)...)
	}
	for _, list := range d.before.Items {
		if err := d.items(list, false); err != nil {
			return err
		}
	}
	switch in := d.q.Input; {
	case in == nil:
	case isString(in):
		d.item = 0
		d.begin()
		d.put(`{"role":"user","content":`, func(b []byte) []byte { return append(b, in...) }, `}`)
		if err := d.keep(append(append([]byte(`{"role":"user","content":`), in...), '}')); err != nil {
			return err
		}
	default:
		if err := d.items(in, true); err != nil {
			return err
		}
	}
	if d.before.After != nil {
		if err := d.items(d.before.After, false); err != nil {
			return err
		}
	}
	d.begin()
	if len(d.out) == 0 {
		return invalid("input", "The input holds nothing that a model could answer.")
	}
	return nil
}

// body writes the canonical request.
func (q *Request) body(d *dialogue) []byte {
	b := make([]byte, 0, len(d.out)+len(q.toolsGiven)+len(q.toolsGiven)/2+512)
	b = scan.Quote(append(b, `{"model":`...), q.Model)
	b = append(append(append(b, `,"messages":[`...), d.out...), ']')
	tools := len(b)
	if b = q.tools.appendChat(b); len(b) > tools && q.parallel != nil {
		b = append(append(b, `,"parallel_tool_calls":`...), q.parallel...)
	}
	if q.Stream {
		b = append(b, `,"stream":true`...)
	}
	for _, m := range []struct {
		name string
		v    []byte
	}{{"max_completion_tokens", q.maxOutput}, {"temperature", q.temperature}, {"top_p", q.topP}, {"presence_penalty", q.presence},
		{"frequency_penalty", q.frequency}, {"reasoning_effort", q.effort}, {"prompt_cache_key", q.cacheKey}, {"service_tier", q.service},
		{"user", q.user}, {"safety_identifier", q.safety}} {
		if m.v != nil {
			b = append(append(append(append(b, `,"`...), m.name...), `":`...), m.v...)
		}
	}
	if q.Logprobs {
		b = append(b, `,"logprobs":true`...)
		if q.topLogprobs != nil {
			b = append(append(b, `,"top_logprobs":`...), q.topLogprobs...)
		}
	}
	return append(append(q.appendFormat(b), q.extras...), '}')
}

// appendFormat appends response_format: here the schema's members stand beside its type, there in an object of their own.
func (q *Request) appendFormat(b []byte) []byte {
	if q.format == nil {
		return b
	}
	f, _ := fields(q.format, "type", "name", "schema", "description", "strict") // it was checked
	switch text(f[0]) {
	case "json_object":
		return append(b, `,"response_format":{"type":"json_object"}`...)
	case "json_schema":
		b = append(append(b, `,"response_format":{"type":"json_schema","json_schema":{"name":`...), f[1]...)
		if f[3] != nil {
			b = append(append(b, `,"description":`...), f[3]...)
		}
		b = append(append(b, `,"schema":`...), f[2]...)
		if f[4] != nil {
			b = append(append(b, `,"strict":`...), f[4]...)
		}
		return append(b, `}}`...)
	}
	return b
}

// ofChat are our names of members that the pipeline knows by Chat Completions' names.
var ofChat = map[string]string{"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "messages": "input",
	"reasoning_effort": "reasoning.effort", "response_format": "text.format", "top_logprobs": "top_logprobs", "logprobs": "include"}

var messagePlace = regexp.MustCompile(`^messages\[(\d+)\](.*)$`)

// Translate gives a fault of the pipeline the names that this dialect's clients know.
func Translate(err error) error { return (&Request{}).translate(err, nil) }

func (q *Request) translate(err error, origins []int) error {
	var f *fault.Fault
	if !errors.As(err, &f) || f.Param == "" {
		return err
	}
	out := *f
	if place := messagePlace.FindStringSubmatch(f.Param); place != nil {
		out.Param = "input"
		if n, _ := strconv.Atoi(place[1]); n < len(origins) && origins[n] >= 0 && !isString(q.Input) {
			out.Param = at("input", origins[n]) + strings.TrimSuffix(place[2], ".image_url.url")
		}
	} else if name, known := ofChat[f.Param]; known {
		out.Param = name
	}
	return &out
}
