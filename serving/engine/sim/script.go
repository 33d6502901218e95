package sim

import (
	"strings"

	"millrace/serving/engine/tok"
)

// part is what a segment of an answer is.
type part uint8

const (
	reasoning part = iota
	content
	toolCall
)

// segment is a run of tokens of one part: fixed ones first, then a walk through the book.
type segment struct {
	part  part
	start int // index of its first token in the answer
	n     int
	fixed []piece
	from  int // place in the book after the fixed ones

	call      int    // of a tool call: its index,
	name      string // the function's name,
	nameEnds  int    // and how many of the fixed tokens announce it
	arguments string
}

func (g *segment) at(j int) *piece {
	if j < len(g.fixed) {
		return &g.fixed[j]
	}
	return &book.pieces[(g.from+j-len(g.fixed))%len(book.pieces)]
}

// script is a whole answer, fixed before its first token is generated. It is read only once built.
type script struct {
	segments []segment
	total    int    // tokens until it ends by itself
	calls    int    // tool calls in it
	stop     string // the stop string at which it ends; "" = none
	cut      int    // bytes of content to show when it ends at a stop string
	seed     uint64
}

// at is token i.
func (s *script) at(i int) *piece {
	g := s.segment(i)
	return g.at(i - g.start)
}

func (s *script) segment(i int) *segment {
	for k := len(s.segments) - 1; ; k-- {
		if g := &s.segments[k]; g.start <= i || k == 0 {
			return g
		}
	}
}

func (s *script) add(g segment) {
	g.start = s.total
	s.total += g.n
	s.segments = append(s.segments, g)
}

// say adds an opening and n sentences.
func (s *script) say(p part, open []piece, n int) {
	from, walk := book.walk(s.seed, n)
	s.add(segment{part: p, fixed: open, from: from, n: len(open) + walk})
}

func (s *script) text(p part, text string) {
	if all := cut(text); len(all) > 0 {
		s.add(segment{part: p, fixed: all, n: len(all)})
	}
}

// tool adds a call, in the tokens that the chat template gives it in the next prompt.
func (s *script) tool(name, arguments string) {
	fixed := append([]piece{{id: tok.Call}}, cut(name)...)
	g := segment{part: toolCall, call: s.calls, name: name, nameEnds: len(fixed), arguments: arguments}
	g.fixed = append(fixed, cut(arguments)...)
	g.n = len(g.fixed)
	s.add(g)
	s.calls++
}

// reasoningTokens is how many of the first n tokens are reasoning.
func (s *script) reasoningTokens(n int) (sum int) {
	for i := range s.segments {
		if g := &s.segments[i]; g.part == reasoning {
			sum += min(max(n-g.start, 0), g.n)
		}
	}
	return sum
}

// extend makes the answer at least n tokens long.
func (s *script) extend(n int) {
	if s.total >= n {
		return
	}
	if k := len(s.segments) - 1; k >= 0 && s.segments[k].part == content {
		s.segments[k].n += n - s.total
		s.total = n
		return
	}
	from, _ := book.walk(s.seed+1, 1)
	s.add(segment{part: content, from: from, n: n - s.total})
}

// stopAt ends the answer where the first of the stop strings is complete in its content.
func (s *script) stopAt(stops []string) {
	longest := 0
	for _, stop := range stops {
		longest = max(longest, len(stop))
	}
	if longest == 0 {
		return
	}
	var text strings.Builder
	for i := range s.total {
		g := s.segment(i)
		if g.part != content {
			continue
		}
		p := g.at(i - g.start).text
		text.WriteString(p)
		from := max(0, text.Len()-len(p)-longest)
		best := -1
		for _, stop := range stops {
			if at := strings.Index(text.String()[from:], stop); at >= 0 && (best < 0 || from+at < best) {
				best, s.stop = from+at, stop
			}
		}
		if best >= 0 {
			s.total, s.cut = i+1, best
			return
		}
	}
}
