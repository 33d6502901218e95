package protocol

import (
	"bytes"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// customAsFunction is the function that stands for a custom tool.
func customAsFunction(name, description, format []byte) []byte {
	words := field.Text(description)
	if definition, syntax := grammar(format); definition != nil { // no engine constrains one string of a function: the model is told
		words += "\nThe input must match this " + field.Text(syntax) + " grammar:\n" + field.Text(definition)
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

// customHistory puts the function's call in the place of a custom tool's.
func (r *chatReader) customHistory(raw []byte, c piece) error {
	for _, v := range [][]byte{c.id, c.name, c.args} {
		if !field.IsString(v) {
			return invalid("", "A custom tool's call of an earlier answer has id, custom.name and custom.input.")
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
