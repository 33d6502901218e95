package protocol

import "strconv"

// callMembers appends what a delta adds to the calls: tool_calls, or function_call where the client knows no tools.
func (s *ChatStream) callMembers(dst []byte, d *delta, comma bool) ([]byte, bool) {
	c := &s.choices[d.index].calls
	first := true
	ok := c.add(d.tools, func(i int) {
		k := &c.list[i]
		if !s.p.shows(k) || !k.whole {
			return
		}
		args := s.newArguments(k)
		if k.announced && len(args) == 0 {
			return
		}
		if first && comma || !first {
			dst = append(dst, ',')
		}
		switch {
		case s.p.Legacy:
			dst = append(dst, `"function_call":`...)
		case first:
			dst = append(dst, `"tool_calls":[`...)
		}
		first = false
		dst = s.appendCall(dst, k, d.index, args)
	})
	if !first && !s.p.Legacy {
		dst = append(dst, ']')
	}
	return dst, ok
}

// newArguments takes what came of a call's arguments, as the client sees them.
func (s *ChatStream) newArguments(k *call) []byte {
	args := k.args
	k.args = k.args[:0]
	if !k.announced && s.p.custom(k.name) {
		k.custom = &CustomInput{}
	}
	if k.custom != nil {
		return k.custom.Add(nil, args)
	}
	return args
}

// appendCall appends what is new of a call; first its head.
func (s *ChatStream) appendCall(dst []byte, k *call, choice int, args []byte) []byte {
	switch {
	case s.p.Legacy && k.announced:
		dst = append(dst, `{"arguments":"`...)
	case s.p.Legacy:
		dst = append(append(append(dst, `{"name":"`...), k.name...), `","arguments":"`...)
	default:
		dst = append(strconv.AppendInt(append(dst, `{"index":`...), int64(k.place), 10), ',')
		switch {
		case !k.announced:
			dst = k.appendHead(dst, s.p.ID, choice)
		case k.custom != nil:
			dst = append(dst, `"custom":{"input":"`...)
		default:
			dst = append(dst, `"function":{"arguments":"`...)
		}
	}
	k.announced = true
	dst = append(append(dst, args...), `"}`...)
	if s.p.Legacy {
		return dst
	}
	return append(dst, '}')
}

// restOfCalls shows what waited for the end: calls without arguments, and what a model gave a custom tool otherwise than it was
// asked to.
func (s *ChatStream) restOfCalls(dst []byte, choice int) []byte {
	list := s.choices[choice].calls.list
	for i := range list {
		k := &list[i]
		if s.p.shows(k) && !k.announced {
			dst = s.restOfCall(dst, k, choice, s.newArguments(k))
		}
		if k.custom == nil {
			continue
		}
		if rest := k.custom.Rest(nil); len(rest) > 0 {
			dst = s.restOfCall(dst, k, choice, rest)
		}
	}
	return dst
}

func (s *ChatStream) restOfCall(dst []byte, k *call, choice int, args []byte) []byte {
	dst = s.open(dst, choice)
	if s.p.Legacy {
		return s.close(s.appendCall(append(dst, `"function_call":`...), k, choice, args), nil, "null")
	}
	dst = s.appendCall(append(dst, `"tool_calls":[`...), k, choice, args)
	return s.close(append(dst, ']'), nil, "null")
}

// shows reports whether a call is the client's to see: engines name some never, and give several to who asked for one.
func (p *AnswerParams) shows(k *call) bool {
	return k.place == 0 || k.place > 0 && !p.Legacy && !p.OneCall
}

// finish is the finish reason as the client knows it. Calls that were shown to nobody end nothing.
func (p *AnswerParams) finish(reason string, c *calls) string {
	switch {
	case reason != `"tool_calls"`:
		return reason
	case c.named == 0:
		return `"stop"`
	case p.Legacy:
		return `"function_call"`
	}
	return reason
}

// shown are the calls that the client sees, in the order of a stream.
func (c *calls) shown(p *AnswerParams) []*call {
	list := make([]*call, c.named)
	for i := range c.list {
		if k := &c.list[i]; k.place >= 0 {
			list[k.place] = k
		}
	}
	if (p.Legacy || p.OneCall) && len(list) > 1 {
		list = list[:1]
	}
	return list
}

// appendCalls appends the calls of a whole answer's message.
func (p *AnswerParams) appendCalls(dst []byte, c *calls, choice int) []byte {
	list := c.shown(p)
	if len(list) == 0 {
		return dst
	}
	if p.Legacy {
		k := list[0]
		dst = append(append(append(dst, `,"function_call":{"name":"`...), k.name...), `","arguments":"`...)
		return append(append(dst, k.args...), `"}`...)
	}
	dst = append(dst, `,"tool_calls":[`...)
	for i, k := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		args := k.args
		if p.custom(k.name) {
			k.custom = &CustomInput{}
			args = InputOf(args)
		}
		dst = append(append(k.appendHead(append(dst, '{'), p.ID, choice), args...), `"}}`...)
	}
	return append(dst, ']')
}
