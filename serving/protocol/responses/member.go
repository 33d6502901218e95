package responses

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/fault"
	"millrace/serving/engine/scan"
)

func isNull(v []byte) bool   { return len(v) == 0 || string(v) == "null" }
func isString(v []byte) bool { return len(v) > 1 && v[0] == '"' }
func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isBool(v []byte) bool   { return string(v) == "true" || string(v) == "false" }

// inside is what a JSON string holds between its quotes.
func inside(v []byte) []byte { return v[1 : len(v)-1] }

// text decodes a JSON string; anything else is "".
func text(v []byte) string {
	if !isString(v) {
		return ""
	}
	return string(scan.Unquote(nil, inside(v)))
}

// maxShown bounds what is repeated of a client's own text, in bytes.
const maxShown = 64

func clip(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "…"
	}
	return s
}

func invalid(param, format string, args ...any) *fault.Fault {
	return fault.New(fault.Invalid, format, args...).WithParam(param)
}

func wantType(param, want string) error { return invalid(param, "%s must be %s.", param, want) }

func unsupported(param, format string, args ...any) error {
	return invalid(param, format, args...).WithCode("unsupported_parameter")
}

// within names the place of a fault that was found inside it.
func within(at string, err error) error {
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

func at(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// maxFields is how many members are read of an object at once.
const maxFields = 5

// fields reads the named members of an object, nil for those that are absent or null. A name given twice is an error.
func fields(raw []byte, names ...string) (out [maxFields][]byte, err error) {
	if !isObject(raw) {
		return out, fault.New(fault.Invalid, "An object was expected here.")
	}
	m := scan.Object(raw)
	for m.Next() {
		i := slices.Index(names, string(m.Key))
		if i < 0 || isNull(m.Value) {
			continue
		}
		if out[i] != nil {
			return out, invalid(names[i], "%s is given twice.", names[i])
		}
		out[i] = m.Value
	}
	return out, nil
}

func oneOf(param string, v []byte, values ...string) error {
	if !isString(v) || !slices.Contains(values, text(v)) {
		return wantType(param, "one of "+strings.Join(values, ", "))
	}
	return nil
}

func number(param string, v []byte, low, high float64) error {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return wantType(param, "a number")
	}
	if f < low || f > high {
		return invalid(param, "%s must be between %g and %g.", param, low, high)
	}
	return nil
}

func integer(param string, v []byte, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, wantType(param, "a whole number")
	}
	if n < low || n > high {
		return 0, invalid(param, "%s must be between %d and %d.", param, low, high)
	}
	return n, nil
}

// shown is a client's own name as a header can carry it.
func shown(name string) string {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == ',' || c == '"' {
			return strconv.QuoteToASCII(clip(name))
		}
	}
	return clip(name)
}

// maxIgnored bounds what is named of what was ignored.
const maxIgnored = 32

func (q *Request) ignore(format string, args ...any) {
	name := fmt.Sprintf(format, args...)
	if !slices.Contains(q.Ignored, name) && len(q.Ignored) < maxIgnored {
		q.Ignored = append(q.Ignored, name)
	}
}
