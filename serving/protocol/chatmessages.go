package protocol

import (
	"millrace/internal/fault"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// Limits of messages and tools.
const (
	maxMessages  = 16 << 10
	maxToolName  = 128
	maxPartsEach = 4 << 10
)

// found is a member of an object of the body, and where it stands there. Its value is nil where it is absent or
// null, its end 0 where it is absent.
type found struct {
	value      []byte
	start, end int
}

// object reads an object of the body: the members that have names. Others are taken out, and named: engines may know them,
// and by some one client would reach what is another's (a part's uuid is vLLM's name for an image that it keeps).
func (r *chatReader) object(place string, raw []byte, names []string, into []found) error {
	base, kept, cut, last := offset(r.req.Body, raw), -1, -1, 0
	err := field.Walk(raw, names, func(i int, key, value []byte, start, end int) {
		if i < 0 && !field.IsNull(value) {
			r.req.Ignored.Add(place, key)
			last = end
			if kept >= 0 { // with the comma before it
				r.edits = append(r.edits, edit{base + kept, base + end, ""})
				kept = end
			} else if cut < 0 {
				cut = start
			}
			return
		}
		if cut >= 0 { // with the comma after it
			r.edits = append(r.edits, edit{base + cut, base + start, ""})
			cut = -1
		}
		kept = end
		switch {
		case i < 0:
		case field.IsNull(value):
			into[i] = found{nil, base + start, base + end}
		default:
			into[i] = found{value, base + start, base + end}
		}
	})
	if cut >= 0 {
		r.edits = append(r.edits, edit{base + cut, base + last, ""})
	}
	return err
}

// messageMembers are a message's, those of every role. DeepSeek's prefix marks the begin of an answer that is to be gone on with.
var messageMembers = []string{"role", "content", "tool_calls", "tool_call_id", "name", "refusal", "reasoning_content", "reasoning", "function_call", "audio",
	"prefix"}

// message is one message's members.
type message struct {
	role, content, calls, callID, name, refusal, thought, reasoning, function, audio, prefix found
}

func messages(r *chatReader, name string, v []byte) error {
	e, n := scan.Array(v), 0
	r.req.Messages, r.req.TextBytes = v, 0
	for e.Next() {
		if n == maxMessages {
			return tooManyMessages()
		}
		if err := r.message(e.Value); err != nil {
			return field.Within(field.At(name, n), err)
		}
		n++
	}
	if e.Err() != nil || n == 0 {
		return field.WantType(name, "an array of at least one message")
	}
	return nil
}

func tooManyMessages() *fault.Fault {
	return invalid("messages", "There are more than %d messages.", maxMessages)
}

func (r *chatReader) message(raw []byte) error {
	var v [11]found
	if err := r.object("messages[].", raw, messageMembers, v[:]); err != nil {
		return err
	}
	m := message{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10]}
	if m.audio.value != nil {
		return field.Unsupported("audio", "audio is not supported here.")
	}
	for i, f := range [...]found{m.name, m.refusal, m.thought, m.reasoning} {
		if f.value != nil && !field.IsString(f.value) {
			return field.WantType([...]string{"name", "refusal", "reasoning_content", "reasoning"}[i], "a string")
		}
	}
	if m.prefix.value != nil && !field.IsBool(m.prefix.value) {
		return field.WantType("prefix", "true or false")
	}
	if m.reasoning.value != nil && m.thought.value == nil { // the name that every engine takes
		r.edits = append(r.edits, edit{m.reasoning.start, offset(r.req.Body, m.reasoning.value), `"reasoning_content":`})
		if m.thought.end > 0 { // null
			r.edits = append(r.edits, edit{m.thought.start, m.thought.end, `"reasoning":null`})
		}
	}
	return r.checkMessage(&m)
}

