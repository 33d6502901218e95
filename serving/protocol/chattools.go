package protocol

import (
	"fmt"
	"slices"

	"millrace/serving/engine/scan"
)

func (r *chatReader) toolCalls(v []byte) error {
	if v == nil {
		return nil
	}
	e, n := scan.Array(v), 0
	for e.Next() {
		at := fmt.Sprintf("tool_calls[%d]", n)
		if n++; isObject(e.Value) {
			if kind, custom := customCall(e.Value); kind == "custom" {
				if err := r.customHistory(at, e.Value, custom); err != nil {
					return err
				}
				continue
			}
		}
		p := piece{}
		if !isObject(e.Value) || !p.parse(e.Value) || len(p.id) == 0 || len(p.name) == 0 {
			return wantType(at, "a function call with id, function.name and function.arguments")
		}
		r.req.TextBytes += int64(len(p.name) + len(p.args))
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
		tool := e.Value
		switch {
		case (kind != "function" && kind != "custom") || fn == "" || len(fn) > maxToolName:
			return wantType(at, "a function, or a custom tool, with a name")
		case kind == "custom":
			tool = customAsFunction(e.Value)
			r.req.CustomTools = append(r.req.CustomTools, fn)
		}
		r.tools, r.toolTexts = append(r.tools, fn), append(r.toolTexts, tool)
	}
	if e.Err() != nil {
		return wantType(name, "an array of tools")
	}
	return nil
}

// typed reads {"type": …, "function": {"name": …}}, or the same of a custom tool.
func typed(raw []byte) (kind, function string) {
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "type":
			kind = text(m.Value)
		case "function", "custom":
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
			r.replace(v, string(appendFunctionName(nil, fn)))
			return r.declared(name, fn)
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
		if len(allowed) == maxTools {
			return invalid(name+".tools", "There are more than %d tools.", maxTools)
		}
		_, fn := typed(e.Value)
		if err := r.declared(name+".tools", fn); err != nil {
			return err
		}
		allowed = append(allowed, fn)
	}
	if e.Err() != nil || len(allowed) == 0 {
		return wantType(name+".tools", "an array of at least one tool")
	}
	r.keepTools(func(name string) bool { return slices.Contains(allowed, name) })
	r.replace(choice, mode)
	return nil
}

// keepTools makes the engines' list of tools: functions only, those that are kept.
func (r *chatReader) keepTools(keep func(name string) bool) {
	kept := []byte{'['}
	for i, tool := range r.toolTexts {
		if keep(r.tools[i]) {
			if len(kept) > 1 {
				kept = append(kept, ',')
			}
			kept = append(kept, tool...)
		}
	}
	r.replace(r.toolList, string(append(kept, ']')))
	r.toolTexts = nil
}
