package messages

import (
	"slices"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// tool is a tool's members.
type tool struct {
	name, description, schema []byte
	strict                    bool
}

// toolList writes the client's own tools. Those that Anthropic's service would run are left out, and named.
func (r *reader) toolList() error {
	v := r.members["tools"]
	if v == nil {
		return nil
	}
	var out []byte
	err := list(v, maxTools, func(i int, raw []byte) error {
		t, err := r.readTool(i, raw)
		if err != nil || t == nil {
			return err
		}
		name := unescaped(t.name)
		if slices.Contains(r.toolNames, name) {
			return field.Invalid("name", "Another tool has this name: tool names must be unique.")
		}
		r.toolNames = append(r.toolNames, name)
		r.req.tools = append(r.req.tools, i)
		if len(out) > 0 {
			out = append(out, ',')
		}
		before := len(out)
		out = t.append(out)
		r.history.more += int64(len(out) - before)
		return nil
	})
	if err != nil {
		return field.Within("tools", err)
	}
	if len(out) > 0 { // engines refuse an empty list
		r.put("tools", append(append([]byte{'['}, out...), ']'))
	}
	return nil
}

var toolMembers = []string{"type", "name", "description", "input_schema", "strict"}

// readTool gives nil for a tool that is left out.
func (r *reader) readTool(i int, raw []byte) (t *tool, err error) {
	var in [5][]byte
	var space [8][]byte
	odd := space[:0] // of a tool that stays, what has no effect
	if err := field.Read(raw, toolMembers, in[:], func(name []byte) { odd = append(odd, name) }); err != nil {
		return nil, err
	}
	if kind := in[0]; kind != nil && string(kind) != `""` && string(kind) != `"custom"` {
		if !field.IsString(kind) {
			return nil, field.Invalid("type", "It must be a string.")
		}
		r.ignored.Name(field.At("tools", i) + " (" + field.Clip(field.Text(kind)) + ")")
		return nil, nil
	}
	for _, name := range odd {
		r.ignored.Add("tools[].", name)
	}
	t = &tool{schema: in[3]}
	if t.name, err = needed("name", in[1]); err != nil {
		return nil, err
	}
	if err := protocol.CheckToolName(unescaped(t.name)); err != nil {
		return nil, err
	}
	if in[2] != nil {
		if t.description, err = text("description", in[2]); err != nil {
			return nil, err
		}
	}
	if t.schema != nil && !field.IsObject(t.schema) {
		return nil, field.Invalid("input_schema", "It must be an object.")
	}
	if in[4] != nil {
		t.strict, err = boolean("strict", in[4])
	}
	return t, err
}

// append appends chat's form. A tool without parameters has none; a schema without a type is an object's, which engines
// that build grammars of it must be told.
func (t *tool) append(dst []byte) []byte {
	dst = append(append(append(dst, `{"type":"function","function":{"name":"`...), t.name...), '"')
	if len(t.description) > 0 {
		dst = append(append(append(dst, `,"description":"`...), t.description...), '"')
	}
	dst = append(dst, `,"parameters":`...)
	switch {
	case t.schema == nil:
		dst = append(dst, `{"type":"object","properties":{}}`...)
	case typed(t.schema):
		dst = append(dst, t.schema...)
	default:
		dst = append(dst, `{"type":"object"`...)
		if rest := t.schema[scan.Space(t.schema, 1):]; rest[0] != '}' {
			dst = append(append(dst, ','), rest...)
		} else {
			dst = append(dst, '}')
		}
	}
	if t.strict {
		dst = append(dst, `,"strict":true`...)
	}
	return append(dst, "}}"...)
}

func typed(schema []byte) bool {
	for m := scan.Object(schema); m.Next(); {
		if string(m.Key) == "type" {
			return true
		}
	}
	return false
}

// toolChoice writes how tools are to be used.
func (r *reader) toolChoice() error {
	v := r.members["tool_choice"]
	if v == nil {
		return nil
	}
	var kind, name []byte
	single := false
	err := object(v, func(key, v []byte) (err error) {
		switch string(key) {
		case "type":
			kind, err = text("type", v)
		case "name":
			name, err = text("name", v)
		case "disable_parallel_tool_use":
			single, err = boolean("disable_parallel_tool_use", v)
		default:
			r.ignored.Add("tool_choice.", key)
		}
		return err
	})
	if err == nil {
		err = r.choose(string(kind), name)
	}
	if err != nil {
		return field.Within("tool_choice", err)
	}
	if single && len(r.toolNames) > 0 {
		r.req.view.oneCall = true
		r.put("parallel_tool_calls", []byte("false"))
	}
	return nil
}

func (r *reader) choose(kind string, name []byte) error {
	some := len(r.toolNames) > 0
	switch kind {
	case "auto", "none":
		if some { // engines refuse a choice without tools
			r.put("tool_choice", []byte(`"`+kind+`"`))
		}
	case "any":
		if !some {
			return field.Invalid("", "A tool must be used, but the request has none that can be used here.")
		}
		r.put("tool_choice", []byte(`"required"`))
	case "tool":
		if len(name) == 0 {
			return required("name")
		}
		if !slices.Contains(r.toolNames, unescaped(name)) {
			return field.Invalid("name", "The tool %s is not among the tools that can be used here.", field.Clip(name))
		}
		r.put("tool_choice", []byte(`{"type":"function","function":{"name":"`+string(name)+`"}}`))
	case "":
		return required("type")
	default:
		return wantOneOf("type", "auto", "any", "tool", "none")
	}
	return nil
}
