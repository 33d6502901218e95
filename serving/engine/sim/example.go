package sim

import (
	"regexp/syntax"
	"strings"

	"millrace/serving/engine/scan"
)

// exampleOf is a short text that a regular expression matches; what cannot be read is matched by its own text.
func exampleOf(pattern string) string {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return pattern
	}
	var b strings.Builder
	appendExample(&b, parsed)
	return b.String()
}

func appendExample(b *strings.Builder, r *syntax.Regexp) {
	switch r.Op {
	case syntax.OpLiteral:
		b.WriteString(string(r.Rune))
	case syntax.OpCharClass:
		if len(r.Rune) > 0 {
			b.WriteRune(r.Rune[0])
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('x')
	case syntax.OpAlternate, syntax.OpCapture, syntax.OpPlus:
		appendExample(b, r.Sub[0])
	case syntax.OpRepeat:
		for range r.Min {
			appendExample(b, r.Sub[0])
		}
	case syntax.OpConcat:
		for _, s := range r.Sub {
			appendExample(b, s)
		}
	}
}

// firstLiteral is the first text in quotes of a grammar.
func firstLiteral(grammar string) string {
	at := strings.IndexByte(grammar, '"')
	if at < 0 {
		return "simulated"
	}
	end := scan.String([]byte(grammar), at)
	if end < 0 {
		return "simulated"
	}
	text, _ := scan.Text(nil, []byte(grammar[at:end]))
	return string(text)
}
