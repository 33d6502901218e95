package dsml

import (
	"bytes"
	"unicode/utf8"
)

// run works off what is held.
func (p *Parser) run() {
	at := 0 // the start of what is held
	held := p.held
	for p.state != inNothing && at < len(held) {
		p.held = held[at:]
		if p.leading && p.skipNewline() {
			at++
			continue
		}
		n, fired := p.step()
		at += n
		if !fired {
			break
		}
	}
	if p.state == inNothing {
		at = len(held)
	}
	rest := held[at:]
	if at > 0 && cap(held) > maxKept && len(rest) <= maxKept {
		held = make([]byte, 0, maxKept)
	}
	p.held = append(held[:0], rest...)
}

// skipNewline drops a newline at the start of a text. A stop sequence that is one comes first.
func (p *Parser) skipNewline() bool {
	if p.held[0] != '\n' || p.rules.find(p.held[:1], 0) != nil {
		p.leading = false
		return false
	}
	p.scanned = 0
	return true
}

// step applies the first rule that ends in what is held, or gives what no rule can begin with any more. It returns how
// much of what is held was used up.
func (p *Parser) step() (used int, fired bool) {
	limit := len(p.held)
	if p.state == beforeJSON {
		limit = min(limit, maxBeforeJSON)
	}
	for i := p.scanned; i < limit; i++ {
		r := p.rules.find(p.held, i)
		if r == nil {
			continue
		}
		from, end := i+1-len(r.text), i+1
		before := p.held[:from]
		if r.trim {
			before = trimNewlines(before)
		}
		if r.keep {
			end = from
		}
		return r.apply(p, before, end), true
	}
	p.scanned = limit
	if p.state == beforeJSON {
		if limit < maxBeforeJSON {
			return 0, false
		}
		p.enter(inContent) // it is no JSON: read all of it again, as what it is
		return 0, true
	}
	n := len(p.held) - p.rules.hold(p.held)
	p.out(p.held[:n])
	p.scanned -= n
	if p.state == inNothing {
		return len(p.held), false
	}
	return n, false
}

// trimNewlines drops the newlines at a text's end.
func trimNewlines(text []byte) []byte {
	cut := len(bytes.TrimRight(text, "\n"))
	return text[:max(cut, len(text)-maxNewlines)]
}

// clean adds text to what is held. What is no UTF-8 becomes U+FFFD, and a character's start waits for its rest.
func (p *Parser) clean(text []byte) {
	if len(p.tail) > 0 {
		text = append(append([]byte(nil), p.tail...), text...)
		p.tail = p.tail[:0]
	}
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if r != utf8.RuneError || n > 1 {
			run := n
			for run < len(text) && text[run] < utf8.RuneSelf {
				run++
			}
			p.held, text = append(p.held, text[:run]...), text[run:]
			continue
		}
		if !utf8.FullRune(text) {
			p.tail = append(p.tail, text...)
			return
		}
		p.held, text = append(p.held, "\uFFFD"...), text[1:]
	}
}
