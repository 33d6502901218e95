package responses

import (
	"errors"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
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
	if c.Seal == nil || !field.IsString(sealed) {
		return nil
	}
	return c.Seal.Open(field.Inside(sealed))
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
	d := dialogue{q: q, before: c, out: make([]byte, 0, len(q.Input)+len(q.instructions)+len(q.toolsGiven)+len(q.toolsGiven)/2+768),
		origins: make([]origin, 0, 32), starts: make([]int, 0, 32)}
	d.out = append(scan.Quote(append(d.out, `{"model":`...), q.Model), `,"messages":[`...)
	if err := d.build(); err != nil {
		return nil, err
	}
	if err := q.tools.choose(q, q.choiceGiven); err != nil {
		return nil, err
	}
	if q.Truncates() {
		q.said = &d
	}
	return q.decode(&d)
}

// decode checks the request for the engines, as every request is.
func (q *Request) decode(d *dialogue) (*protocol.ChatRequest, error) {
	known := protocol.Built{Messages: len(d.origins), TextBytes: min(d.text, int64(len(d.out)))}
	for i := range d.origins {
		for _, p := range d.origins[i].pictures {
			if p.remote {
				known.RemoteImages++
			}
		}
	}
	chat, err := protocol.DecodeBuilt(q.body(d), known)
	if err != nil {
		return nil, Translate(err)
	}
	for _, name := range chat.Ignored {
		q.Ignored.Name(name)
	}
	if known.RemoteImages > 0 {
		origins := d.origins
		chat.ImagePlace = func(message, part int) string { return imagePlace(origins, message, part) }
	}
	chat.Ignored = q.Ignored
	chat.IncludeUsage = true
	return chat, nil
}

// build writes the messages.
func (d *dialogue) build() error {
	d.item = -1
	if v := d.q.instructions; v != nil {
		d.system = append(d.system, field.Inside(v)...)
	}
	for _, list := range d.before.Items {
		if err := d.items(list, false); err != nil {
			return err
		}
	}
	switch in := d.q.Input; {
	case in == nil:
	case field.IsString(in):
		d.item = 0
		d.begin()
		d.start("user")
		d.out = append(append(d.out, in...), '}')
		d.text += int64(len(in))
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
	if len(d.starts) == 0 {
		return field.Invalid("input", "The input holds nothing that a model could answer.")
	}
	return nil
}

// thinks reports whether the client asked for thinking.
func (q *Request) thinks() bool {
	return q.effort != nil && string(q.effort) != `"none"` || q.effort == nil && (q.summary != nil || q.Encrypted)
}

// body writes the rest of the canonical request, after the messages.
func (q *Request) body(d *dialogue) []byte {
	b := append(d.out, ']')
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
	f := q.format
	switch field.Text(f.kind) {
	case "json_object":
		return append(b, `,"response_format":{"type":"json_object"}`...)
	case "json_schema":
		b = append(append(b, `,"response_format":{"type":"json_schema","json_schema":{"name":`...), f.name...)
		if f.description != nil {
			b = append(append(b, `,"description":`...), f.description...)
		}
		b = append(append(b, `,"schema":`...), f.schema...)
		if f.strict != nil {
			b = append(append(b, `,"strict":`...), f.strict...)
		}
		return append(b, `}}`...)
	}
	return b
}

// ofChat are our names of members that the pipeline knows by Chat Completions' names.
var ofChat = map[string]string{"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens", "messages": "input",
	"reasoning_effort": "reasoning.effort", "response_format": "text.format", "top_logprobs": "top_logprobs", "logprobs": "include"}

// imagePlace is where in the request an image of the messages comes from.
func imagePlace(origins []origin, message, part int) string {
	if message < len(origins) {
		for _, p := range origins[message].pictures {
			if p.part == part && p.item >= 0 {
				return field.At("input", p.item) + "." + field.At(p.list, p.at) + ".image_url"
			}
		}
	}
	return "input"
}

// Translate gives a fault of the pipeline the names that this dialect's clients know.
func Translate(err error) error {
	var f *fault.Fault
	if !errors.As(err, &f) {
		return err
	}
	name, known := ofChat[f.Param]
	if strings.HasPrefix(f.Param, "messages[") {
		name, known = "input", true
	}
	if !known {
		return err
	}
	out := *f
	out.Param = name
	return &out
}
