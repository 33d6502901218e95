package protocol

import (
	"bytes"
	"unicode/utf8"

	"millrace/serving/engine/scan"
)

// cursor reads JSON in one pass, front to back. It checks the structure that it walks through; what it passes over it
// does not judge. Once bad, it stays bad and finds nothing more.
type cursor struct {
	text []byte
	at   int
	bad  bool
}

// open passes an opening bracket.
func (c *cursor) open(bracket byte) bool {
	if c.space(); c.bad || c.at >= len(c.text) || c.text[c.at] != bracket {
		c.bad = true
		return false
	}
	c.at++
	return true
}

// more passes what stands before item n of a list, or the list's end; then it is false.
func (c *cursor) more(end byte, n int) bool {
	if c.space(); c.bad || c.at >= len(c.text) {
		c.bad = true
		return false
	}
	switch got := c.text[c.at]; {
	case got == end:
		c.at++
		return false
	case n == 0:
		return true
	case got == ',':
		c.at++
		c.space()
		return true
	}
	c.bad = true
	return false
}

// key passes a member's name and the colon.
func (c *cursor) key() []byte {
	k := c.value()
	if len(k) < 2 || k[0] != '"' {
		c.bad = true
		return nil
	}
	k = k[1 : len(k)-1]
	if bytes.IndexByte(k, '\\') >= 0 {
		k = scan.Unquote(nil, k)
	}
	if c.space(); c.at >= len(c.text) || c.text[c.at] != ':' {
		c.bad = true
		return nil
	}
	c.at++
	c.space()
	return k
}

// value passes a value and gives it: never empty, but for a bad cursor.
func (c *cursor) value() []byte {
	if c.bad {
		return nil
	}
	end := scan.Value(c.text, c.at)
	if end < 0 {
		c.bad = true
		return nil
	}
	v := c.text[c.at:end]
	c.at = end
	return v
}

// null passes a null when one is next.
func (c *cursor) null() bool {
	if !c.bad && c.at+4 <= len(c.text) && string(c.text[c.at:c.at+4]) == "null" {
		c.at += 4
		return true
	}
	return false
}

func (c *cursor) space() { c.at = scan.Space(c.text, c.at) }

// ended reports whether the text was read to its end and was as it should be.
func (c *cursor) ended() bool {
	c.space()
	return !c.bad && c.at == len(c.text)
}

// cleanText reports whether the inside of a string is valid JSON in valid UTF-8.
func cleanText(text []byte) bool {
	if !utf8.Valid(text) {
		return false
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < ' ':
			return false
		case c == '\\':
			if i++; i == len(text) {
				return false
			}
			if text[i] == 'u' {
				if i += 4; i >= len(text) || !hex(text[i-3:i+1]) {
					return false
				}
			} else if !escapes[text[i]] {
				return false
			}
		}
	}
	return true
}

// escapes are the characters that may follow a backslash, but for u.
var escapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

func hex(digits []byte) bool {
	for _, c := range digits {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}
