package messages

import (
	"slices"

	"millrace/serving/engine/scan"
)

// tool is a tool's members.
type tool struct {
	kind, name, description, schema []byte
	strict                          bool
}

// toolList writes the client's own tools. Those that Anthropic's service would run are left out, and named.
func (r *reader) toolList() error {
	v := r.members["tools"]
	if v == nil {
		return nil
	}
	var out []byte
	err := list(v, maxTools, func(i int, raw []byte) error {
		t, err := r.readTool(raw)
		if err != nil || t == nil {
			return err
		}
		name := unescaped(t.name)
		if slices.Contains(r.toolNames, name) {
			return invalid("name", "Another tool has this name: tool names must be unique.")
		}
		r.toolNames = append(r.toolNames, name)
		r.req.tools = append(r.req.tools, i)
		if len(out) > 0 {
			out = append(out, ',')
		}
		before := len(out)
		out = t.append(out)
		r.history.bytes += int64(len(out) - before)
		return nil
	})
	if err != nil {
		return within("tools", err)
	}
	if len(out) > 0 { // engines refuse an empty list
		r.put("tools", append(append([]byte{'['}, out...), ']'))
	}
	return nil
}

// readTool gives nil for a tool that is left out.
func (r *reader) readTool(raw []byte) (*tool, error) {
	t := &tool{}
	err := object(raw, func(name, v []byte) (err error) {
		switch string(name) {
		case "type":
			t.kind, err = text("type", v)
		case "name":
			t.name, err = text("name", v)
		case "description":
			t.description, err = text("description", v)
		case "input_schema":
			t.schema = v
		case "strict":
			t.strict, err = boolean("strict", v)
		case "cache_control":
			r.ignore("cache_control")
		default:
			if t.kind == nil || string(t.kind) == "custom" {
				r.ignore("tools." + clip(name))
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(t.kind) > 0 && string(t.kind) != "custom" {
		r.ignore("tools." + clip(t.kind))
		return nil, nil
	}
	switch {
	case len(t.name) == 0:
		return nil, required("name")
	case len(t.name) > maxToolName:
		return nil, invalid("name", "It may have at most %d characters.", maxToolName)
	case t.schema != nil && !isObject(t.schema):
		return nil, invalid("input_schema", "It must be an object.")
	}
	return t, nil
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
			r.ignore("tool_choice." + clip(key))
		}
		return err
	})
	if err == nil {
		err = r.choose(string(kind), name)
	}
	if err != nil {
		return within("tool_choice", err)
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
			return invalid("", "A tool must be used, but the request has none that can be used here.")
		}
		r.put("tool_choice", []byte(`"required"`))
	case "tool":
		if len(name) == 0 {
			return required("name")
		}
		if !slices.Contains(r.toolNames, unescaped(name)) {
			return invalid("name", "The tool %s is not among the tools that can be used here.", clip(name))
		}
		r.put("tool_choice", []byte(`{"type":"function","function":{"name":"`+string(name)+`"}}`))
	case "":
		return required("type")
	default:
		return wantOneOf("type", "auto", "any", "tool", "none")
	}
	return nil
}
