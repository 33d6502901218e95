package responses

import (
	"bytes"

	"millrace/serving/engine/scan"
)

// customInput reads the input of a custom tool out of the arguments of the function that stands for it, {"input": "…"}, as
// they come. Both are JSON in JSON: the arguments are the inside of a string, and the input is one within them.
type customInput struct {
	plain []byte // arguments decoded so far
	read  int    // of the arguments
	at    int    // of plain: what was walked
	began bool   // the input has begun
	other bool   // the arguments are not as promised: all of them are the input
	out   []byte // the input so far: the inside of a string, whatever the model wrote
	shown int    // of out
}

func (c *customInput) reset() { *c = customInput{plain: c.plain[:0], out: c.out[:0]} }

// take takes in the arguments, of which there may be more than the last time.
func (c *customInput) take(arguments []byte) {
	n := wholeEscapes(arguments[c.read:])
	c.plain = scan.Unquote(c.plain, arguments[c.read:c.read+n])
	c.read += n
	if !c.began && !c.other {
		c.begin()
	}
	if c.began {
		c.walk()
	}
}

// opening is what stands before the input, but for space.
var opening = [...]string{"{", `"input"`, ":", `"`}

// begin looks for the input's opening quote.
func (c *customInput) begin() {
	at := 0
	for _, token := range opening {
		at = scan.Space(c.plain, at)
		rest := c.plain[at:]
		if n := min(len(rest), len(token)); string(rest[:n]) != token[:n] {
			c.other = true
			return
		} else if n < len(token) {
			return // more must come
		}
		at += len(token)
	}
	c.began, c.at = true, at
}

// walk copies what is a string's inside, and mends what is not: models leave control characters and backslashes as they are.
func (c *customInput) walk() {
	for c.at < len(c.plain) {
		switch b := c.plain[c.at]; {
		case b == '"':
			return // its end
		case b < ' ':
			quoted := scan.Quote(nil, string(b))
			c.out = append(c.out, inside(quoted)...)
			c.at++
		case b != '\\':
			c.out = append(c.out, b)
			c.at++
		default:
			n := wholeEscapes(c.plain[c.at:min(c.at+longestEscape, len(c.plain))])
			if n == 0 {
				return // half an escape
			}
			c.escape()
		}
	}
}

// escape copies one escape.
func (c *customInput) escape() {
	rest := c.plain[c.at:]
	switch {
	case bytes.IndexByte([]byte(`"\/bfnrt`), rest[1]) >= 0:
		c.out, c.at = append(c.out, rest[:2]...), c.at+2
	case rest[1] == 'u' && len(rest) >= 6 && isHex(rest[2:6]):
		c.out, c.at = append(c.out, rest[:6]...), c.at+6
	default:
		c.out, c.at = append(c.out, `\\`...), c.at+1
	}
}

// longestEscape is two halves of a character, in bytes.
const longestEscape = len(`\ud83d\ude00`)

// wholeEscapes is how much of a string's inside has no half of an escape at its end.
func wholeEscapes(text []byte) int {
	i := 0
	for i < len(text) {
		if text[i] != '\\' {
			next := bytes.IndexByte(text[i:], '\\')
			if next < 0 {
				return len(text)
			}
			i += next
			continue
		}
		n := 2
		if i+1 < len(text) && text[i+1] == 'u' {
			if n = 6; i+4 <= len(text) && (text[i+2]|0x20) == 'd' && bytes.IndexByte([]byte("89abAB"), text[i+3]) >= 0 {
				n = longestEscape // the other half follows, or whatever stands there is taken with it
			}
		}
		if i+n > len(text) {
			return i
		}
		if n == longestEscape && !bytes.HasPrefix(text[i+6:], []byte(`\u`)) {
			n = 6
		}
		i += n
	}
	return i
}

func isHex(b []byte) bool {
	for _, c := range b {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return true
}

// fresh is what has not been shown yet.
func (c *customInput) fresh() []byte {
	out := c.out[c.shown:]
	c.shown = len(c.out)
	return out
}

// inputOf is the input in whole arguments, or in as many as came.
func inputOf(arguments []byte) []byte {
	var c customInput
	c.take(arguments)
	if !c.began {
		return arguments
	}
	return c.out
}
