package dsml

import (
	"encoding/json"
	"slices"
)

// assistant writes one of the model's own turns. Earlier thoughts are shown only where tools are in play; otherwise the
// model was trained to see its answers alone.
func (w *writer) assistant(c *conversation, msg *message) {
	w.special(tokenAssistant)
	switch {
	case !c.thinking || !msg.prefix && len(c.tools) == 0:
		w.special(tokenThinkEnd)
	default:
		w.special(tokenThink)
		w.text(msg.reasoning)
		if !msg.prefix || !msg.empty() {
			w.special(tokenThinkEnd)
		}
	}
	w.content(msg)
	if len(msg.calls) > 0 {
		w.calls(c.markup, msg.calls)
	}
	if !msg.prefix {
		w.special(tokenEnd)
	}
}

// calls writes tool calls as the model would have: an argument that is a string as it is, any other as JSON. Arguments
// that are no JSON object become one string.
func (w *writer) calls(m *markup, list []toolCall) {
	w.text("\n\n")
	w.open(m, m.calls)
	w.text("\n")
	for _, call := range list {
		w.open(m, "invoke", ` name="`, call.name, `"`)
		w.text("\n")
		parameters := w.parameters(m, call.arguments)
		if parameters > 0 || m.emptyLine {
			w.text("\n")
		}
		w.shut(m, "invoke")
		w.text("\n")
	}
	w.shut(m, m.calls)
}

func (w *writer) parameters(m *markup, arguments string) int {
	list, ok := m.parametersOf(arguments)
	if !ok {
		list = []parameter{{"arguments", true, arguments}}
	}
	for i, p := range list {
		kind := "false"
		if p.isString {
			kind = "true"
		}
		if i > 0 {
			w.text("\n")
		}
		w.open(m, "parameter", ` name="`, p.name, `" string="`, kind, `"`)
		w.text(p.value)
		w.shut(m, "parameter")
	}
	return len(list)
}

type parameter struct {
	name     string
	isString bool
	value    string
}

func (m *markup) parametersOf(arguments string) ([]parameter, bool) {
	raw := []byte(arguments)
	if !json.Valid(raw) {
		return nil, false
	}
	members, ok := objectOf(raw)
	if !ok {
		return nil, false
	}
	list := make([]parameter, 0, len(members))
	for _, e := range members {
		if e.value[0] == '"' {
			text, ok := stringOf(e.value)
			if !ok {
				return nil, false
			}
			list = append(list, parameter{e.key, true, text})
			continue
		}
		value, ok := m.dump(nil, e.value, 1)
		if !ok {
			return nil, false
		}
		list = append(list, parameter{e.key, false, string(value)})
	}
	return list, true
}

func (w *writer) content(msg *message) {
	for _, s := range msg.content {
		if s.Special {
			w.special(s.Text)
		} else {
			w.text(s.Text)
		}
	}
}

// join adds another message's content; an empty one adds nothing.
func (m *message) join(other *message) {
	switch {
	case other.empty():
	case m.empty():
		m.content = other.content
	default:
		m.content = slices.Concat(m.content, []Segment{{Text: "\n\n"}}, other.content)
	}
}

func (m *message) empty() bool {
	for _, s := range m.content {
		if s.Text != "" {
			return false
		}
	}
	return true
}

func (m *message) text() string {
	return (&Prompt{Segments: m.content}).String()
}
