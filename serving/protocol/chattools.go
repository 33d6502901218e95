package protocol

import (
	"slices"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// callMembers are a call's of an earlier answer; functionMembers and customMembers are those of what it calls.
var (
	callMembers     = []string{"id", "type", "function", "custom", "index"}
	functionMembers = []string{"name", "arguments"}
	customMembers   = []string{"name", "input"}
)

func (r *chatReader) toolCalls(v []byte) error {
	if v == nil {
		return nil
	}
	const name = "tool_calls"
	e, n := scan.Array(v), 0
	for e.Next() {
		if err := r.toolCall(e.Value); err != nil {
			return field.Within(field.At(name, n), err)
		}
		n++
	}
	if e.Err() != nil {
		return field.WantType(name, "an array")
	}
	return nil
}

func (r *chatReader) toolCall(raw []byte) error {
	var v [5]found
	var f [2]found
	if err := r.object("messages[].tool_calls[].", raw, callMembers, v[:]); err != nil {
		return err
	}
	id, kind, function, custom := v[0].value, v[1].value, v[2].value, v[3].value
	if string(kind) == `"custom"` {
		if !field.IsObject(custom) {
			return field.WantType("custom", "an object with name and input")
		}
		if err := r.object("messages[].tool_calls[].custom.", custom, customMembers, f[:]); err != nil {
			return field.Within("custom", err)
		}
		return r.customHistory(raw, piece{id: id, name: f[0].value, args: f[1].value})
	}
	if len(id) <= len(`""`) || !field.IsString(id) || !field.IsObject(function) {
		return invalid("", "A function call of an earlier answer has id, function.name and function.arguments.")
	}
	if err := r.object("messages[].tool_calls[].function.", function, functionMembers, f[:]); err != nil {
		return field.Within("function", err)
	}
	if !field.IsString(f[0].value) || len(f[0].value) <= len(`""`) {
		return field.WantType("function.name", "the name of a function")
	}
	r.req.TextBytes += int64(len(f[0].value) + len(f[1].value))
	return nil
}

// ---- tools ---------------------------------------------------------------------------------------------------------

// toolMembers are a tool's; declaredMembers are a function's, and of a custom tool those that are one's.
var (
	toolMembers     = []string{"type", "function", "custom"}
	declaredMembers = []string{"name", "description", "parameters", "strict"}
	customTool      = []string{"name", "description", "format"}
)

func tools(r *chatReader, name string, v []byte) error {
	r.toolList = v
	e := scan.Array(v)
	for e.Next() {
		if len(r.tools) == maxTools {
			return invalid(name, "There are more than %d tools.", maxTools)
		}
		if err := r.tool(e.Value); err != nil {
			return field.Within(field.At(name, len(r.tools)), err)
		}
	}
	if e.Err() != nil {
		return field.WantType(name, "an array of tools")
	}
	return nil
}

func (r *chatReader) tool(raw []byte) error {
	const want = "A tool is a function, or a custom tool, with a name."
	if !field.IsObject(raw) {
		return invalid("", want)
	}
	var v [3]found
	var f [4]found
	edits := len(r.edits)
	if err := r.object("tools[].", raw, toolMembers, v[:]); err != nil {
		return err
	}
	if v[1].value != nil && v[2].value != nil {
		return invalid("", want)
	}
	kind, names := "function", declaredMembers
	if string(v[0].value) == `"custom"` {
		kind, names, v[1] = "custom", customTool, v[2]
	} else if string(v[0].value) != `"function"` {
		return invalid("", want)
	}
	if !field.IsObject(v[1].value) {
		return invalid("", want)
	}
	if err := r.object("tools[]."+kind+".", v[1].value, names, f[:]); err != nil {
		return field.Within(kind, err)
	}
	name := field.Text(f[0].value)
	if name == "" {
		return invalid("", want)
	}
	if err := CheckToolName(name); err != nil {
		return field.Within(kind, err)
	}
	tool := r.edited(raw, r.edits[edits:])
	if kind == "custom" {
		tool = customAsFunction(f[0].value, f[1].value, f[2].value)
		r.req.CustomTools = append(r.req.CustomTools, name)
	}
	r.tools, r.toolTexts = append(r.tools, name), append(r.toolTexts, tool)
	return nil
}

// edited is a value of the body with edits to it.
func (r *chatReader) edited(raw []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return raw
	}
	slices.SortStableFunc(edits, byStart)
	from := offset(r.req.Body, raw)
	return appendEdited(nil, r.req.Body, from, from+len(raw), edits)
}

