// Package field reads the members of clients' JSON: which there are, of what kind, where what is wrong with one stands, and
// the names of those that have no effect. Every dialect's decoder uses it; it knows none of them. It owns no text: what it
// gives are slices of what it was given.
package field

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// The kinds of a raw value. It may be nil, for what is absent.

// IsNull reports whether there is no value.
func IsNull(v []byte) bool { return len(v) == 0 || v[0] == 'n' }

// IsString reports whether a value is a string.
func IsString(v []byte) bool { return len(v) > 1 && v[0] == '"' }

// IsObject reports whether a value is an object.
func IsObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }

// IsArray reports whether a value is an array.
func IsArray(v []byte) bool { return len(v) > 1 && v[0] == '[' }

// IsBool reports whether a value is true or false.
func IsBool(v []byte) bool { return len(v) > 3 && (v[0] == 't' || v[0] == 'f') }

// Inside is what a string holds between its quotes, still escaped; nil for anything else.
func Inside(v []byte) []byte {
	if !IsString(v) {
		return nil
	}
	return v[1 : len(v)-1]
}

// Text is a string's text, "" for anything else.
func Text(v []byte) string {
	if !IsString(v) {
		return ""
	}
	inside := v[1 : len(v)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside)
	}
	return string(scan.Unquote(nil, inside))
}

// maxShown bounds what is repeated of a client's own text, in bytes.
const maxShown = 64

// Clip is a client's own text as an error may repeat it.
func Clip[T string | []byte](text T) string {
	if len(text) <= maxShown {
		return string(text)
	}
	return strings.ToValidUTF8(string(text[:maxShown]), "") + "…"
}

// At names an element of an array.
func At(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// Within names the place of a fault that was found inside it. Places are only put together when something is wrong.
func Within(at string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		switch {
		case f.Param == "":
			f.Param = at
		case f.Param[0] == '[':
			f.Param = at + f.Param
		default:
			f.Param = at + "." + f.Param
		}
	}
	return err
}

// Invalid is a fault in a member.
func Invalid(param, format string, args ...any) *fault.Fault {
	return fault.New(fault.Invalid, format, args...).WithParam(Clip(param))
}

// Unsupported is a fault in a member that is right, but not here.
func Unsupported(param, format string, args ...any) *fault.Fault {
	return Invalid(param, format, args...).WithCode("unsupported_parameter")
}

// Walk visits the members of an object: i is a name's place in names, of which there are at most 64, and -1 for any other. One
// of names that is given twice is a fault, since readers differ in which counts.
func Walk(raw []byte, names []string, visit func(i int, key, value []byte, start, end int)) error {
	if !IsObject(raw) {
		return fault.New(fault.Invalid, "An object was expected here.")
	}
	var seen uint64
	m := scan.Object(raw)
	for m.Next() {
		i := index(names, m.Key)
		if i >= 0 {
			if seen&(1<<i) != 0 {
				return Invalid(names[i], "%s is given twice.", names[i])
			}
			seen |= 1 << i
		}
		visit(i, m.Key, m.Value, m.Start, m.End)
	}
	return nil
}

func index(names []string, key []byte) int {
	for i, n := range names {
		if string(key) == n {
			return i
		}
	}
	return -1
}

// Read gives the members of an object that have names, nil for what is absent or null. What is neither is told.
func Read(raw []byte, names []string, into [][]byte, strange func(name []byte)) error {
	return Walk(raw, names, func(i int, key, value []byte, _, _ int) {
		switch {
		case IsNull(value):
		case i >= 0:
			into[i] = value
		default:
			strange(key)
		}
	})
}

// Unused tells of the members that Read found and that say nothing here: means has a bit for each that does, by its place.
func Unused(in [][]byte, names []string, means uint32, strange func(name []byte)) {
	for i, v := range in {
		if v != nil && means&(1<<i) == 0 {
			strange([]byte(names[i]))
		}
	}
}

// Member finds a member of an object, the last of its name; nil when there is none but null, or no object.
func Member(object []byte, name string) (value []byte) {
	if !IsObject(object) {
		return nil
	}
	for m := scan.Object(object); m.Next(); {
		if string(m.Key) == name && !IsNull(m.Value) {
			value = m.Value
		}
	}
	return value
}
