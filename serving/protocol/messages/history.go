package messages

import (
	"bytes"
	"slices"

	"millrace/serving/protocol/field"
)

// role says whose turn it is.
type role int

const (
	nobody role = iota
	system
	user
	assistant
)

var roleNames = map[string]role{`"system"`: system, `"user"`: user, `"assistant"`: assistant}

// part is a piece of a turn's content: the inside of a text, or an image's URL.
type part struct {
	text  []byte
	image bool
	at    spot // of an image
}

// call is a tool_use block; all insides of strings but the input, which is raw.
type call struct{ id, name, input []byte }

// result is a tool_result block.
type result struct {
	id, text []byte
	at       spot
}

// history is the conversation as chat has it, and the turn in the making: messages of one role that follow each other are
// one turn.
type history struct {
	out []byte // the chat body, of which messages are being written

	who     role
	at      spot // where the turn began
	parts   []part
	thought [][]byte
	calls   []call
	results []result

	open   map[string]bool // ids of the latest assistant turn's calls; true = without a result yet
	asked  spot            // where that turn began
	unmet  error           // an earlier turn's call never got its result
	last   role            // of the latest message that was written
	used   bool            // the latest assistant message holds calls
	bytes  int64           // of text
	more   int64           // bytes that tools, a schema and images count besides
	remote int             // images by address
}

// imageBytes is what an image counts in an estimate, in bytes of text: about 1600 tokens, as large ones have.
const imageBytes = 6400

func (h *history) say(text []byte) {
	if len(text) > 0 {
		h.parts = append(h.parts, part{text: text})
		h.bytes += int64(len(text))
	}
}

// fewCalls are a turn's calls whose table later turns use again.
const fewCalls = 64

// turn begins a turn of a role, or goes on with it.
func (r *reader) turn(who role, at spot) {
	if h := &r.history; h.who != who {
		r.flush()
		h.who, h.at = who, at
		if who == assistant {
			h.unanswered()
			h.asked = at
			if len(h.open) > fewCalls {
				h.open = nil // clearing it costs what it once held
			}
			clear(h.open)
		}
	}
}

