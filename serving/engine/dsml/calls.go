package dsml

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
)

// callRules are the rules inside a block of calls. Text that is not where it belongs is dropped.
var callRules map[state]*rules

func init() {
	ended := rule{text: tokenEnd, apply: over}
	quote := func(apply func(*Parser, []byte, int) int) *rules { return newRules([]rule{{text: `"`, apply: apply}}) }
	shut := func(apply func(*Parser, []byte, int) int) *rules {
		return newRules([]rule{{text: "</" + tokenDSML, apply: apply}})
	}
	var between, inside []rule
	for _, m := range []*markup{&markupV41, &markupV4} {
		open := "<" + tokenDSML + m.gap
		between = append(between, rule{text: open + `invoke name="`, apply: to(inName)},
			rule{text: "</" + tokenDSML + m.gap + m.calls + ">", apply: over})
		inside = append(inside, rule{text: open + `parameter name="`, apply: to(inParam)},
			rule{text: open + `invoke name="`, apply: (*Parser).nextCall})
	}
	inside = append(inside, rule{text: "</" + tokenDSML, apply: (*Parser).endCall}, ended)
	callRules = map[state]*rules{
		inCalls:   newRules(append(between, ended)),
		inName:    quote((*Parser).beginCall),
		inCall:    newRules(inside),
		inParam:   quote((*Parser).beginParam),
		inType:    newRules([]rule{{text: ">", apply: (*Parser).beginValue}}),
		inString:  shut((*Parser).endString),
		inValue:   shut((*Parser).endValue),
		inNothing: newRules(nil),
	}
}

// beginCall has read a call's name.
func (p *Parser) beginCall(before []byte, end int) int {
	p.out(before)
	switch {
	case p.state == inNothing:
		return end
	case len(p.word) == 0:
		p.enter(inCalls) // a call of nothing
		return end
	case p.calls == maxCalls:
		p.end()
		return end
	}
	p.pieces = append(p.pieces, Piece{Kind: CallBegin, Call: p.calls, ID: p.newID(p.calls), Name: string(p.word)})
	p.calls++
	p.params = 0
	p.enter(inCall)
	return end
}

// endCall closes a call's arguments.
func (p *Parser) endCall(_ []byte, end int) int {
	if p.params == 0 {
		p.argument([]byte("{}"))
	} else {
		p.argument([]byte("}"))
	}
	p.enter(inCalls)
	if p.o.OneCall {
		p.end()
	}
	return end
}

// nextCall is the beginning of a call inside another, whose end the model forgot.
func (p *Parser) nextCall(_ []byte, end int) int {
	p.endCall(nil, end)
	if p.state != inNothing {
		p.enter(inName)
	}
	return end
}

// beginParam has read a parameter's name.
func (p *Parser) beginParam(before []byte, end int) int {
	p.out(before)
	if p.state == inNothing {
		return end
	}
	opening := "{"
	if p.params > 0 {
		opening = ", "
	}
	p.argument([]byte(opening))
	p.argument(appendString(nil, string(p.word)))
	p.argument([]byte(": "))
	p.params++
	p.enter(inType)
	return end
}

// beginValue has read a parameter's attributes. What is not said to be JSON is text.
func (p *Parser) beginValue(before []byte, end int) int {
	p.out(before)
	switch {
	case p.state == inNothing:
	case bytes.Contains(p.word, []byte(`"false"`)):
		p.enter(inValue)
		p.long = false
	default:
		p.argument([]byte(`"`))
		p.enter(inString)
	}
	return end
}

func (p *Parser) endString(before []byte, end int) int {
	p.out(before)
	p.argument([]byte(`"`))
	p.enter(inCall)
	return end
}

// value keeps a JSON value until it can be checked; what is too long goes out unchecked.
func (p *Parser) value(text []byte) {
	if p.word = append(p.word, text...); len(p.word) > maxValue || p.long {
		p.argument(p.word)
		p.word, p.long = p.word[:0], true
	}
}

// endValue gives a value that is JSON as it is, anything else as the string that it must have been meant to be.
func (p *Parser) endValue(before []byte, end int) int {
	p.out(before)
	if p.long || json.Valid(p.word) {
		p.argument(p.word)
	} else {
		p.argument(appendString(nil, string(p.word)))
	}
	p.enter(inCall)
	return end
}

// argument gives more of a call's arguments.
func (p *Parser) argument(text []byte) {
	if len(text) > 0 {
		p.piece(CallText, text)
	}
}

// randomID makes an id as DeepSeek's own do.
func randomID(call int) string { return fmt.Sprintf("call_%02d_%s", call, rand.Text()[:24]) }
