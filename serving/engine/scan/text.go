package scan

import (
	"bytes"
	"encoding/json"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote appends the text of a JSON string's inside (without its quotes) to dst. Broken escapes and lone surrogates
// become U+FFFD, as encoding/json makes them.
func Unquote(dst, inside []byte) []byte {
	for {
		n := bytes.IndexByte(inside, '\\')
		if n < 0 || n+1 >= len(inside) {
			return append(dst, inside...)
		}
		dst = append(dst, inside[:n]...)
		c := inside[n+1]
		rest := inside[n+2:]
		switch c {
		case 'n':
			dst = append(dst, '\n')
		case 't':
			dst = append(dst, '\t')
		case 'r':
			dst = append(dst, '\r')
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'u':
			var r rune
			r, rest = codepoint(rest)
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
		inside = rest
	}
}

// codepoint reads the hex digits after \u, and the second half of a surrogate pair.
func codepoint(rest []byte) (rune, []byte) {
	r, ok := hex4(rest)
	if !ok {
		return utf8.RuneError, rest
	}
	rest = rest[4:]
	if !utf16.IsSurrogate(r) {
		return r, rest
	}
	if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
		if low, ok := hex4(rest[2:]); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return both, rest[6:]
			}
		}
	}
	return utf8.RuneError, rest
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// Text appends the text of a JSON string value (quotes included in raw) to dst; ok is false when raw is no string.
func Text(dst, raw []byte) (out []byte, ok bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return dst, false
	}
	return Unquote(dst, raw[1:len(raw)-1]), true
}

// Quote appends s as a JSON string to dst.
func Quote(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil { // cannot happen: strings always marshal
				return append(dst, `""`...)
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
