package messages

import (
	"strconv"
	"sync"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
)

// stream is a streamed answer, and the sink of its own turn.
type stream struct {
	turn protocol.Turn
	p    protocol.AnswerParams
	v    *view

	blocks int  // shown, the open one included
	shown  bool // the turn's open part is a block
	called bool // a call was shown
	failed bool
	args   objectReader // of the open call
	plain  []byte       // scratch: arguments, unescaped
	lead   []byte       // what begins each delta of the open block
}

var streams = sync.Pool{New: func() any { return &stream{} }}

func newStream(p protocol.AnswerParams, v *view) *stream {
	s := streams.Get().(*stream)
	*s = stream{turn: s.turn, p: p, v: v, args: s.args, plain: s.plain[:0], lead: s.lead}
	s.turn.Reset(&p)
	return s
}

// Release implements protocol.Answer.
func (s *stream) Release() {
	s.v = nil
	streams.Put(s)
}

// Add implements protocol.Answer.
func (s *stream) Add(dst, data []byte) ([]byte, protocol.Step, error) {
	return s.turn.Add(dst, data, s)
}

// Begin implements protocol.Sink. Zero input tokens make clients show an empty context: there is an estimate at least.
func (s *stream) Begin(dst []byte, prompt int64) []byte {
	if prompt <= 0 {
		prompt = s.p.Prompt
	}
	dst = append(event(dst, "message_start"), `,"message":{`...)
	dst = append(appendHead(dst, &s.p), `],"stop_reason":null,"stop_sequence":null,"usage":{`...)
	dst = appendCounts(dst, &usage.Vector{usage.Input: prompt}, &s.p)
	return append(append(dst, standard...), "}}}\n\n"...)
}

// Open implements protocol.Sink.
func (s *stream) Open(dst []byte, _ int, p *protocol.Part) []byte {
	if s.shown = s.v.shows(p, s.called); !s.shown {
		return dst
	}
	s.blocks++
	dst = append(s.block(dst, "content_block_start"), `,"content_block":{"type":`...)
	switch p.Kind {
	case protocol.Reasoning:
		s.leads("thinking_delta", "thinking")
		dst = append(dst, `"thinking","thinking":"","signature":""`...)
	case protocol.Call:
		s.leads("input_json_delta", "partial_json")
		s.called = true
		s.args.reset()
		dst = append(append(append(dst, `"tool_use","id":"`...), p.ID...), `","name":"`...)
		dst = append(append(dst, p.Name...), `","input":{}`...)
	default:
		s.leads("text_delta", "text")
		dst = append(dst, `"text","text":""`...)
	}
	dst = append(dst, "}}\n\n"...)
	if s.blocks == 1 {
		dst = s.KeepAlive(dst)
	}
	return dst
}

// Delta implements protocol.Sink.
func (s *stream) Delta(dst []byte, _ int, p *protocol.Part, text, _ []byte) []byte {
	switch {
	case !s.shown, p.Kind == protocol.Reasoning && s.v.omit:
		return dst
	case p.Kind == protocol.Call:
		return s.arguments(dst, text)
	}
	return s.delta(dst, text)
}

// arguments shows what belongs to the object.
func (s *stream) arguments(dst, text []byte) []byte {
	s.plain = scan.Unquote(s.plain[:0], text)
	good := s.args.take(s.plain)
	if len(good) == len(s.plain) {
		return s.delta(dst, text)
	}
	if len(good) == 0 {
		return dst
	}
	quoted := scan.Quote(nil, string(good))
	return s.delta(dst, quoted[1:len(quoted)-1])
}

// Close implements protocol.Sink.
func (s *stream) Close(dst []byte, _ int, p *protocol.Part) []byte {
	if !s.shown {
		return dst
	}
	if p.Kind == protocol.Reasoning {
		dst = append(s.block(dst, "content_block_delta"), `,"delta":{"type":"signature_delta","signature":"`...)
		dst = append(s.v.seal.Append(dst, p.Text), "\"}}\n\n"...)
	}
	return append(s.block(dst, "content_block_stop"), "}\n\n"...)
}

// Complete implements protocol.Answer.
func (s *stream) Complete() bool { return s.turn.Finish != "" }

// Limit implements protocol.Answer: a stream that is cut ends with an error, never with a made-up reason.
func (s *stream) Limit() {}

// Finish implements protocol.Answer.
func (s *stream) Finish(dst []byte, u *usage.Vector) []byte {
	dst = append(event(dst, "message_delta"), `,"delta":{`...)
	dst = append(s.v.appendReason(dst, &s.turn), `},"usage":{`...)
	return append(appendCounts(dst, u, &s.p), "}}\n\n"...)
}

// Fail implements protocol.Answer.
func (s *stream) Fail(dst, frame []byte) []byte {
	s.failed = true
	return append(append(append(dst, "event: error\ndata: "...), frame...), "\n\n"...)
}

// End implements protocol.Answer.
func (s *stream) End(dst []byte) []byte {
	if s.failed {
		return dst
	}
	return append(event(dst, "message_stop"), "}\n\n"...)
}

// KeepAlive implements protocol.Answer.
func (s *stream) KeepAlive(dst []byte) []byte { return append(event(dst, "ping"), "}\n\n"...) }

// event begins an event and its data.
func event(dst []byte, name string) []byte {
	dst = append(append(append(dst, "event: "...), name...), "\ndata: {\"type\":\""...)
	return append(append(dst, name...), '"')
}

// block begins an event of the latest block.
func (s *stream) block(dst []byte, name string) []byte {
	return strconv.AppendInt(append(event(dst, name), `,"index":`...), int64(s.blocks-1), 10)
}

// leads makes what begins each delta of the block.
func (s *stream) leads(kind, member string) {
	b := append(append(append(s.block(s.lead[:0], "content_block_delta"), `,"delta":{"type":"`...), kind...), `","`...)
	s.lead = append(append(b, member...), `":"`...)
}

// delta is a whole content_block_delta; text is the inside of a JSON string.
func (s *stream) delta(dst, text []byte) []byte {
	return append(append(append(dst, s.lead...), text...), "\"}}\n\n"...)
}
