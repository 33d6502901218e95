package dsml

import (
	"strings"
)

// Segment is a run of a prompt: text, of which no part may become a special token, or one special token.
type Segment struct {
	Text    string
	Special bool
}

// Prompt is a rendered request.
type Prompt struct {
	Segments []Segment
	Images   []string // addresses (data: as a rule) of the images, in the order of their placeholders
	Parse    ParseOptions
	Ignored  []string // members of the request that have no effect
}

// String is the prompt as one text. It cannot tell tokens from text that looks like them: engines get the segments.
func (p *Prompt) String() string {
	var b strings.Builder
	for _, s := range p.Segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// writer puts a prompt together.
type writer struct {
	segments []Segment
	pending  strings.Builder
}

func (w *writer) text(parts ...string) {
	for _, s := range parts {
		w.pending.WriteString(s)
	}
}

func (w *writer) special(token string) {
	w.flush()
	w.segments = append(w.segments, Segment{token, true})
}

func (w *writer) flush() {
	if w.pending.Len() > 0 {
		w.segments = append(w.segments, Segment{Text: w.pending.String()})
		w.pending.Reset()
	}
}

// open and shut write an element's tags: the DSML token is special, the rest of a tag is text.
func (w *writer) open(m *markup, element string, attributes ...string) {
	w.text("<")
	w.special(tokenDSML)
	w.text(m.gap, element)
	w.text(attributes...)
	w.text(">")
}

func (w *writer) shut(m *markup, element string) {
	w.text("</")
	w.special(tokenDSML)
	w.text(m.gap, element, ">")
}
