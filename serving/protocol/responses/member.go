package responses

import (
	"slices"
	"strconv"
	"strings"

	"millrace/serving/protocol/field"
)

func wantType(param, want string) error { return field.Invalid(param, "%s must be %s.", param, want) }

// read reads the named members of an object. Others are named to the client: they have no effect.
func (q *Request) read(place string, raw []byte, names []string, into [][]byte) error {
	return field.Read(raw, names, into, func(name []byte) { q.Ignored.Add(place, name) })
}

func oneOf(param string, v []byte, values ...string) error {
	if !field.IsString(v) || !slices.Contains(values, field.Text(v)) {
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
		return field.Invalid(param, "%s must be between %g and %g.", param, low, high)
	}
	return nil
}

func integer(param string, v []byte, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, wantType(param, "a whole number")
	}
	if n < low || n > high {
		return 0, field.Invalid(param, "%s must be between %d and %d.", param, low, high)
	}
	return n, nil
}
