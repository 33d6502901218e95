package dsml

import (
	"math"
	"strconv"
	"strings"

	"millrace/serving/engine/scan"
)

// maxDepth bounds how deep JSON in a prompt may be nested, in containers.
const maxDepth = 127

// dump appends a JSON value as Python's json.dumps writes it without ASCII escapes, which is how the models were shown
// JSON: a space after commas and colons, the last of members with one name, V4.1's numbers as Python prints them. It reports
// false for what has no such form: too deep, too large a number, half a surrogate pair. raw must be valid JSON.
func (m *markup) dump(dst, raw []byte, depth int) ([]byte, bool) {
	if len(raw) == 0 {
		return dst, false
	}
	switch raw[0] {
	case '{':
		return m.dumpObject(dst, raw, depth+1)
	case '[':
		return m.dumpArray(dst, raw, depth+1)
	case '"':
		text, ok := stringOf(raw)
		return appendString(dst, text), ok
	case 't', 'f', 'n':
		return append(dst, raw...), true
	}
	return m.dumpNumber(dst, string(raw))
}

func (m *markup) dumpObject(dst, raw []byte, depth int) ([]byte, bool) {
	members, ok := objectOf(raw)
	if !ok || depth > maxDepth {
		return dst, false
	}
	dst = append(dst, '{')
	for i, e := range members {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(appendString(dst, e.key), ": "...)
		if dst, ok = m.dump(dst, e.value, depth); !ok {
			return dst, false
		}
	}
	return append(dst, '}'), true
}

func (m *markup) dumpArray(dst, raw []byte, depth int) ([]byte, bool) {
	if depth > maxDepth {
		return dst, false
	}
	dst = append(dst, '[')
	e, ok := scan.Array(raw), true
	for n := 0; e.Next(); n++ {
		if n > 0 {
			dst = append(dst, ", "...)
		}
		if dst, ok = m.dump(dst, e.Value, depth); !ok {
			return dst, false
		}
	}
	return append(dst, ']'), e.Err() == nil
}

// dumpNumber writes whole numbers of 64 bits as they are and all others as the version prints a float.
func (m *markup) dumpNumber(dst []byte, s string) ([]byte, bool) {
	if _, err := strconv.ParseInt(s, 10, 64); err == nil && s != "-0" {
		return append(dst, s...), true
	}
	if _, err := strconv.ParseUint(s, 10, 64); err == nil {
		return append(dst, s...), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return dst, false
	}
	short := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, _ := strings.Cut(short, "e")
	if e, _ := strconv.Atoi(exponent); f != 0 && (e < m.smallest || e >= 16) {
		if m.shortExponent {
			short = strings.Replace(short, "e-0", "e-", 1)
		}
		return append(dst, short...), true
	}
	short = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(short, ".") {
		short += ".0"
	}
	return append(dst, short...), true
}
