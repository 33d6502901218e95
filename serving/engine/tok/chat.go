package tok

import (
	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// MediaPatches is the number of tokens of one image or other media part.
const MediaPatches = 256

// ApplyChat gives the prompt's ids of a Chat Completions body: the template
//
//	Begin [Tools definitions End] { role text [media] [Call name arguments] End } Assistant
//
// A body without a messages array is a fault of kind Invalid.
func ApplyChat(body []byte) ([]uint32, error) {
	var messages, tools []byte
	m := scan.Object(body)
	for m.Next() {
		switch string(m.Key) {
		case "messages":
			messages = m.Value
		case "tools":
			tools = m.Value
		}
	}
	if m.Err() != nil || len(messages) == 0 || messages[0] != '[' {
		return nil, fault.New(fault.Invalid, "messages must be an array.").WithParam("messages")
	}
	t := template{ids: make([]uint32, 0, len(messages)/2+8)}
	t.ids = append(t.ids, Begin)
	if len(tools) > 0 && tools[0] == '[' {
		t.ids = append(Append(append(t.ids, Tools), tools), End)
	}
	e := scan.Array(messages)
	for e.Next() {
		if err := t.message(e.Value); err != nil {
			return nil, err
		}
	}
	if e.Err() != nil {
		return nil, fault.New(fault.Invalid, "messages must be an array of objects.").WithParam("messages")
	}
	return append(t.ids, Assistant), nil
}

// template builds a prompt; text is scratch space for strings with escapes.
type template struct {
	ids  []uint32
	text []byte
}

func (t *template) message(raw []byte) error {
	var role, content, calls []byte
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "role":
			role = m.Value
		case "content":
			content = m.Value
		case "tool_calls":
			calls = m.Value
		}
	}
	if m.Err() != nil {
		return fault.New(fault.Invalid, "Every message must be an object.").WithParam("messages")
	}
	mark, ok := roles[string(role)]
	if !ok {
		return fault.New(fault.Invalid, "A message has the unknown role %s.", orNone(role)).WithParam("messages")
	}
	t.ids = append(t.ids, mark)
	t.content(content)
	if len(calls) > 0 && calls[0] == '[' {
		t.calls(calls)
	}
	t.ids = append(t.ids, End)
	return nil
}

var roles = map[string]uint32{
	`"system"`: System, `"developer"`: System, `"user"`: User, `"assistant"`: Assistant, `"tool"`: Tool, `"function"`: Tool,
}

func orNone(role []byte) string {
	const most = 40 // bytes of a wrong role quoted in the error
	switch {
	case len(role) == 0:
		return "(none)"
	case len(role) > most:
		return string(role[:most]) + "…"
	}
	return string(role)
}

func (t *template) string(raw []byte) {
	var ok bool
	if t.text, ok = scan.Text(t.text[:0], raw); ok {
		t.ids = Append(t.ids, t.text)
	}
}

// content is a string, or parts: text parts as text, others as media patches.
func (t *template) content(raw []byte) {
	if len(raw) == 0 || raw[0] != '[' {
		t.string(raw)
		return
	}
	e := scan.Array(raw)
	for e.Next() {
		var text []byte
		m := scan.Object(e.Value)
		for m.Next() {
			if k := string(m.Key); k == "text" || k == "refusal" {
				text = m.Value
			}
		}
		if text != nil {
			t.string(text)
			continue
		}
		for range MediaPatches {
			t.ids = append(t.ids, Media)
		}
	}
}

func (t *template) calls(raw []byte) {
	e := scan.Array(raw)
	for e.Next() {
		m := scan.Object(e.Value)
		for m.Next() {
			if string(m.Key) == "function" {
				t.function(m.Value)
			}
		}
	}
}

func (t *template) function(raw []byte) {
	var name, arguments []byte
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "name":
			name = m.Value
		case "arguments":
			arguments = m.Value
		}
	}
	t.ids = append(t.ids, Call)
	t.string(name)
	t.string(arguments)
}
