package dsml

import (
	"encoding/json"
	"errors"
	"strconv"

	"millrace/serving/engine/scan"
)

// ErrMalformed says that the engine sent something that is no chunk of a completion.
var ErrMalformed = errors.New("dsml: the engine's stream holds something that is no completion chunk")

// maxChoices bounds the choices of one stream.
const maxChoices = 128

// Stream turns the chunks of a raw completion (/v1/completions) into Chat Completions chunks, one into one. One goroutine.
type Stream struct {
	o       ParseOptions
	newID   func(call int) string
	choices []*streamChoice
	thought tokens
	text    []byte // of one chunk
}

type streamChoice struct {
	parser   *Parser
	finished bool
}

// NewStream makes a stream for what follows a prompt. newID makes the ids of calls; nil = random ones.
func NewStream(o ParseOptions, newID func(call int) string) *Stream {
	return &Stream{o: o, newID: newID, thought: tokens{ok: true}}
}

// Done reports whether every choice that the engine spoke of is over: it may be stopped.
func (s *Stream) Done() bool {
	for _, c := range s.choices {
		if !c.finished {
			return false
		}
	}
	return len(s.choices) > 0
}

// rawChunk is a completion's chunk: raw values, nil where there is none or null.
type rawChunk struct {
	choices, usage, created, failure []byte
}

// Add appends the Chat Completions chunk that one event's data becomes. The stream's end mark and errors stay as they are.
// A stream that ends without the engine's finish reason gives none either: nobody knows whether it was complete.
func (s *Stream) Add(dst, data []byte) ([]byte, error) {
	if string(data) == "[DONE]" {
		return append(dst, data...), nil
	}
	if !json.Valid(data) {
		return dst, ErrMalformed
	}
	var c rawChunk
	readMembers(data, wanted{"choices", &c.choices}, wanted{"usage", &c.usage}, wanted{"created", &c.created}, wanted{"error", &c.failure})
	if c.failure != nil {
		return append(dst, data...), nil
	}
	dst = append(dst, `{"object":"chat.completion.chunk"`...)
	if c.created != nil {
		dst = append(append(dst, `,"created":`...), c.created...)
	}
	dst = append(dst, `,"choices":[`...)
	count := completionTokens(c.usage)
	e, n := scan.Array(c.choices), 0
	for c.choices != nil && e.Next() {
		if n++; n > 1 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = s.choice(dst, e.Value, count); err != nil {
			return dst, err
		}
	}
	if c.choices == nil && c.usage == nil || c.choices != nil && e.Err() != nil {
		return dst, ErrMalformed
	}
	dst = append(dst, ']')
	if c.usage != nil {
		dst = s.thought.appendUsage(append(dst, `,"usage":`...), c.usage)
	}
	return append(dst, '}'), nil
}

// wanted says where the member of a name goes.
type wanted struct {
	name string
	into *[]byte
}

// readMembers finds members of an object; what is not there or null stays as it is.
func readMembers(raw []byte, all ...wanted) {
	m := scan.Object(raw)
	for m.Next() {
		for _, w := range all {
			if string(m.Key) == w.name && string(m.Value) != "null" {
				*w.into = m.Value
			}
		}
	}
}

// at gives the choice with an index.
func (s *Stream) at(index int) *streamChoice {
	for len(s.choices) <= index {
		s.choices = append(s.choices, &streamChoice{parser: NewParser(s.o, s.newID)})
	}
	if len(s.choices) > 1 {
		s.thought.ok = false // the engine counts all choices together
	}
	return s.choices[index]
}

func (s *Stream) choice(dst, raw []byte, count int64) ([]byte, error) {
	var number, quoted, finish []byte
	readMembers(raw, wanted{"index", &number}, wanted{"text", &quoted}, wanted{"finish_reason", &finish})
	index := 0
	if number != nil {
		n, err := strconv.Atoi(string(number))
		if err != nil || n < 0 || n >= maxChoices {
			return dst, ErrMalformed
		}
		index = n
	}
	var ok bool
	if s.text, ok = scan.Text(s.text[:0], quoted); !ok && quoted != nil {
		return dst, ErrMalformed
	}
	c := s.at(index)
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = append(dst, `,"delta":{`...)
	if c.finished {
		return append(dst, `},"finish_reason":null}`...), nil
	}
	thinking := c.parser.Thinking()
	d := delta{dst: dst}
	d.add(c.parser.Feed(s.text))
	reason, over := str(finish), c.parser.Done()
	if reason != "" && !over {
		d.add(c.parser.Finish())
	}
	dst = d.close()
	if c.parser.Done() && (reason != "" || over) {
		c.finished, reason = true, c.parser.FinishReason(reason, over)
	}
	s.thought.add(count, d.reasoning, d.size, thinking, c.parser.Thinking())
	return appendFinish(dst, c.parser, reason), nil
}

// appendFinish appends what follows a delta.
func appendFinish(dst []byte, p *Parser, reason string) []byte {
	if reason == "" {
		return append(dst, `,"finish_reason":null}`...)
	}
	dst = appendString(append(dst, `,"finish_reason":`...), reason)
	if stop := p.Stopped(); stop != "" {
		dst = appendString(append(dst, `,"stop_reason":`...), stop)
	}
	return append(dst, '}')
}
