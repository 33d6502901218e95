package dsml

// Parser reads a model's text. It is a state machine over rules: strings that end a run of text and move to another
// state. Of rules that end at different places the one that ends first wins, so that no cut of the text matters.
type Parser struct {
	o       ParseOptions
	newID   func(call int) string
	state   state
	rules   *rules
	leading bool   // newlines are dropped here
	tail    []byte // the start of a character
	held    []byte // text of this state that is not out yet: it may be the start of a rule
	scanned int    // bytes of held in which no rule ends
	word    []byte // a name, attributes or a JSON value in the making
	long    bool   // the value in the making was too long to check: its start is out
	params  int    // of the call so far
	calls   int
	cut     bool // the answer ended inside a call
	stopped string

	pieces []Piece
	arena  []byte // what pieces are slices of
	start  int    // of the latest piece in it
}

// NewParser makes a parser. newID makes the ids of calls; nil = random ones.
func NewParser(o ParseOptions, newID func(call int) string) *Parser {
	if newID == nil {
		newID = randomID
	}
	p := &Parser{o: o, newID: newID}
	switch o.Start {
	case ReasoningStart, ReasoningContinued:
		p.enter(inReasoning)
	case InCalls:
		p.enter(inCalls)
	default:
		p.enter(p.answer())
	}
	p.leading = o.Start == ReasoningStart || o.Start == ContentStart
	return p
}

// answer is the state in which content begins.
func (p *Parser) answer() state {
	if p.o.JSON {
		return beforeJSON
	}
	return inContent
}

// Done reports whether the answer is over: what still comes is no part of it.
func (p *Parser) Done() bool { return p.state == inNothing }

// Thinking reports whether the model's thoughts have not ended yet.
func (p *Parser) Thinking() bool { return p.state == inReasoning }

// Stopped is the stop sequence that ended the answer, "" = none.
func (p *Parser) Stopped() string { return p.stopped }

// Calls is the number of calls that have begun.
func (p *Parser) Calls() int { return p.calls }

// Cut reports, once the answer is over, whether it ended inside a call, which is then incomplete.
func (p *Parser) Cut() bool { return p.cut }

// Feed takes in text, cut anywhere, and gives what it says.
func (p *Parser) Feed(text []byte) []Piece {
	p.again()
	p.clean(text)
	p.run()
	return p.pieces
}

// Finish says that no more text comes, and gives what was held back.
func (p *Parser) Finish() []Piece {
	p.again()
	for range p.tail {
		p.held = append(p.held, "\uFFFD"...)
	}
	p.tail = p.tail[:0]
	p.run()
	if p.state == beforeJSON {
		p.enter(inContent)
		p.run()
	}
	p.out(p.held)
	if p.state == inValue {
		p.argument(p.word)
	}
	p.end()
	return p.pieces
}

// again makes room for the next pieces.
func (p *Parser) again() {
	if p.pieces = p.pieces[:0]; cap(p.arena) > maxKept {
		p.arena = nil
	}
	p.arena = p.arena[:0]
}

// enter moves to another state.
func (p *Parser) enter(s state) {
	p.state, p.scanned, p.leading = s, 0, false
	p.rules = p.rulesOf(s)
	p.word = p.word[:0]
}

// end is the end of the answer, wherever it stands.
func (p *Parser) end() {
	if p.state >= inName && p.state < inNothing {
		p.cut = true
	}
	p.held = p.held[:0]
	p.enter(inNothing)
}

// FinishReason is the reason to give for the end of an answer: engine is the engine's own, over says that the answer had
// ended by itself before. An incomplete call never looks complete: whatever ended it, it was cut.
func (p *Parser) FinishReason(engine string, over bool) string {
	switch {
	case !over && engine != "" && engine != "stop":
		return engine
	case p.cut:
		return "length"
	case p.calls > 0:
		return "tool_calls"
	}
	return "stop"
}
