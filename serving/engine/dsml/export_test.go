package dsml

// Size is the memory that the parser holds on to between two calls, in bytes.
func (p *Parser) Size() int { return cap(p.held) + cap(p.word) + cap(p.arena) + cap(p.tail) }
