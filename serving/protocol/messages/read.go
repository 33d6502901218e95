package messages

import (
	"bytes"
	"strconv"
	"strings"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// maxMembers bounds the members of one object that we read.
const maxMembers = 64

// object walks an object's members, those that nobody knows too. Each may be given once; null is as good as absent.
func object(raw []byte, visit func(name, v []byte) error) error {
	if !field.IsObject(raw) {
		return field.Invalid("", "It must be an object.")
	}
	var space [16][]byte
	seen := space[:0]
	m := scan.Object(raw)
	for m.Next() {
		for _, k := range seen {
			if bytes.Equal(k, m.Key) {
				return field.Invalid(field.Clip(m.Key), "It is given twice.")
			}
		}
		if len(seen) == maxMembers {
			return field.Invalid("", "It has more than %d members.", maxMembers)
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
	if !field.IsArray(raw) {
		return field.Invalid("", "It must be an array.")
	}
	e := scan.Array(raw)
	for i := 0; e.Next(); i++ {
		if i == most {
			return field.Invalid("", "It has more than %d elements.", most)
		}
		if err := visit(i, e.Value); err != nil {
			return field.Within(field.At("", i), err)
		}
	}
	return nil
}

func wantOneOf(param string, values ...string) error {
	return field.Invalid(param, "It must be one of %s.", strings.Join(values, ", "))
}

// text is the inside of a JSON string, still escaped.
func text(param string, v []byte) ([]byte, error) {
	if !field.IsString(v) {
		return nil, field.Invalid(param, "It must be a string.")
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
		return nil, field.Invalid(param, "It must not be empty.")
	}
	return inside, err
}

func required(param string) error { return field.Invalid(param, "Field required.") }

func boolean(param string, v []byte) (bool, error) {
	if !field.IsBool(v) {
		return false, field.Invalid(param, "It must be true or false.")
	}
	return v[0] == 't', nil
}

func integer(param string, v []byte, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	switch {
	case err != nil:
		return 0, field.Invalid(param, "It must be a whole number.")
	case n < low:
		return 0, field.Invalid(param, "It must be greater than or equal to %d.", low)
	case n > high:
		return 0, field.Invalid(param, "It must be less than or equal to %d.", high)
	}
	return n, nil
}

func fraction(param string, v []byte) error {
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || v[0] == '"' {
		return field.Invalid(param, "It must be a number.")
	}
	if f < 0 || f > 1 {
		return field.Invalid(param, "It must be between 0 and 1.")
	}
	return nil
}

func contains(values []string, v []byte) bool {
	for _, s := range values {
		if s == string(v) {
			return true
		}
	}
	return false
}
