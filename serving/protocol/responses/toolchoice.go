package responses

import (
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// choose reads tool_choice. It needs the tools.
func (b *toolbox) choose(q *Request, v []byte) error {
	const name = "tool_choice"
	b.choice = v
	switch {
	case v == nil:
		return nil
	case field.IsString(v):
		b.mode = field.Text(v)
		if err := field.OneOf(name, v, "none", "auto", "required"); err != nil {
			return err
		}
		return b.checkRequired(len(b.list))
	case !field.IsObject(v):
		return field.WantType(name, "none, auto, required or an object")
	}
	var f [5][]byte
	if err := q.read("tool_choice.", v, []string{"type", "name", "namespace", "mode", "tools"}, f[:]); err != nil {
		return field.Within(name, err)
	}
	switch kind := field.Text(f[0]); {
	case kind == "function" || kind == "custom":
		return b.force(field.Text(f[1]), field.Text(f[2]))
	case kind == "allowed_tools":
		return b.allow(q, f[3], f[4])
	case isHosted(kind):
		return field.Unsupported(name+".type", "Tools of type %s are not run here: they cannot be forced.", kind)
	}
	return field.WantType(name+".type", "one of function, custom, allowed_tools")
}

func (b *toolbox) checkRequired(usable int) error {
	switch {
	case b.mode != "required" || usable > 0:
		return nil
	case len(b.hosted) > 0:
		return field.Invalid("tool_choice", "tool_choice is required, but none of the tools can be used here: tools that OpenAI's servers run are dropped.")
	}
	return field.Invalid("tool_choice", "tool_choice is required, but there are no tools.")
}

// find gives the place of a tool that a choice names; namespace "" finds one of any namespace too.
func (b *toolbox) find(name, namespace string) int {
	for i := range b.list {
		if t := &b.list[i]; t.name == name && t.namespace == namespace {
			return i
		}
	}
	for i := range b.list {
		if t := &b.list[i]; namespace == "" && (t.name == name || t.flat == name) {
			return i
		}
	}
	return -1
}

func (b *toolbox) force(name, namespace string) error {
	i := b.find(name, namespace)
	if i < 0 {
		return field.Invalid("tool_choice.name", "tool_choice names %q, which is not among the tools.", field.Clip(name))
	}
	b.forced = i + 1
	return nil
}

// allow reads allowed_tools: the model is told of no others.
func (b *toolbox) allow(q *Request, mode, tools []byte) error {
	const name = "tool_choice.tools"
	if b.mode = "auto"; mode != nil {
		b.mode = field.Text(mode)
		if err := field.OneOf("tool_choice.mode", mode, "none", "auto", "required"); err != nil {
			return err
		}
	}
	if !field.IsArray(tools) {
		return field.WantType(name, "an array of tools")
	}
	b.allowed = make([]bool, len(b.list))
	e, usable := scan.Array(tools), 0
	for i := 0; e.Next(); i++ {
		var f [3][]byte
		if err := q.read("tool_choice.tools[].", e.Value, []string{"type", "name", "namespace"}, f[:]); err != nil {
			return field.Within(field.At(name, i), err)
		}
		if b.hosted[field.Text(f[0])] {
			continue // it was dropped, and the client was told
		}
		k := b.find(field.Text(f[1]), field.Text(f[2]))
		if k < 0 {
			return field.Invalid(field.At(name, i), "tool_choice names %q, which is not among the tools.", field.Clip(field.Text(f[1])))
		}
		if !b.allowed[k] {
			b.allowed[k] = true
			usable++
		}
	}
	b.choice = append(append(append(append([]byte(`{"type":"allowed_tools","mode":"`), b.mode...), `","tools":`...), tools...), '}')
	return b.checkRequired(usable)
}

// appendChat appends tools and tool_choice as Chat Completions has them; nothing when there are none.
func (b *toolbox) appendChat(dst []byte) []byte {
	first := true
	for i := range b.list {
		if b.allowed != nil && !b.allowed[i] {
			continue
		}
		if first {
			dst, first = append(dst, `,"tools":[`...), false
		} else {
			dst = append(dst, ',')
		}
		dst = b.list[i].appendChat(dst)
	}
	if first {
		return dst
	}
	dst = append(dst, ']')
	switch {
	case b.forced > 0:
		dst = append(dst, `,"tool_choice":{"type":"function","function":{"name":`...)
		dst = append(scan.Quote(dst, b.list[b.forced-1].flat), `}}`...)
	case b.mode != "":
		dst = append(append(append(dst, `,"tool_choice":"`...), b.mode...), '"')
	}
	return dst
}

func (t *tool) appendChat(dst []byte) []byte {
	dst = scan.Quote(append(dst, `{"type":"function","function":{"name":`...), t.flat)
	switch {
	case t.grammar != nil: // nobody enforces it, so the model is told
		dst = append(dst, `,"description":"`...)
		if t.description != nil {
			dst = append(append(dst, field.Inside(t.description)...), `\n\n`...)
		}
		dst = append(append(append(dst, `The input must match this grammar:\n`...), field.Inside(t.grammar)...), '"')
	case t.description != nil:
		dst = append(append(dst, `,"description":`...), t.description...)
	}
	if t.custom {
		return append(append(append(dst, `,"parameters":`...), protocol.CustomParameters...), `}}`...)
	}
	if t.parameters != nil {
		dst = append(append(dst, `,"parameters":`...), t.parameters...)
	}
	if t.strict != nil {
		dst = append(append(dst, `,"strict":`...), t.strict...)
	}
	return append(dst, `}}`...)
}

// appendEcho appends a function as responses show it: strict readers want every member.
func (t *tool) appendEcho(dst []byte) []byte {
	dst = scan.Quote(append(dst, `{"type":"function","name":`...), t.name)
	dst = appendOr(append(dst, `,"description":`...), t.description, "null")
	dst = appendOr(append(dst, `,"parameters":`...), t.parameters, "null")
	return append(appendOr(append(dst, `,"strict":`...), t.strict, "null"), '}')
}

// appendOr appends raw JSON, or what stands for its absence.
func appendOr(dst, raw []byte, absent string) []byte {
	if raw == nil {
		return append(dst, absent...)
	}
	return append(dst, raw...)
}
