package sim

import (
	"strings"

	"millrace/serving/engine/scan"
	"millrace/serving/engine/tok"
)

// resuming is an answer that goes on where another engine broke off: the last message is its beginning.
type resuming struct {
	base []uint32 // the prompt that the whole answer is for
	said string
}

// resumes splits a chat whose last message is to be continued. nil = it is not.
func resumes(body []byte) (*resuming, []uint32, error) {
	var messages, last []byte
	m := scan.Object(body)
	for m.Next() {
		if string(m.Key) == "messages" {
			messages = m.Value
		}
	}
	n := 0
	for e := scan.Array(messages); e.Next(); n++ {
		last = e.Value
	}
	var role string
	var said []byte
	for m := scan.Object(last); m.Next(); {
		switch string(m.Key) {
		case "role":
			role = string(m.Value)
		case "content":
			said, _ = scan.Text(nil, m.Value)
		}
	}
	if role != `"assistant"` || n < 2 {
		return nil, nil, nil
	}
	cut := []byte(`{"messages":[`)
	i := 0
	for e := scan.Array(messages); e.Next() && i < n-1; i++ {
		if i > 0 {
			cut = append(cut, ',')
		}
		cut = append(cut, e.Value...)
	}
	base, err := tok.ApplyChat(append(cut, "]}"...))
	if err != nil {
		return nil, nil, err
	}
	return &resuming{base, string(said)}, tok.Append(append([]uint32{}, base...), said), nil
}

// skip drops the tokens whose text has been said. What does not end with a token begins anew.
func (s *script) skip(said string) {
	var text strings.Builder
	for i := 0; i < s.total && text.Len() < len(said); i++ {
		g := s.segment(i)
		if g.part != content {
			return
		}
		text.WriteString(g.at(i - g.start).text)
		if text.String() == said {
			s.drop(i + 1)
			s.cut -= len(said)
			if s.total == 0 { // only its end is left to say
				s.add(segment{part: content, fixed: []piece{{id: tok.End}}, n: 1})
			}
			return
		}
	}
}

// drop removes the first n tokens, all of them content.
func (s *script) drop(n int) {
	kept := make([]segment, 0, len(s.segments))
	for _, g := range s.segments {
		gone := min(max(n-g.start, 0), g.n)
		if gone == g.n {
			continue
		}
		if fixed := min(gone, len(g.fixed)); fixed > 0 {
			g.fixed = g.fixed[fixed:]
			g.from += gone - fixed
		} else {
			g.from += gone
		}
		g.start, g.n = max(g.start-n, 0), g.n-gone
		kept = append(kept, g)
	}
	s.segments, s.total = kept, s.total-n
}
