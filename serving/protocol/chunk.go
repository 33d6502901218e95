package protocol

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode/utf8"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// ErrMalformed says that an engine sent something that is no Chat Completions chunk.
var ErrMalformed = errors.New("protocol: the engine's stream holds something that is no chunk")

// EngineError is an error frame in an engine's stream. Its text is for the log only.
type EngineError struct {
	Status int    // an HTTP status when the engine gave one as the code, else 0
	Text   string // the frame, cut
}

func (e *EngineError) Error() string { return "engine: error in the stream: " + e.Text }

// The texts a delta may carry, in the order in which they are shown.
const (
	reasoning = iota
	content
	refusal
	numTexts
)

// textNames are our names of the texts; engines also say "reasoning" for reasoning_content.
var textNames = [numTexts]string{"reasoning_content", "content", "refusal"}

// delta is one choice of a chunk: raw JSON values, nil where there is none or null.
type delta struct {
	index    int
	texts    [numTexts][]byte // JSON strings, quotes included
	tools    []byte
	logprobs []byte
	finish   []byte // a JSON string
	stopped  []byte // the stop sequence that ended the answer: inside of a JSON string
	bare     bool   // the delta has nothing but one text: a candidate for a shape
}

// says reports whether the delta carries anything of the answer itself.
func (d *delta) says() bool {
	for _, t := range d.texts {
		if len(t) > len(`""`) {
			return true
		}
	}
	return len(d.tools) > 0
}

// chunk is a parsed chunk: slices of its text. It is reused from chunk to chunk.
type chunk struct {
	choices []delta
	usage   []byte // the value of usage or of the engine's counter
	created []byte
	tokens  int64  // generated tokens so far, -1 unknown
	count   []byte // the digits of tokens
}

// step is what the chunk was.
func (c *chunk) step() Step {
	s := Step{Usage: c.usage != nil, Tokens: c.tokens, Choice: -1}
	if len(c.choices) == 1 {
		s.Choice = c.choices[0].index
	}
	for i := range c.choices {
		s.Says = s.Says || c.choices[i].says()
	}
	return s
}

// maxChoices bounds the choices of one chunk; requests are bounded to as many.
const maxChoices = 128

// parse reads a chunk. counter names a second member, besides usage, in which the engine counts ("timings"); "" = none.
func (c *chunk) parse(data []byte, counter string) error {
	c.choices, c.usage, c.created, c.tokens, c.count = c.choices[:0], nil, nil, -1, nil
	if !utf8.Valid(data) {
		return ErrMalformed // no client reads it
	}
	p := cursor{text: data}
	known := false
	p.open('{')
	for n := 0; p.more('}', n); n++ {
		switch key := p.key(); {
		case string(key) == "choices":
			known = true
			c.parseChoices(&p)
		case string(key) == "error":
			if v := p.value(); !p.bad && !field.IsNull(v) {
				return engineError(data, v)
			}
		case string(key) == "created":
			c.created = p.value()
		case string(key) == "usage" || string(key) == counter:
			usage := string(key) == "usage"
			if v := p.value(); len(v) > 0 && v[0] == '{' && (c.usage == nil || usage) {
				c.usage = v
				c.readCount()
			}
		default:
			p.value()
		}
	}
	if !known || !p.ended() {
		return ErrMalformed
	}
	return nil
}

func (c *chunk) readCount() {
	c.tokens, c.count = -1, nil
	m := scan.Object(c.usage)
	for m.Next() {
		if k := string(m.Key); k == "completion_tokens" || k == "predicted_n" {
			if n, err := strconv.ParseInt(string(m.Value), 10, 64); err == nil && n >= 0 {
				c.tokens, c.count = n, m.Value
			}
		}
	}
}

func (c *chunk) parseChoices(p *cursor) {
	if p.null() || !p.open('[') {
		return
	}
	for n := 0; p.more(']', n); n++ {
		if len(c.choices) == maxChoices {
			p.bad = true
			return
		}
		c.choices = append(c.choices, delta{})
		c.choices[n].parse(p)
	}
}

func (d *delta) parse(p *cursor) {
	p.open('{')
	for n := 0; p.more('}', n); n++ {
		key := p.key()
		if p.null() {
			continue
		}
		switch string(key) {
		case "index":
			i, err := strconv.Atoi(string(p.value()))
			if d.index = i; err != nil || i < 0 || i >= maxChoices {
				p.bad = true
			}
		case "delta", "message": // some engines stream whole messages
			d.parseDelta(p)
		case "text": // of a completion of text
			d.setText(content, p)
			d.bare = true
		case "logprobs":
			if d.logprobs = p.value(); !json.Valid(d.logprobs) {
				p.bad = true
			}
		case "finish_reason":
			switch v := p.value(); {
			case field.Inside(v) == nil:
				p.bad = true
			case len(v) > len(`""`): // some engines say "" until there is a reason
				d.finish = v
			}
		case "stop_reason", "matched_stop": // vLLM's and SGLang's; a number is a token, which nobody asked to stop at
			if v := field.Inside(p.value()); len(v) > 0 && cleanText(v) {
				d.stopped = v
			}
		default:
			p.value()
		}
	}
}

func (d *delta) parseDelta(p *cursor) {
	p.open('{')
	said := 0
	for n := 0; p.more('}', n); n++ {
		key := p.key()
		if p.null() {
			continue
		}
		said++
		switch string(key) {
		case "content":
			d.setText(content, p)
		case "reasoning_content", "reasoning":
			d.setText(reasoning, p)
		case "refusal":
			d.setText(refusal, p)
		case "tool_calls":
			v := p.value()
			if len(v) < 2 || v[0] != '[' || !json.Valid(v) {
				p.bad = true
			} else if v[scan.Space(v, 1)] != ']' {
				d.tools = v
			}
		case "function_call": // what came before tool_calls
			if v := p.value(); !field.IsObject(v) || !json.Valid(v) {
				p.bad = true
			} else if d.tools == nil {
				d.tools = append(append([]byte(`[{"index":0,"function":`), v...), `}]`...)
			}
		default:
			p.value()
		}
	}
	for _, t := range d.texts { // SGLang and TensorRT-LLM name the text that there is none of
		if len(t) == len(`""`) {
			said--
		}
	}
	d.bare = said == 1 && d.tools == nil
}

func (d *delta) setText(which int, p *cursor) {
	v := p.value()
	in := field.Inside(v)
	if in == nil || !cleanText(in) {
		p.bad = true
	} else if len(d.texts[which]) <= len(`""`) { // both names of reasoning, equal: once
		d.texts[which] = v
	}
}

// maxErrorText bounds what is kept of an engine's error for the log, in bytes.
const maxErrorText = 512

func engineError(data, value []byte) error {
	e := &EngineError{Text: string(data[:min(len(data), maxErrorText)])}
	m := scan.Object(value)
	for m.Next() {
		if k := string(m.Key); k == "code" || k == "status" || k == "status_code" {
			if n, err := strconv.Atoi(string(m.Value)); err == nil && n >= 400 && n < 600 {
				e.Status = n
			}
		}
	}
	return e
}
