package protocol

import (
	"errors"
	"fmt"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// Limits of messages and tools.
const (
	maxMessages  = 16 << 10
	maxToolName  = 128
	maxPartsEach = 4 << 10
)

// message is one message's members, raw; nil where there is none or null.
type message struct {
	role, content, calls, callID, name, refusal []byte

	function   []byte // function_call, which came before tool_calls
	functionAt edit

	reasoning     edit // that gives its reasoning the name that every engine takes
	toldReasoning bool // under that name
}

func messages(r *chatReader, name string, v []byte) error {
	e, n := scan.Array(v), 0
	r.req.Messages, r.req.TextBytes = v, 0
	for e.Next() {
		if n == maxMessages {
			return invalid(name, "There are more than %d messages.", maxMessages)
		}
		if err := r.message(e.Value); err != nil {
			return within(fmt.Sprintf("messages[%d]", n), err)
		}
		n++
	}
	if e.Err() != nil || n == 0 {
		return wantType(name, "an array of at least one message")
	}
	return nil
}

// within names the place of a fault that was found inside it. Places are only put together when something is wrong.
func within(at string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		switch {
		case f.Param == "":
			f.Param = at
		case f.Param[0] == '[':
			f.Param = at + f.Param
		default:
			f.Param = at + "." + f.Param
		}
	}
	return err
}

func (r *chatReader) message(raw []byte) error {
	if !isObject(raw) {
		return wantObject("A message")
	}
	var msg message
	m := scan.Object(raw)
	for m.Next() {
		if isNull(m.Value) {
			continue
		}
		switch string(m.Key) {
		case "role":
			msg.role = m.Value
		case "content":
			if msg.content != nil {
				return twice("content") // readers differ in which counts
			}
			msg.content = m.Value
		case "tool_calls":
			msg.calls = m.Value
		case "tool_call_id":
			msg.callID = m.Value
		case "name":
			msg.name = m.Value
		case "refusal":
			msg.refusal = m.Value
		case "reasoning_content":
			msg.toldReasoning = true
		case "reasoning":
			from := offset(r.req.Body, raw)
			msg.reasoning = edit{from + m.Start, offset(r.req.Body, m.Value), `"reasoning_content":`}
		case "function_call":
			msg.function, msg.functionAt = m.Value, edit{offset(r.req.Body, raw) + m.Start, offset(r.req.Body, raw) + m.End, ""}
		case "audio":
			return invalid(string(m.Key), "%s is not supported here.", m.Key).WithCode("unsupported_parameter")
		}
	}
	if msg.reasoning.text != "" && !msg.toldReasoning {
		r.edits = append(r.edits, msg.reasoning)
	}
	return r.checkMessage(&msg)
}

func twice(name string) error { return invalid(name, "%s is given twice.", name) }

func wantObject(what string) error { return fault.New(fault.Invalid, "%s must be an object.", what) }

func (r *chatReader) checkMessage(msg *message) error {
	switch string(msg.role) {
	case `"developer"`: // templates of open models know it as system
		r.replace(msg.role, `"system"`)
	case `"system"`, `"user"`:
	case `"assistant"`:
		if msg.function != nil {
			if err := r.legacyCall(msg); err != nil {
				return err
			}
		}
		if msg.content == nil {
			if msg.calls == nil && msg.function == nil && msg.refusal == nil {
				return invalid("content", "An assistant message needs content or tool_calls.")
			}
			return r.toolCalls(msg.calls)
		}
	case `"tool"`:
		if msg.callID == nil || !isString(msg.callID) {
			return invalid("tool_call_id", "A tool message needs the tool_call_id that it answers.")
		}
	case `"function"`:
		if err := r.legacyResult(msg); err != nil {
			return err
		}
	default:
		return wantType("role", "one of developer, system, user, assistant, tool")
	}
	if msg.name != nil && !isString(msg.name) {
		return wantType("name", "a string")
	}
	if err := r.toolCalls(msg.calls); err != nil {
		return err
	}
	return r.content(msg.content, string(msg.role) == `"user"`)
}

// content is a string or an array of parts; only a user's may hold more than text.
func (r *chatReader) content(v []byte, media bool) error {
	const name = "content"
	switch {
	case v == nil:
		return invalid(name, "The message has no content.")
	case isString(v):
		r.req.TextBytes += int64(len(v))
		return nil
	case !isArray(v):
		return wantType(name, "a string or an array of content parts")
	}
	e, n := scan.Array(v), 0
	for e.Next() {
		if n == maxPartsEach {
			return invalid(name, "The message has more than %d content parts.", maxPartsEach)
		}
		if err := r.part(e.Value, media); err != nil {
			return within(fmt.Sprintf("content[%d]", n), err)
		}
		n++
	}
	if n == 0 {
		return wantType(name, "an array of at least one content part")
	}
	return nil
}

func (r *chatReader) part(raw []byte, media bool) error {
	if !isObject(raw) {
		return wantObject("A content part")
	}
	var kind, txt, image, other []byte
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "type":
			kind = m.Value
		case "text", "refusal":
			txt = m.Value
		case "image_url":
			if image != nil {
				return twice("image_url")
			}
			image = m.Value
		case "input_audio", "audio_url", "video_url", "image_embeds", "image_pil", "file": // whatever the type says: some engines go by the member
			other = m.Key
		}
	}
	if image != nil && (!media || string(kind) != `"image_url"`) {
		return invalid("type", "Only a user's part of type image_url holds an image_url.").WithCode("unsupported_parameter")
	}
	switch k := string(kind); {
	case other != nil && (k == `"text"` || k == `"image_url"` || k == `"refusal"`):
		return invalid(string(other), "Content parts with %s are not supported here.", other).WithCode("unsupported_parameter")
	case k == `"text"`, k == `"refusal"` && !media:
		if txt == nil || !isString(txt) {
			return wantType("text", "a string")
		}
		r.req.TextBytes += int64(len(txt))
		return nil
	case k == `"image_url"` && media:
		return r.imageURL(image)
	case k == `"input_audio"`, k == `"file"`, k == `"image_url"`, k == `"video_url"`:
		return invalid("type", "Content parts of type %s are not supported here.", k).WithCode("unsupported_parameter")
	}
	return wantType("type", "one of text, image_url")
}
