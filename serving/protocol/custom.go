package protocol

import (
	"bytes"
	"strconv"

	"millrace/serving/engine/scan"
)

// A custom tool takes text instead of arguments. Engines know functions only: a function with one string stands for it.
const (
	customInput      = "input"
	CustomParameters = `{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as plain text."}},` +
		`"required":["input"],"additionalProperties":false}`
)

// maxCustomSearch is how far into the arguments the input is looked for, in bytes: with each piece anew.
const maxCustomSearch = 16 << 10

// CustomInput finds the input of a custom tool in the arguments of the function that stands for it, piece by piece. The
// zero value is ready.
type CustomInput struct {
	raw    []byte // the arguments so far, as JSON
	half   []byte // half an escape that the latest piece ended with
	at     int    // how much of the input was given
	found  bool
	missed bool // it is not where it is looked for
	ended  bool
}

// Add takes in more of the arguments, the inside of a JSON string, and appends what that adds to the input: the inside of a
// JSON string too. An escape that has not come whole waits for its rest.
func (x *CustomInput) Add(dst, args []byte) []byte {
	if len(x.half) > 0 {
		args = append(x.half, args...)
	}
	whole := wholeEscapes(args)
	x.raw = scan.Unquote(x.raw, args[:whole])
	x.half = append([]byte(nil), args[whole:]...)
	if !x.found && !x.missed {
		x.found = x.find(x.raw[:min(len(x.raw), maxCustomSearch)])
		x.missed = !x.found && len(x.raw) >= maxCustomSearch
	}
	if !x.found || x.ended {
		return dst
	}
	for x.at < len(x.raw) {
		switch c := x.raw[x.at]; {
		case c == '"':
			x.ended = true
			return dst
		case c < ' ': // models leave control characters and backslashes as they are
			quoted := scan.Quote(nil, string(c))
			dst = append(dst, quoted[1:len(quoted)-1]...)
			x.at++
		case c != '\\':
			dst = append(dst, c)
			x.at++
		default:
			n := escapeLength(x.raw[x.at:])
			if n == 0 {
				return dst
			}
			escape := x.raw[x.at : x.at+n]
			if !cleanText(escape) {
				n, escape = 1, []byte(`\\`)
			}
			dst = append(dst, escape...)
			x.at += n
		}
	}
	return dst
}

// Rest appends what is left at the end: a model that gave no object with an input meant all that it gave.
func (x *CustomInput) Rest(dst []byte) []byte {
	if x.found || len(x.raw) == 0 {
		return dst
	}
	quoted := scan.Quote(nil, string(x.raw))
	return append(dst, quoted[1:len(quoted)-1]...)
}

// find looks for the member's string, whose rest may not have come yet.
func (x *CustomInput) find(raw []byte) bool {
	i := scan.Space(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return false
	}
	for i++; ; i++ {
		if i = scan.Space(raw, i); i >= len(raw) || raw[i] != '"' {
			return false
		}
		end := scan.String(raw, i)
		if end < 0 {
			return false
		}
		key := raw[i+1 : end-1]
		if i = scan.Space(raw, end); i >= len(raw) || raw[i] != ':' {
			return false
		}
		i = scan.Space(raw, i+1)
		if string(key) == customInput {
			if i >= len(raw) || raw[i] != '"' {
				return false
			}
			x.at = i + 1
			return true
		}
		if i >= len(raw) {
			return false
		}
		if end = scan.Value(raw, i); end < 0 {
			return false
		}
		if i = scan.Space(raw, end); i >= len(raw) || raw[i] != ',' {
			return false
		}
	}
}

// wholeEscapes is how much of a string's inside has no half of an escape at its end.
func wholeEscapes(text []byte) int {
	for i := 0; ; {
		next := bytes.IndexByte(text[i:], '\\')
		if next < 0 {
			return len(text)
		}
		i += next
		n := escapeLength(text[i:])
		if n == 0 {
			return i
		}
		i += n
	}
}

// InputOf is the input in whole arguments, or in as many as came.
func InputOf(arguments []byte) []byte {
	var x CustomInput
	return x.Rest(x.Add(nil, arguments))
}

// escapeLength is the length of the escape that text begins with, both halves of a pair together; 0 = it has not come whole.
func escapeLength(text []byte) int {
	switch {
	case len(text) < 2:
		return 0
	case text[1] != 'u':
		return 2
	case len(text) < 6:
		return 0
	}
	if n, err := strconv.ParseUint(string(text[2:6]), 16, 16); err != nil || n&0xfc00 != 0xd800 {
		return 6
	}
	switch rest := text[6:]; {
	case len(rest) >= 6:
		if rest[0] == '\\' && rest[1] == 'u' {
			return 12
		}
		return 6
	case bytes.HasPrefix([]byte(`\u`), rest[:min(len(rest), 2)]): // nothing yet, or the start of the other half
		return 0
	}
	return 6
}

// appendCustomArguments appends a custom call's input, a JSON string, as the arguments of the function that stands for it.
func appendCustomArguments(dst, input []byte) []byte {
	object := append(append([]byte(`{"`+customInput+`":`), input...), '}')
	return scan.Quote(dst, string(object))
}
