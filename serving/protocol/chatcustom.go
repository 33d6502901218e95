package protocol

import (
	"bytes"

	"millrace/serving/engine/scan"
)

// customAsFunction is the function that stands for a custom tool: {"type":"custom","custom":{name, description, format}}.
func customAsFunction(tool []byte) []byte {
	var name, description, definition, syntax []byte
	for m := scan.Object(tool); m.Next(); {
		if string(m.Key) != "custom" {
			continue
		}
		for c := scan.Object(m.Value); c.Next(); {
			switch string(c.Key) {
			case "name":
				name = c.Value
			case "description":
				description = c.Value
			case "format":
				definition, syntax = grammar(c.Value)
			}
		}
	}
	words := text(description)
	if definition != nil { // no engine constrains one string of a function: the model is told
		words += "\nThe input must match this " + text(syntax) + " grammar:\n" + text(definition)
	}
	out := append(append([]byte(`{"type":"function","function":{"name":`), name...), `,"description":`...)
	return append(append(append(scan.Quote(out, words), `,"parameters":`...), CustomParameters...), `}}`...)
}

// grammar reads a custom tool's format of type grammar.
func grammar(format []byte) (definition, syntax []byte) {
	for m := scan.Object(format); m.Next(); {
		switch string(m.Key) {
		case "grammar":
			return grammar(m.Value)
		case "definition":
			definition = m.Value
		case "syntax":
			syntax = m.Value
		}
	}
	return definition, syntax
}

// customCall reads a custom tool's call of an earlier answer.
func customCall(raw []byte) (kind string, c piece) {
	for m := scan.Object(raw); m.Next(); {
		switch string(m.Key) {
		case "type":
			kind = text(m.Value)
		case "id":
			c.id = m.Value
		case "custom":
			for f := scan.Object(m.Value); f.Next(); {
				switch string(f.Key) {
				case "name":
					c.name = f.Value
				case "input":
					c.args = f.Value
				}
			}
		}
	}
	return kind, c
}

// customHistory puts the function's call in the place of a custom tool's.
func (r *chatReader) customHistory(at string, raw []byte, c piece) error {
	for _, v := range [][]byte{c.id, c.name, c.args} {
		if len(v) == 0 || !isString(v) {
			return wantType(at, "a custom tool's call with id, custom.name and custom.input")
		}
	}
	r.req.TextBytes += int64(len(c.name) + len(c.args))
	out := append(append([]byte(`{"id":`), c.id...), `,"type":"function","function":{"name":`...)
	out = append(append(out, c.name...), `,"arguments":`...)
	r.replace(raw, string(append(appendCustomArguments(out, c.args), `}}`...)))
	return nil
}

func appendFunctionName(dst []byte, name string) []byte {
	return append(scan.Quote(append(dst, `{"type":"function","function":{"name":`...), name), `}}`...)
}

// custom reports whether a tool is one of the request's custom ones.
func (p *AnswerParams) custom(name []byte) bool {
	for _, c := range p.CustomTools {
		if bytes.Equal(name, []byte(c)) || string(scan.Unquote(nil, name)) == c {
			return true
		}
	}
	return false
}