func (r *chatReader) checkMessage(m *message) error {
	switch string(m.role.value) {
	case `"developer"`: // templates of open models know it as system
		r.replace(m.role.value, `"system"`)
	case `"system"`, `"user"`:
	case `"assistant"`:
		return r.assistant(m)
	case `"tool"`:
		if !field.IsString(m.callID.value) {
			return invalid("tool_call_id", "A tool message needs the tool_call_id that it answers.")
		}
	case `"function"`:
		if err := r.legacyResult(m); err != nil {
			return err
		}
	default:
		return field.WantType("role", "one of developer, system, user, assistant, tool")
	}
	if err := r.toolCalls(m.calls.value); err != nil {
		return err
	}
	return r.content(m.content.value, string(m.role.value) == `"user"`)
}

func (r *chatReader) assistant(m *message) error {
	if m.function.value != nil {
		if err := r.legacyCall(m); err != nil {
			return err
		}
	}
	if err := r.toolCalls(m.calls.value); err != nil {
		return err
	}
	calls := m.calls.value != nil || m.function.value != nil
	if calls && m.thought.value == nil && m.reasoning.value == nil {
		fill := edit{m.role.end, m.role.end, `,"reasoning_content":""`}
		if m.thought.end > 0 { // null
			fill = edit{m.thought.start, m.thought.end, `"reasoning_content":""`}
		}
		r.thoughtless = append(r.thoughtless, fill)
	}
	if m.content.value == nil {
		if !calls && m.refusal.value == nil {
			return invalid("content", "An assistant message needs content or tool_calls.")
		}
		return nil
	}
	return r.content(m.content.value, false)
}

// fillReasoning gives calls without reasoning an empty one where thinking is asked for: models that think refuse a history in
// which it is missing, or begin to think about it.
func (r *chatReader) fillReasoning() {
	if r.thinks {
		r.edits = append(r.edits, r.thoughtless...)
	}
}

// content is a string or an array of parts; only a user's may hold more than text.
func (r *chatReader) content(v []byte, media bool) error {
	const name = "content"
	switch {
	case v == nil:
		return invalid(name, "The message has no content.")
	case field.IsString(v):
		r.req.TextBytes += int64(len(v))
		return nil
	case !field.IsArray(v):
		return field.WantType(name, "a string or an array of content parts")
	}
	e, n := scan.Array(v), 0
	for e.Next() {
		if n == maxPartsEach {
			return invalid(name, "The message has more than %d content parts.", maxPartsEach)
		}
		if err := r.part(e.Value, media); err != nil {
			return field.Within(field.At(name, n), err)
		}
		n++
	}
	if n == 0 {
		return field.WantType(name, "an array of at least one content part")
	}
	return nil
}

// partMembers are a content part's; those after image_url make a part one of a kind that is refused: some engines go by the
// member, whatever the type says.
var partMembers = []string{"type", "text", "refusal", "image_url", "input_audio", "audio_url", "video_url", "image_embeds", "image_pil", "file"}

const firstRefused = 4

func (r *chatReader) part(raw []byte, media bool) error {
	var v [10]found
	if err := r.object("messages[].content[].", raw, partMembers, v[:]); err != nil {
		return err
	}
	kind, text, refusal, image := string(v[0].value), v[1].value, v[2].value, v[3].value
	if image != nil && (!media || kind != `"image_url"`) {
		return field.Unsupported("type", "Only a user's part of type image_url holds an image_url.")
	}
	switch {
	case kind == `"text"`, kind == `"image_url"` && media, kind == `"refusal"` && !media:
	case kind == `"input_audio"`, kind == `"file"`, kind == `"image_url"`, kind == `"video_url"`:
		return field.Unsupported("type", "Content parts of type %s are not supported here.", kind)
	default:
		return field.WantType("type", "one of text, image_url")
	}
	for i, f := range v[firstRefused:] {
		if f.value != nil {
			name := partMembers[firstRefused+i]
			return field.Unsupported(name, "Content parts with %s are not supported here.", name)
		}
	}
	if kind == `"image_url"` {
		return r.image(image)
	}
	name := kind[1 : len(kind)-1]
	if name == "refusal" {
		text = refusal
	}
	if !field.IsString(text) {
		return field.WantType(name, "a string")
	}
	r.req.TextBytes += int64(len(text))
	return nil
}
