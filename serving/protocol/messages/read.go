package messages

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

// maxMembers bounds the members of one object that we read.
const maxMembers = 64

// object walks an object's members. Each may be given once; null is as good as absent.
func object(raw []byte, visit func(name, v []byte) error) error {
	if !isObject(raw) {
		return invalid("", "It must be an object.")
	}
	var space [16][]byte
	seen := space[:0]
	m := scan.Object(raw)
	for m.Next() {
		for _, k := range seen {
			if bytes.Equal(k, m.Key) {
				return invalid(clip(m.Key), "It is given twice.")
			}
		}
		if len(seen) == maxMembers {
			return invalid("", "It has more than %d members.", maxMembers)
		}
		seen = append(seen, m.Key)
		if string(m.Value) == "null" {
			continue
		}
		if err := visit(m.Key, m.Value); err != nil {
			return err
		}
	}
	return nil
}

// list walks an array's elements; faults get their place.
func list(raw []byte, most int, visit func(i int, v []byte) error) error {
	if raw[0] != '[' {
		return invalid("", "It must be an array.")
	}
	e := scan.Array(raw)
	for i := 0; e.Next(); i++ {
		if i == most {
			return invalid("", "It has more than %d elements.", most)
		}
		if err := visit(i, e.Value); err != nil {
			return within("["+strconv.Itoa(i)+"]", err)
		}
	}
	return nil
}

// within names the place of a fault that was found inside it.
func within(at string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && f.Kind == fault.Invalid {
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

func invalid(param, format string, args ...any) *fault.Fault {
	return fault.New(fault.Invalid, format, args...).WithParam(param)
}

func unsupported(param, format string, args ...any) *fault.Fault {
	return invalid(param, format, args...).WithCode("unsupported_parameter")
}

func wantOneOf(param string, values ...string) error {
	return invalid(param, "It must be one of %s.", strings.Join(values, ", "))
}

func isString(v []byte) bool { return len(v) > 1 && v[0] == '"' }
func isObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 1 && v[0] == '[' }

// text is the inside of a JSON string, still escaped.
func text(param string, v []byte) ([]byte, error) {
	if !isString(v) {
		return nil, invalid(param, "It must be a string.")
	}
	return v[1 : len(v)-1], nil
}

// needed is text that must be there.
func needed(param string, v []byte) ([]byte, error) {
	if v == nil {
		return nil, required(param)
	}
	inside, err := text(param, v)
	if err == nil && len(inside) == 0 {
		return nil, invalid(param, "It must not be empty.")
	}
	return inside, err
}

func required(param string) error { return invalid(param, "Field required.") }

func boolean(param string, v []byte) (bool, error) {
	if len(v) == 0 || v[0] != 't' && v[0] != 'f' {
		return false, invalid(param, "It must be true or false.")
	}
	return v[0] == 't', nil
}

func integer(param string, v []byte, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	switch {
	case err != nil:
		return 0, invalid(param, "It must be a whole number.")
	case n < low:
		return 0, invalid(param, "It must be greater than or equal to %d.", low)
	case n > high:
		return 0, invalid(param, "It must be less than or equal to %d.", high)
	}
	return n, nil
}

func fraction(param string, v []byte) error {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || v[0] == '"' {
		return invalid(param, "It must be a number.")
	}
	if f < 0 || f > 1 {
		return invalid(param, "It must be between 0 and 1.")
	}
	return nil
}

// maxShown bounds what is repeated of a client's own text in an error.
const maxShown = 64

func clip(b []byte) string {
	if len(b) <= maxShown {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:maxShown]), "") + "…"
}

// member finds a member of an object; nil when there is none, or no object.
func member(raw []byte, name string) (value []byte) {
	if !isObject(raw) {
		return nil
	}
	for m := scan.Object(raw); m.Next(); {
		if string(m.Key) == name && string(m.Value) != "null" {
			value = m.Value
		}
	}
	return value
}

func contains(values []string, v []byte) bool {
	for _, s := range values {
		if s == string(v) {
			return true
		}
	}
	return false
}
