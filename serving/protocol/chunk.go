package protocol

import (
	"encoding/json"
	"errors"
	"strconv"

	"millrace/serving/engine/scan"
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
	if !json.Valid(data) {
		return ErrMalformed
	}
	m := scan.Object(data)
	known := false
	for m.Next() {
		switch key := string(m.Key); {
		case key == "choices":
			if known = true; !c.parseChoices(m.Value) {
				return ErrMalformed
			}
		case key == "error" && !isNull(m.Value):
			return engineError(data, m.Value)
		case key == "created":
			c.created = m.Value
		case (key == "usage" || key == counter) && m.Value[0] == '{':
			if c.usage == nil || key == "usage" {
				c.usage = m.Value
				c.readCount()
			}
		}
	}
	if m.Err() != nil || !known {
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

func (c *chunk) parseChoices(raw []byte) bool {
	if isNull(raw) {
		return true
	}
	e := scan.Array(raw)
	for e.Next() {
		var d delta
		if len(c.choices) == maxChoices || !d.parse(e.Value) {
			return false
		}
		c.choices = append(c.choices, d)
	}
	return e.Err() == nil
}

func (d *delta) parse(raw []byte) bool {
	m := scan.Object(raw)
	for m.Next() {
		if isNull(m.Value) {
			continue
		}
		switch string(m.Key) {
		case "index":
			n, err := strconv.Atoi(string(m.Value))
			if err != nil || n < 0 || n >= maxChoices {
				return false
			}
			d.index = n
		case "delta":
			if !d.parseDelta(m.Value) {
				return false
			}
		case "logprobs":
			d.logprobs = m.Value
		case "finish_reason":
			if m.Value[0] != '"' {
				return false
			}
			d.finish = m.Value
		}
	}
	return m.Err() == nil
}

func (d *delta) parseDelta(raw []byte) bool {
	m, members := scan.Object(raw), 0
	for m.Next() {
		if members++; isNull(m.Value) {
			continue
		}
		which := -1
		switch string(m.Key) {
		case "content":
			which = content
		case "reasoning_content", "reasoning":
			which = reasoning
		case "refusal":
			which = refusal
		case "tool_calls":
			if m.Value[0] != '[' {
				return false
			}
			if m.Value[scan.Space(m.Value, 1)] != ']' {
				d.tools = m.Value
			}
		}
		if which < 0 {
			continue
		}
		if m.Value[0] != '"' {
			return false
		}
		if d.texts[which] == nil { // both names of reasoning, equal: once
			d.texts[which] = m.Value
		}
	}
	d.bare = members == 1 && d.tools == nil
	return m.Err() == nil
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

func isNull(raw []byte) bool { return len(raw) == 4 && raw[0] == 'n' }
