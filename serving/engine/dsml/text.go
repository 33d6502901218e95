package dsml

import (
	"strings"
	"unicode/utf8"

	"millrace/serving/engine/scan"
)

// entry is a member of an object.
type entry struct {
	key   string
	value []byte
}

// objectOf lists an object's members; one that comes again keeps its place and takes the later value.
func objectOf(raw []byte) ([]entry, bool) {
	var list []entry
	places := map[string]int{}
	m := scan.Object(raw)
	for m.Next() {
		key, ok := stringOf(raw[m.Start : m.Start+keyLength(raw[m.Start:])])
		if !ok {
			return nil, false
		}
		if at, again := places[key]; again {
			list[at].value = m.Value
			continue
		}
		places[key] = len(list)
		list = append(list, entry{key, m.Value})
	}
	return list, m.Err() == nil
}

func keyLength(raw []byte) int { return max(scan.String(raw, 0), 0) }

// stringOf decodes a JSON string; false where it holds half a surrogate pair, which no text can.
func stringOf(raw []byte) (string, bool) {
	text, ok := scan.Text(nil, raw)
	if !ok {
		return "", false
	}
	s := string(text)
	return s, !strings.ContainsRune(s, utf8.RuneError) || strings.Count(s, "\uFFFD") == written(raw)
}

// written counts the replacement characters that a JSON string really holds.
func written(raw []byte) int {
	n := strings.Count(string(raw), "\uFFFD")
	for _, form := range strings.Split(strings.ToLower(strings.ReplaceAll(string(raw), `\\`, "")), `\u`)[1:] {
		if strings.HasPrefix(form, "fffd") {
			n++
		}
	}
	return n
}

// appendString appends s as a JSON string with the fewest escapes.
func appendString(dst []byte, s string) []byte {
	return append(appendInside(append(dst, '"'), []byte(s)), '"')
}

// appendInside appends text as the inside of a JSON string.
func appendInside(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(dst, text[start:]...)
}