// CheckToolName checks what OpenAI's API and engines' grammars take for a tool's name.
func CheckToolName(name string) error {
	if len(name) > maxToolName {
		return invalid("name", "A tool's name has at most %d characters.", maxToolName)
	}
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') && c != '_' && c != '-' {
			return invalid("name", "A tool's name is made of letters, digits, _ and -: %q is not.", field.Clip(name))
		}
	}
	return nil
}

// choiceMembers are those of a choice that is an object.
var choiceMembers = []string{"type", "function", "custom", "allowed_tools"}

// checkToolChoice needs the tools: it comes after all members.
func (r *chatReader) checkToolChoice() error {
	const name = "tool_choice"
	v := r.choice
	switch {
	case v == nil:
		return nil
	case field.IsString(v):
		switch string(v) {
		case `"none"`, `"auto"`:
			return nil
		case `"required"`:
			if len(r.tools) == 0 {
				return invalid(name, "tool_choice is required, but there are no tools.")
			}
			return nil
		}
	case field.IsObject(v):
		var f [4]found
		if err := r.object("tool_choice.", v, choiceMembers, f[:]); err != nil {
			return field.Within(name, err)
		}
		switch kind := field.Text(f[0].value); kind {
		case "function", "custom":
			chosen := f[1].value
			if kind == "custom" {
				chosen = f[2].value
			}
			fn, err := r.named(name+"."+kind+".", chosen)
			if err != nil {
				return field.Within(name, field.Within(kind, err))
			}
			if kind == "custom" {
				r.replace(v, string(appendFunctionName(nil, fn)))
			}
			return r.declared(name, fn)
		case "allowed_tools":
			return r.allowTools(v, f[3].value)
		}
	}
	return field.WantType(name, "none, auto, required or a function among the tools")
}

func (r *chatReader) declared(param, function string) error {
	if slices.Contains(r.tools, function) {
		return nil
	}
	return invalid(param, "tool_choice names %q, which is not among the tools.", field.Clip(function))
}

// allowTools keeps the allowed tools only and makes the mode the choice: engines do not know allowed_tools.
func (r *chatReader) allowTools(choice, in []byte) error {
	const name = "tool_choice.allowed_tools"
	var f [2]found
	if field.IsObject(in) {
		if err := r.object(name+".", in, []string{"mode", "tools"}, f[:]); err != nil {
			return field.Within(name, err)
		}
	}
	mode, allowed := string(f[0].value), []string(nil)
	if mode != `"auto"` && mode != `"required"` {
		return field.WantType(name+".mode", "auto or required")
	}
	e := scan.Array(f[1].value)
	for e.Next() {
		if len(allowed) == maxTools {
			return invalid(name+".tools", "There are more than %d tools.", maxTools)
		}
		fn, err := r.allowed(name+".tools[].", e.Value)
		if err != nil {
			return field.Within(field.At(name+".tools", len(allowed)), err)
		}
		if err := r.declared(name+".tools", fn); err != nil {
			return err
		}
		allowed = append(allowed, fn)
	}
	if e.Err() != nil || len(allowed) == 0 {
		return field.WantType(name+".tools", "an array of at least one tool")
	}
	r.keepTools(func(name string) bool { return slices.Contains(allowed, name) })
	r.replace(choice, mode)
	return nil
}

// allowed gives the name of an allowed tool.
func (r *chatReader) allowed(place string, raw []byte) (name string, err error) {
	var f [3]found
	if !field.IsObject(raw) {
		return "", nil // which none has
	}
	if err := r.object(place, raw, toolMembers, f[:]); err != nil {
		return "", err
	}
	kind, chosen := "function", f[1].value
	if chosen == nil {
		kind, chosen = "custom", f[2].value
	}
	name, err = r.named(place+kind+".", chosen)
	return name, field.Within(kind, err)
}

// named reads the name in {"name": …}, which is how choices say which tool.
func (r *chatReader) named(place string, raw []byte) (name string, err error) {
	var f [1]found
	if field.IsObject(raw) {
		err = r.object(place, raw, []string{"name"}, f[:])
	}
	return field.Text(f[0].value), err
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
