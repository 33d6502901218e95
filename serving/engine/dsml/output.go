package dsml

import (
	"bytes"
)

// out gives text of the state.
func (p *Parser) out(text []byte) {
	if len(text) == 0 {
		return
	}
	switch p.state {
	case inContent, inJSON:
		p.leading = false
		p.piece(Content, text)
	case inReasoning:
		p.leading = false
		p.piece(Reasoning, text)
	case inName, inParam:
		p.collect(text, maxName)
	case inType:
		p.collect(text, maxAttributes)
	case inString:
		p.arena = appendInside(p.continued(CallText), text)
		p.pieces[len(p.pieces)-1].Text = p.arena[p.start:]
	case inValue:
		p.value(text)
	}
}

// collect keeps a part of a name; markup with one too long is broken, and the answer ends there.
func (p *Parser) collect(text []byte, most int) {
	p.word = append(p.word, text...)
	if len(p.word) > most || bytes.Contains(p.word, []byte(tokenDSML)) {
		p.end()
	}
}

// piece adds to the latest piece, or begins one.
func (p *Parser) piece(k Kind, text []byte) {
	p.arena = append(p.continued(k), text...)
	p.pieces[len(p.pieces)-1].Text = p.arena[p.start:]
}

// continued makes the latest piece one of this kind and gives the memory that it ends in.
func (p *Parser) continued(k Kind) []byte {
	if n := len(p.pieces); n == 0 || p.pieces[n-1].Kind != k {
		p.start = len(p.arena)
		p.pieces = append(p.pieces, Piece{Kind: k, Call: max(p.calls-1, 0)})
	}
	return p.arena
}
