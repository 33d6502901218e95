package protocol

import (
	"errors"
	"fmt"
	"slices"

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
		case "audio", "function_call":
			return invalid(string(m.Key), "%s is not supported here.", m.Key).WithCode("unsupported_parameter")
		}
	}
	if msg.reasoning.text != "" && !msg.toldReasoning {
		r.edits = append(r.edits, msg.reasoning)
	}
	return r.checkMessage(&msg)
}

func wantObject(what string) error { return fault.New(fault.Invalid, "%s must be an object.", what) }

func (r *chatReader) checkMessage(msg *message) error {
	switch string(msg.role) {
	case `"developer"`: // templates of open models know it as system
		r.replace(msg.role, `"system"`)
	case `"system"`, `"user"`:
	case `"assistant"`:
		if msg.content == nil {
			if msg.calls == nil && msg.refusal == nil {
				return invalid("content", "An assistant message needs content or tool_calls.")
			}
			return r.toolCalls(msg.calls)
		}
	case `"tool"`:
		if msg.callID == nil || !isString(msg.callID) {
			return invalid("tool_call_id", "A tool message needs the tool_call_id that it answers.")
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

func (r *chatReader) toolCalls(v []byte) error {
	if v == nil {
		return nil
	}
	e, n := scan.Array(v), 0
	for e.Next() {
		p := piece{}
		if !isObject(e.Value) || !p.parse(e.Value) || len(p.id) == 0 || len(p.name) == 0 {
			return wantType(fmt.Sprintf("tool_calls[%d]", n), "a function call with id, function.name and function.arguments")
		}
		r.req.TextBytes += int64(len(p.name) + len(p.args))
		n++
	}
	if e.Err() != nil {
		return wantType("tool_calls", "an array")
	}
	return nil
}

// ---- tools ---------------------------------------------------------------------------------------------------------

func tools(r *chatReader, name string, v []byte) error {
	r.toolList = v
	e := scan.Array(v)
	for e.Next() {
		at := fmt.Sprintf("tools[%d]", len(r.tools))
		if len(r.tools) == maxTools {
			return invalid(name, "There are more than %d tools.", maxTools)
		}
		kind, fn := typed(e.Value)
		switch {
		case kind == "custom":
			return invalid(at+".type", "Custom tools are not supported here.").WithCode("unsupported_parameter")
		case kind != "function" || fn == "" || len(fn) > maxToolName:
			return wantType(at, "a function with a name")
		}
		r.tools = append(r.tools, fn)
	}
	if e.Err() != nil {
		return wantType(name, "an array of tools")
	}
	return nil
}

// typed reads {"type": …, "function": {"name": …}}.
func typed(raw []byte) (kind, function string) {
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "type":
			kind = text(m.Value)
		case "function":
			f := scan.Object(m.Value)
			for f.Next() {
				if string(f.Key) == "name" {
					function = text(f.Value)
				}
			}
		}
	}
	return kind, function
}

// checkToolChoice needs the tools: it comes after all members.
func (r *chatReader) checkToolChoice() error {
	const name = "tool_choice"
	v := r.choice
	switch {
	case v == nil:
		return nil
	case isString(v):
		switch string(v) {
		case `"none"`, `"auto"`:
			return nil
		case `"required"`:
			if len(r.tools) == 0 {
				return invalid(name, "tool_choice is required, but there are no tools.")
			}
			return nil
		}
	case isObject(v):
		switch kind, fn := typed(v); kind {
		case "function":
			return r.declared(name, fn)
		case "allowed_tools":
			return r.allowTools(v)
		case "custom":
			return invalid(name, "tool_choice of type custom is not supported here.").WithCode("unsupported_parameter")
		}
	}
	return wantType(name, "none, auto, required or a function among the tools")
}

func (r *chatReader) declared(param, function string) error {
	if slices.Contains(r.tools, function) {
		return nil
	}
	return invalid(param, "tool_choice names %q, which is not among the tools.", clip([]byte(function)))
}

// allowTools keeps the allowed tools only and makes the mode the choice: engines do not know allowed_tools.
func (r *chatReader) allowTools(choice []byte) error {
	const name = "tool_choice.allowed_tools"
	mode, allowed := "", []string(nil)
	var list []byte
	m := scan.Object(choice)
	for m.Next() {
		if string(m.Key) == "allowed_tools" && isObject(m.Value) {
			in := scan.Object(m.Value)
			for in.Next() {
				switch string(in.Key) {
				case "mode":
					mode = string(in.Value)
				case "tools":
					list = in.Value
				}
			}
		}
	}
	if mode != `"auto"` && mode != `"required"` {
		return wantType(name+".mode", "auto or required")
	}
	e := scan.Array(list)
	for e.Next() {
		_, fn := typed(e.Value)
		if err := r.declared(name+".tools", fn); err != nil {
			return err
		}
		allowed = append(allowed, fn)
	}
	if e.Err() != nil || len(allowed) == 0 {
		return wantType(name+".tools", "an array of at least one tool")
	}
	kept := []byte{'['}
	all := scan.Array(r.toolList)
	for i := 0; all.Next(); i++ {
		if slices.Contains(allowed, r.tools[i]) {
			if len(kept) > 1 {
				kept = append(kept, ',')
			}
			kept = append(kept, all.Value...)
		}
	}
	r.replace(r.toolList, string(append(kept, ']')))
	r.replace(choice, mode)
	return nil
}
