package messages

import "millrace/serving/engine/scan"

// maxDepth bounds how deep a tool's arguments nest: clients' parsers have limits too.
const maxDepth = 256

// jsonState says what an object reader has read last.
type jsonState uint8

const (
	beforeObject jsonState = iota // nothing but white space
	afterOpenObject
	afterOpenArray
	beforeKey // after a comma in an object
	inKey
	afterKey
	beforeValue
	inString
	afterValue
	inLiteral
	afterMinus
	afterZero
	inInteger
	afterPoint
	inFraction
	afterE
	afterESign
	inExponent
	afterObject // the whole object has come
	broken
)

// objectReader reads the text of one JSON object byte by byte, and knows at each how far the text is good. The zero value
// is at the start. Engines send arguments that break off, that are no JSON, or that go on after their end.
type objectReader struct {
	stack   []byte // the open containers: { or [
	state   jsonState
	escape  int    // in a string: what is left of an escape, -1 = its first character
	literal string // what must follow of true, false or null
	read    int    // bytes taken

	good, depth int // where the last finished value, or opening, ended, and how many containers were open then
}

func (r *objectReader) reset() { *r = objectReader{stack: r.stack[:0]} }

// whole reports whether the object has come to its end.
func (r *objectReader) whole() bool { return r.state == afterObject }

// take gives what of text belongs to the object: all up to its end, or to the first byte that cannot be there. Space
// before the object does not belong to it.
func (r *objectReader) take(text []byte) []byte {
	if r.state == beforeObject {
		text = text[scan.Space(text, 0):]
	}
	for i, c := range text {
		if r.state == broken || r.state == afterObject || !r.next(c) {
			if r.state != afterObject {
				r.state = broken
			}
			return text[:i]
		}
		r.read++
	}
	return text
}

// next takes one byte; false = it cannot come here.
func (r *objectReader) next(c byte) bool {
	switch r.state {
	case inKey, inString:
		return r.inside(c)
	case inLiteral:
		if r.literal == "" || c != r.literal[0] {
			return false
		}
		if r.literal = r.literal[1:]; r.literal == "" {
			r.finished(r.read + 1)
		}
		return true
	case afterMinus, afterZero, inInteger, afterPoint, inFraction, afterE, afterESign, inExponent:
		if r.number(c) {
			return true
		}
		if !r.endNumber() {
			return false
		}
	}
	if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
		return true
	}
	return r.token(c)
}

// endNumber ends a number before the next byte, or where the text breaks off: clients' parsers take it for whole too.
func (r *objectReader) endNumber() bool {
	switch r.state {
	case afterZero, inInteger, inFraction, inExponent:
		r.finished(r.read)
		return true
	}
	return false
}

// token takes a byte that begins or ends something.
func (r *objectReader) token(c byte) bool {
	switch r.state {
	case beforeObject:
		return c == '{' && r.open(c)
	case afterOpenObject, beforeKey:
		if c == '"' {
			r.state = inKey
			return true
		}
		return r.state == afterOpenObject && c == '}' && r.close('{')
	case afterKey:
		r.state = beforeValue
		return c == ':'
	case afterOpenArray:
		return c == ']' && r.close('[') || c != ']' && r.value(c)
	case beforeValue:
		return r.value(c)
	case afterValue:
		inObject := r.stack[len(r.stack)-1] == '{'
		switch {
		case c == ',' && inObject:
			r.state = beforeKey
		case c == ',':
			r.state = beforeValue
		case c == '}' || c == ']':
			return r.close(c - 2) // { and [ stand two before their ends
		default:
			return false
		}
		return true
	}
	return false
}

func (r *objectReader) value(c byte) bool {
	switch {
	case c == '{' || c == '[':
		return r.open(c)
	case c == '"':
		r.state = inString
	case c == '-':
		r.state = afterMinus
	case c == '0':
		r.state = afterZero
	case '1' <= c && c <= '9':
		r.state = inInteger
	case c == 't':
		r.state, r.literal = inLiteral, "rue"
	case c == 'f':
		r.state, r.literal = inLiteral, "alse"
	case c == 'n':
		r.state, r.literal = inLiteral, "ull"
	default:
		return false
	}
	return true
}

func (r *objectReader) open(c byte) bool {
	if len(r.stack) == maxDepth {
		return false
	}
	r.stack = append(r.stack, c)
	if r.state = afterOpenArray; c == '{' {
		r.state = afterOpenObject
	}
	r.good, r.depth = r.read+1, len(r.stack)
	return true
}

func (r *objectReader) close(opening byte) bool {
	if r.stack[len(r.stack)-1] != opening {
		return false
	}
	r.stack = r.stack[:len(r.stack)-1]
	r.finished(r.read + 1)
	return true
}

// finished says that a value ended before an offset.
func (r *objectReader) finished(at int) {
	r.good, r.depth, r.state = at, len(r.stack), afterValue
	if r.depth == 0 {
		r.state = afterObject
	}
}

// inside takes a byte of a string.
func (r *objectReader) inside(c byte) bool {
	switch {
	case r.escape < 0:
		r.escape = 0
		switch c {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			r.escape = 4
		default:
			return false
		}
	case r.escape > 0:
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
		r.escape--
	case c < ' ':
		return false
	case c == '\\':
		r.escape = -1
	case c == '"' && r.state == inKey:
		r.state = afterKey
	case c == '"':
		r.finished(r.read + 1)
	}
	return true
}

// number takes a byte of a number; false = the number does not go on with it.
func (r *objectReader) number(c byte) bool {
	digit := '0' <= c && c <= '9'
	switch s := r.state; {
	case s == afterMinus && c == '0':
		r.state = afterZero
	case s == afterMinus && digit:
		r.state = inInteger
	case digit && (s == inInteger || s == inFraction || s == inExponent):
	case digit && s == afterPoint:
		r.state = inFraction
	case digit && (s == afterE || s == afterESign):
		r.state = inExponent
	case c == '.' && (s == afterZero || s == inInteger):
		r.state = afterPoint
	case c|0x20 == 'e' && (s == afterZero || s == inInteger || s == inFraction):
		r.state = afterE
	case (c == '+' || c == '-') && s == afterE:
		r.state = afterESign
	default:
		return false
	}
	return true
}

// appendObject appends the object that text begins: of one that was cut its finished members; {} where there is none.
func (r *objectReader) appendObject(dst, text []byte) []byte {
	r.reset()
	text = r.take(text)
	r.endNumber()
	if r.good == 0 {
		return append(dst, "{}"...)
	}
	dst = append(dst, text[:r.good]...)
	for i := r.depth - 1; i >= 0; i-- {
		dst = append(dst, r.stack[i]+2)
	}
	return dst
}
