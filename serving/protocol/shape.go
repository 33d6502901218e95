package protocol

import (
	"bytes"

	"millrace/serving/engine/scan"
)

// shape is what a run of chunks has in common: all but one text and the numbers of the engine's count. A stream's chunks
// nearly all share one, so that a chunk costs two comparisons and a search for a quote instead of a parse. Whatever does
// not match to the byte is parsed.
type shape struct {
	head   []byte   // up to and with the text's opening quote
	tail   [][]byte // from the text's closing quote on, cut at numbers that change
	count  int      // which number is the engine's count of generated tokens; -1 = none
	choice int
	text   int // which text
	usage  bool
}

// Limits of shapes: streams with more of them are parsed.
const (
	maxShapes   = 8
	maxLearned  = 64 // shapes tried per stream before giving up
	maxTailRuns = 32
)

// shapes are the shapes of one stream, the latest match first.
type shapes struct {
	known   []shape
	learned int
	text    []byte // what the shapes are slices of
}

// reset forgets the shapes and keeps their memory.
func (s *shapes) reset() { s.known, s.learned, s.text = s.known[:0], 0, s.text[:0] }

// keep copies b. Growing leaves earlier copies where they are.
func (s *shapes) keep(b []byte) []byte {
	if len(s.text)+len(b) > cap(s.text) {
		s.text = make([]byte, 0, max(2048, 2*len(b)))
	}
	n := len(s.text)
	s.text = append(s.text, b...)
	return s.text[n:]
}

// room gives a place for one more shape; the one that matched longest ago makes way. The tail's memory is used again.
func (s *shapes) room() *shape {
	if n := len(s.known); n < maxShapes {
		if n < cap(s.known) {
			s.known = s.known[:n+1]
		} else {
			s.known = append(s.known, shape{})
		}
	}
	sh := &s.known[len(s.known)-1]
	*sh = shape{tail: sh.tail[:0], count: -1}
	return sh
}

// match reads a chunk that has a known shape. text is the inside of the JSON string; tokens is -1 when unknown.
func (s *shapes) match(data []byte) (sh *shape, text []byte, tokens int64) {
	for i := range s.known {
		sh = &s.known[i]
		if text, tokens, ok := sh.match(data); ok {
			if i > 0 {
				s.known[0], s.known[i] = s.known[i], s.known[0]
				sh = &s.known[0]
			}
			return sh, text, tokens
		}
	}
	return nil, nil, -1
}

func (s *shape) match(data []byte) (text []byte, tokens int64, ok bool) {
	tokens = -1
	if !bytes.HasPrefix(data, s.head) {
		return nil, tokens, false
	}
	end := scan.String(data, len(s.head)-1)
	if end < 0 {
		return nil, tokens, false
	}
	if text = data[len(s.head) : end-1]; len(text) == 0 || !cleanText(text) {
		return nil, tokens, false
	}
	rest := data[end-1:]
	for i, run := range s.tail {
		if !bytes.HasPrefix(rest, run) {
			return nil, tokens, false
		}
		if rest = rest[len(run):]; i == len(s.tail)-1 {
			break
		}
		n, value := 0, int64(0)
		for n < len(rest) && numeric(rest[n]) {
			if value = value*10 + int64(rest[n]-'0'); i == s.count && (rest[n]-'0' > 9 || n > 9) {
				return nil, tokens, false // no plain count: the parser decides
			}
			n++
		}
		if n == 0 {
			return nil, tokens, false
		}
		if i == s.count {
			tokens = value
		}
		rest = rest[n:]
	}
	return text, tokens, len(rest) == 0
}

// numeric: the characters of JSON numbers.
func numeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '.' || c == '+' || c == 'e' || c == 'E'
}

// learn makes a shape of a parsed chunk that has just one text of one choice.
func (s *shapes) learn(data []byte, c *chunk) {
	if len(c.choices) != 1 || s.learned >= maxLearned {
		return
	}
	d := &c.choices[0]
	if !d.bare || d.finish != nil || d.logprobs != nil {
		return
	}
	for which, t := range d.texts {
		if len(t) <= len(`""`) {
			continue
		}
		at := offset(data, t)
		sh := s.room()
		sh.head, sh.choice, sh.text, sh.usage = s.keep(data[:at+1]), d.index, which, c.usage != nil
		s.learned++
		if last := len(s.known) - 1; sh.cutTail(data, s.keep(data[at+len(t)-1:]), at+len(t)-1, c) {
			s.known[0], s.known[last] = s.known[last], s.known[0]
		} else {
			s.known = s.known[:last]
		}
		return
	}
}

// cutTail cuts the tail, a copy of what follows from in data, at the numbers that may change from chunk to chunk: those of usage and the time. Every other
// number is part of the shape.
func (s *shape) cutTail(data, tail []byte, from int, c *chunk) bool {
	free := [2][]byte{c.created, c.usage}
	if c.created != nil && c.usage != nil && offset(data, c.created) > offset(data, c.usage) {
		free = [2][]byte{c.usage, c.created}
	}
	cut := 0
	for _, span := range free {
		if span == nil || offset(data, span) < from {
			continue
		}
		start := offset(data, span) - from
		for i := start; i < start+len(span); {
			switch {
			case tail[i] == '"':
				i = scan.String(tail, i)
			case numeric(tail[i]) && tail[i] != 'e': // the e of true and false starts no number
				end := i
				for end < len(tail) && numeric(tail[end]) {
					end++
				}
				if c.count != nil && offset(data, c.count)-from == i {
					s.count = len(s.tail)
				}
				s.tail = append(s.tail, tail[cut:i])
				cut, i = end, end
			default:
				i++
			}
		}
	}
	s.tail = append(s.tail, tail[cut:])
	return len(s.tail) <= maxTailRuns
}

// offset is where sub, a slice of data, starts in it.
func offset(data, sub []byte) int { return cap(data) - cap(sub) }
