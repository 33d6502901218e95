package dsml

// rule is a string that ends a run of text.
type rule struct {
	text  string
	trim  bool // newlines before it belong to it
	keep  bool // it is read again in the next state
	apply func(p *Parser, before []byte, end int) int
}

// rules are the rules of one state, the first ones first.
type rules struct {
	list    []rule
	first   [256]bool // bytes that a rule begins with, newlines before it included
	last    [256]bool // bytes that a rule ends with
	longest int
}

func newRules(list []rule) *rules {
	r := &rules{list: list}
	for i := range list {
		t := list[i].text
		r.first[t[0]], r.last[t[len(t)-1]] = true, true
		r.first['\n'] = r.first['\n'] || list[i].trim
		r.longest = max(r.longest, len(t))
	}
	return r
}

// find gives the rule that ends with byte i of text.
func (r *rules) find(text []byte, i int) *rule {
	if !r.last[text[i]] {
		return nil
	}
	for n := range r.list {
		if t := r.list[n].text; i+1 >= len(t) && string(text[i+1-len(t):i+1]) == t {
			return &r.list[n]
		}
	}
	return nil
}

// hold is how many bytes at a text's end may be the beginning of a rule.
func (r *rules) hold(text []byte) int {
	most := 0
	if !r.begins(text[max(len(text)-r.longest, 0):]) {
		return 0
	}
	for i := range r.list {
		t := r.list[i].text
		n := min(len(t)-1, len(text))
		for string(text[len(text)-n:]) != t[:n] {
			n--
		}
		if r.list[i].trim {
			before := text[:len(text)-n]
			n += len(before) - len(trimNewlines(before))
		}
		most = max(most, n)
	}
	return most
}

// begins reports whether a rule may begin in a text: most chunks hold nothing of the kind.
func (r *rules) begins(text []byte) bool {
	for _, c := range text {
		if r.first[c] {
			return true
		}
	}
	return false
}

// begins are the rules of what begins markup: a block of calls, or, where no tools were offered, an end.
func begins(tools bool) rule {
	if tools {
		return rule{text: "<" + tokenDSML, trim: true, keep: true, apply: to(inCalls)}
	}
	return rule{text: "<" + tokenDSML, trim: true, apply: over}
}

// enders are tokens after which nothing of the answer comes: its end, or another speaker.
var enders = []string{tokenEnd, tokenUser, tokenAssistant, tokenSystem, tokenBegin, tokenReminder}

// ending adds the enders to a state's rules.
func ending(apply func(*Parser, []byte, int) int, list ...rule) *rules {
	for _, token := range enders {
		list = append(list, rule{text: token, apply: apply})
	}
	return newRules(list)
}

// to gives the text before and moves to a state.
func to(s state) func(*Parser, []byte, int) int {
	return func(p *Parser, before []byte, end int) int {
		p.out(before)
		if p.state != inNothing {
			p.enter(s)
		}
		return end
	}
}

// over gives the text before and ends the answer.
func over(p *Parser, before []byte, end int) int {
	p.out(before)
	p.end()
	return end
}

// stay gives the text before and drops the token.
func stay(p *Parser, before []byte, end int) int {
	p.out(before)
	p.scanned, p.leading = 0, false
	return end
}

// reread reads everything again as content that is no JSON.
func reread(p *Parser, _ []byte, _ int) int {
	p.enter(inContent)
	return 0
}

func (p *Parser) stops() (list []rule) {
	for _, s := range p.o.Stops {
		if s == "" || len(s) > maxStopBytes {
			continue
		}
		list = append(list, rule{text: s, apply: func(p *Parser, before []byte, end int) int {
			p.stopped = s
			return over(p, before, end)
		}})
	}
	return list
}

// rulesOf gives a state's rules. Those of calls are the same for every answer.
func (p *Parser) rulesOf(s state) *rules {
	tools := p.o.Tools || p.o.Start == InCalls
	lone := rule{text: tokenDSML, apply: stay} // markup's token without markup
	switch s {
	case inContent:
		return ending(over, append(p.stops(), begins(tools), lone, rule{text: tokenThinkEnd, apply: stay}, rule{text: tokenThink, apply: stay})...)
	case inReasoning:
		return ending(over, begins(tools), lone, rule{text: tokenThinkEnd, trim: true, apply: (*Parser).think}, rule{text: tokenThink, apply: stay})
	case beforeJSON:
		json := func(p *Parser, _ []byte, end int) int { return to(inJSON)(p, nil, end) }
		drop := func(p *Parser, _ []byte, end int) int { return stay(p, nil, end) }
		return ending(reread, rule{text: "```json\n", apply: json}, rule{text: "```\n", apply: json},
			rule{text: "{", keep: true, apply: json}, rule{text: "[", keep: true, apply: json},
			rule{text: "<" + tokenDSML, apply: reread}, rule{text: tokenThinkEnd, apply: drop})
	case inJSON:
		return ending(over, append(p.stops(), rule{text: "\n```", apply: to(afterJSON)}, begins(tools), lone)...)
	case afterJSON:
		return ending(over, begins(tools))
	}
	return callRules[s]
}

// think ends the thoughts.
func (p *Parser) think(before []byte, end int) int {
	p.out(before)
	p.enter(p.answer())
	p.leading = true
	return end
}