// unanswered notes that a call has no result although the conversation has gone on. Of several it names the least.
func (h *history) unanswered() {
	if h.unmet != nil {
		return
	}
	var ids []string
	for id, open := range h.open {
		if open {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		h.unmet = field.Invalid(h.asked.String(), "The tool_use block %s has no tool_result block in the message after it: each needs one.", field.Clip([]byte(slices.Min(ids))))
	}
}

// flush writes the turn.
func (r *reader) flush() {
	h := &r.history
	switch h.who {
	case system, user:
		for i := range h.results {
			t := &h.results[i]
			r.begin("tool", place{at: t.at})
			h.out = append(append(append(h.out, `,"tool_call_id":"`...), t.id...), `","content":"`...)
			h.out = append(append(h.out, t.text...), `"}`...)
			h.last = user
		}
		if len(h.parts) > 0 {
			r.begin(map[role]string{system: "system", user: "user"}[h.who], place{at: h.at, parts: h.partPlaces()})
			h.out = append(h.appendContent(append(h.out, ',')), '}')
			h.last = h.who
		}
	case assistant:
		r.flushAssistant()
	}
	h.who, h.parts, h.thought, h.calls, h.results = nobody, h.parts[:0], h.thought[:0], h.calls[:0], h.results[:0]
}

// flushAssistant leaves out a turn that says nothing: an answer may have been empty, and engines refuse it.
func (r *reader) flushAssistant() {
	h := &r.history
	if len(h.parts) == 0 && len(h.calls) == 0 {
		return
	}
	r.begin("assistant", place{at: h.at})
	h.out = append(h.out, ',')
	if len(h.parts) == 0 {
		h.out = append(h.out, `"content":null`...)
	} else {
		h.out = h.appendContent(h.out)
	}
	if len(h.thought) > 0 || r.thinks && len(h.calls) > 0 { // models that think want it beside their calls, empty at least
		h.out = append(append(append(h.out, `,"reasoning_content":"`...), bytes.Join(h.thought, blockGap)...), '"')
	}
	for i, c := range h.calls {
		if i == 0 {
			h.out = append(h.out, `,"tool_calls":[{"id":"`...)
		} else {
			h.out = append(h.out, `,{"id":"`...)
		}
		h.out = append(append(append(h.out, c.id...), `","type":"function","function":{"name":"`...), c.name...)
		h.out = append(appendQuoted(append(h.out, `","arguments":`...), c.input), "}}"...)
	}
	if len(h.calls) > 0 {
		h.out = append(h.out, ']')
	}
	h.out = append(h.out, '}')
	h.last, h.used = assistant, len(h.calls) > 0
}

// begin begins a message.
func (r *reader) begin(name string, p place) {
	h := &r.history
	if len(r.req.places) > 0 {
		h.out = append(h.out, ',')
	}
	h.out = append(append(append(h.out, `{"role":"`...), name...), '"')
	r.req.places = append(r.req.places, p)
}

// blockGap stands between blocks that become one string.
var blockGap = []byte(`\n\n`)

// joins reports whether a part goes on with the one before it: texts that follow each other are one.
func (h *history) joins(i int) bool { return i > 0 && !h.parts[i].image && !h.parts[i-1].image }

// textOnly reports whether all parts are text.
func (h *history) textOnly() bool {
	return !slices.ContainsFunc(h.parts, func(p part) bool { return p.image })
}

func (h *history) partPlaces() (at []spot) {
	if h.textOnly() {
		return nil
	}
	for i, p := range h.parts {
		if h.joins(i) {
			continue
		}
		if p.image {
			at = append(at, p.at)
		} else {
			at = append(at, h.at)
		}
	}
	return at
}

// appendContent appends the member content: a string when all parts are text.
func (h *history) appendContent(dst []byte) []byte {
	bare := h.textOnly()
	if dst = append(dst, `"content":`...); bare {
		dst = append(dst, '"')
	} else {
		dst = append(dst, '[')
	}
	for i, p := range h.parts {
		switch {
		case h.joins(i):
			dst = append(append(dst, blockGap...), p.text...)
			continue
		case i > 0:
			dst = append(h.endPart(dst, i-1), ',')
		}
		switch {
		case bare:
		case p.image:
			dst = append(dst, `{"type":"image_url","image_url":{"url":"`...)
		default:
			dst = append(dst, `{"type":"text","text":"`...)
		}
		dst = append(dst, p.text...)
	}
	if bare {
		return append(dst, '"')
	}
	return append(h.endPart(dst, len(h.parts)-1), ']')
}

func (h *history) endPart(dst []byte, i int) []byte {
	if h.parts[i].image {
		return append(dst, `"}}`...)
	}
	return append(dst, `"}`...)
}

// appendQuoted appends JSON text as a JSON string.
func appendQuoted(dst, raw []byte) []byte {
	dst = append(dst, '"')
	for _, c := range raw {
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default: // valid JSON has no other control characters
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// prefill sees to how a conversation ends: with every call answered, or with the beginning of the answer.
func (r *reader) prefill() error {
	h := &r.history
	if h.last != assistant { // else the calls are the last thing said
		h.unanswered()
	}
	if h.unmet != nil {
		return h.unmet
	}
	if h.last != assistant || r.Count {
		return nil
	}
	p := r.req.places[len(r.req.places)-1]
	if h.used {
		return field.Invalid(p.at.String(), "The last message holds tool_use blocks: each needs a tool_result block in a message after it.")
	}
	r.req.Prefill = p.at.String()
	r.put("continue_final_message", []byte("true"))
	r.put("add_generation_prompt", []byte("false"))
	return nil
}
