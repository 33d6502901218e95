// Package scan walks JSON text in place: it finds members, elements and the ends of values without decoding them.
// It owns offsets, nothing else: no types, no numbers, no validation. It expects text that json.Valid accepts; on other
// text it reports an error or finds wrong borders, but never panics and never reads outside the slice.
package scan

import (
	"bytes"
	"errors"
)

// ErrSyntax says that the text is not what was asked for: an object, an array, or JSON at all.
var ErrSyntax = errors.New("scan: not the JSON that was expected")

// Members iterates over the members of a JSON object in their order, duplicates included.
//
//	m := scan.Object(body)
//	for m.Next() { … m.Key, m.Value … }
//	err := m.Err()
type Members struct {
	Key   []byte // the name, escapes decoded; aliases the text when it has none
	Value []byte // the raw value, without space around it; aliases the text
	Start int    // offset of the name's opening quote
	End   int    // offset after the value

	text  []byte
	pos   int
	first bool
	done  bool
	err   error
}

// Object starts an iteration over the object that text holds.
func Object(text []byte) Members {
	m := Members{text: text, first: true}
	m.pos = Space(text, 0)
	if m.pos >= len(text) || text[m.pos] != '{' {
		m.fail()
		return m
	}
	m.pos++
	return m
}

// Err is the error that ended the iteration, nil after the last member.
func (m *Members) Err() error { return m.err }

// Offset is where the iteration stands: after the closing brace once Next has returned false without an error.
func (m *Members) Offset() int { return m.pos }

func (m *Members) fail() bool {
	m.err, m.done = ErrSyntax, true
	return false
}

// Next moves to the next member.
func (m *Members) Next() bool {
	if m.done {
		return false
	}
	i, more := separator(m.text, m.pos, '}', m.first)
	m.first = false
	if !more {
		if i < 0 {
			return m.fail()
		}
		m.pos, m.done = i, true
		return false
	}
	if i >= len(m.text) || m.text[i] != '"' {
		return m.fail()
	}
	end := String(m.text, i)
	if end < 0 {
		return m.fail()
	}
	m.Start = i
	m.Key = m.text[i+1 : end-1]
	if bytes.IndexByte(m.Key, '\\') >= 0 {
		m.Key = Unquote(nil, m.Key)
	}
	i = Space(m.text, end)
	if i >= len(m.text) || m.text[i] != ':' {
		return m.fail()
	}
	i = Space(m.text, i+1)
	if m.End = Value(m.text, i); m.End < 0 {
		return m.fail()
	}
	m.Value, m.pos = m.text[i:m.End], m.End
	return true
}

// Elements iterates over the elements of a JSON array.
type Elements struct {
	Value []byte // the raw element; aliases the text

	text  []byte
	pos   int
	first bool
	done  bool
	err   error
}

// Array starts an iteration over the array that text holds.
func Array(text []byte) Elements {
	e := Elements{text: text, first: true}
	e.pos = Space(text, 0)
	if e.pos >= len(text) || text[e.pos] != '[' {
		e.err, e.done = ErrSyntax, true
		return e
	}
	e.pos++
	return e
}

// Err is the error that ended the iteration, nil after the last element.
func (e *Elements) Err() error { return e.err }

// Next moves to the next element.
func (e *Elements) Next() bool {
	if e.done {
		return false
	}
	i, more := separator(e.text, e.pos, ']', e.first)
	e.first = false
	if !more {
		if e.done = true; i < 0 {
			e.err = ErrSyntax
		}
		return false
	}
	end := Value(e.text, i)
	if end < 0 {
		e.err, e.done = ErrSyntax, true
		return false
	}
	e.Value, e.pos = e.text[i:end], end
	return true
}

// separator reads what stands before a member or element: nothing (first) or a comma, or the closing bracket. It returns
// the offset of the next token and true, or the offset after the bracket and false; a negative offset is an error.
func separator(text []byte, i int, closing byte, first bool) (int, bool) {
	i = Space(text, i)
	switch {
	case i >= len(text):
		return -1, false
	case text[i] == closing:
		return i + 1, false
	case first:
		return i, true
	case text[i] != ',':
		return -1, false
	}
	return Space(text, i+1), true
}

// Space is the first offset from i on that holds no JSON white space.
func Space(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t') {
		i++
	}
	return i
}

// String is the offset after the string whose opening quote is at i, or -1. It works at memchr speed: a quote ends the
// string when an even number of backslashes stands before it.
func String(text []byte, i int) int {
	from := i + 1
	for j := from; ; {
		n := bytes.IndexByte(text[j:], '"')
		if n < 0 {
			return -1
		}
		quote := j + n
		k := quote
		for k > from && text[k-1] == '\\' {
			k--
		}
		if (quote-k)%2 == 0 {
			return quote + 1
		}
		j = quote + 1
		from = j // a later run of backslashes cannot reach back over this quote
	}
}

// Value is the offset after the value that starts at i, or -1.
func Value(text []byte, i int) int {
	if i >= len(text) {
		return -1
	}
	switch text[i] {
	case '"':
		return String(text, i)
	case '{', '[':
		return container(text, i)
	}
	start := i
	for i < len(text) && !ends(text[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func ends(c byte) bool {
	switch c {
	case ',', ']', '}', ' ', '\n', '\r', '\t', ':', '"', '{', '[':
		return true
	}
	return false
}

func container(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			if i = String(text, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}
