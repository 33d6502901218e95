package responses

import (
	"bytes"
	"strconv"
	"sync"

	"millrace/internal/usage"
	"millrace/serving/protocol"
)

// Stream is the streamed answer: what it appends are events.
type Stream struct {
	of     *Answers
	p      protocol.AnswerParams
	form   form
	turn   protocol.Turn
	state  state
	seq    int64
	begun  bool
	single []byte // the response as it is kept
	at     int    // the output index of the open part
	shown  bool   // it is an item
	custom bool   // it is a call of a custom tool
	input  protocol.CustomInput
	delta  []byte // the events of its deltas, up to the text: with
	head   []byte // what stands before the sequence number
	middle []byte // and what stands after it
}

var streams = sync.Pool{New: func() any { return &Stream{} }}

// maxKept bounds the buffers that are kept for later answers, in bytes.
const maxKept = 64 << 10

func newStream(a *Answers, p protocol.AnswerParams) *Stream {
	s := streams.Get().(*Stream)
	s.turn.Reset(&p)
	*s = Stream{of: a, p: p, form: newForm(a, &p), turn: s.turn, state: state{status: InProgress, output: s.state.output[:0], kept: a.stores()},
		single: s.single[:0], delta: s.delta[:0], input: s.input}
	return s
}

// Release implements protocol.Answer.
func (s *Stream) Release() {
	if cap(s.state.output) > maxKept {
		s.state.output, s.single = nil, nil
	}
	s.of, s.form = nil, form{}
	streams.Put(s)
}

// Add implements protocol.Answer.
func (s *Stream) Add(dst, data []byte) ([]byte, protocol.Step, error) {
	return s.turn.Add(dst, data, s)
}

// Complete implements protocol.Answer.
func (s *Stream) Complete() bool { return s.turn.Finish != "" }

// Limit implements protocol.Answer: a stream that is cut ends with an error, never with a made-up end.
func (s *Stream) Limit() {}

// KeepAlive implements protocol.Answer.
func (s *Stream) KeepAlive(dst []byte) []byte { return append(dst, protocol.Comment...) }

// open begins an event of a type.
func (s *Stream) open(dst []byte, kind string) []byte {
	dst = append(append(append(dst, "event: "...), kind...), "\ndata: {\"type\":\""...)
	dst = append(append(dst, kind...), `","sequence_number":`...)
	dst = strconv.AppendInt(dst, s.seq, 10)
	s.seq++
	return dst
}

const closeEvent = "}\n\n"

// whole appends an event that carries the response as it stands.
func (s *Stream) whole(dst []byte, kind string) []byte {
	dst = append(s.open(dst, kind), `,"response":`...)
	return append(s.of.appendObject(dst, &s.p, &s.state), closeEvent...)
}

// Begin implements protocol.Sink.
func (s *Stream) Begin(dst []byte, _ int64) []byte {
	s.begun = true
	return s.whole(s.whole(dst, "response.created"), "response.in_progress")
}

// item appends an event about an item up to its output index.
func (s *Stream) item(dst []byte, kind string, i int) []byte {
	return strconv.AppendInt(append(s.open(dst, kind), `,"output_index":`...), int64(i), 10)
}

// inner appends an event about what an item holds, up to the members of its own.
func (s *Stream) inner(dst []byte, kind string, i int, p *protocol.Part, index string) []byte {
	dst = s.item(dst, kind, i)
	return append(append(s.form.appendID(append(dst, `,"item_id":"`...), i, p), '"'), index...)
}

const (
	summaryIndex = `,"summary_index":0`
	contentIndex = `,"content_index":0`
)

// Open implements protocol.Sink.
func (s *Stream) Open(dst []byte, i int, p *protocol.Part) []byte {
	if s.at, s.shown = s.form.item(i, p); !s.shown {
		return dst
	}
	i = s.at
	s.prepareDelta(i, p)
	dst = append(s.item(dst, "response.output_item.added", i), `,"item":`...)
	dst = append(s.form.appendItem(dst, i, p, InProgress), closeEvent...)
	switch {
	case p.Kind == protocol.Call:
		return dst
	case p.Kind != protocol.Reasoning:
		dst = append(s.inner(dst, "response.content_part.added", i, p, contentIndex), `,"part":`...)
		return append(s.form.appendPart(dst, p, nil), closeEvent...)
	case s.of.Request.Content:
		return dst
	}
	dst = s.inner(dst, "response.reasoning_summary_part.added", i, p, summaryIndex)
	return append(append(dst, `,"part":{"type":"summary_text","text":""}`...), closeEvent...)
}

// kindsOf are the events of a part's text: one for each piece, one for all of it, and where it stands in its item.
func (s *Stream) kindsOf(p *protocol.Part) (delta, done, index, member string) {
	switch {
	case p.Kind == protocol.Text:
		return "response.output_text.delta", "response.output_text.done", contentIndex, "text"
	case p.Kind == protocol.Refusal:
		return "response.refusal.delta", "response.refusal.done", contentIndex, "refusal"
	case p.Kind == protocol.Call && s.custom:
		return "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done", "", "input"
	case p.Kind == protocol.Call:
		return "response.function_call_arguments.delta", "response.function_call_arguments.done", "", "arguments"
	case s.of.Request.Content:
		return "response.reasoning_text.delta", "response.reasoning_text.done", contentIndex, "text"
	}
	return "response.reasoning_summary_text.delta", "response.reasoning_summary_text.done", summaryIndex, "text"
}

// prepareDelta writes what the deltas of a part have in common.
func (s *Stream) prepareDelta(i int, p *protocol.Part) {
	if s.custom = p.Kind == protocol.Call && s.form.custom(p); s.custom {
		s.input = protocol.CustomInput{}
	}
	kind, _, index, _ := s.kindsOf(p)
	seq := s.seq
	s.delta = append(s.inner(s.delta[:0], kind, i, p, index), `,"delta":"`...)
	s.seq = seq
	cut := bytes.Index(s.delta, []byte(`"sequence_number":`)) + len(`"sequence_number":`)
	s.head, s.middle = s.delta[:cut], s.delta[cut+len(strconv.FormatInt(seq, 10)):]
}

// Delta implements protocol.Sink.
func (s *Stream) Delta(dst []byte, _ int, p *protocol.Part, text, logprobs []byte) []byte {
	if !s.shown {
		return dst
	}
	if s.custom {
		if text = s.input.Add(nil, text); len(text) == 0 {
			return dst
		}
	}
	dst = strconv.AppendInt(append(dst, s.head...), s.seq, 10)
	s.seq++
	dst = append(append(append(dst, s.middle...), text...), '"')
	if p.Kind == protocol.Text {
		dst = append(dst, `,"logprobs":[`...)
		if s.of.Request.Logprobs {
			dst = appendLogprobs(dst, logprobs)
		}
		dst = append(dst, ']')
	}
	return append(dst, closeEvent...)
}

// Close implements protocol.Sink.
func (s *Stream) Close(dst []byte, part int, p *protocol.Part) []byte {
	if !s.shown {
		return dst
	}
	i := s.at
	if s.custom {
		dst = s.closeInput(dst, i, p)
	} else {
		dst = s.closeText(dst, i, p, s.form.tool(p))
	}
	if len(s.state.output) > 0 {
		s.state.output = append(s.state.output, ',')
	}
	from := len(s.state.output)
	s.state.output = s.form.appendItem(s.state.output, i, p, itemStatus(&s.turn, part))
	dst = append(append(s.item(dst, "response.output_item.done", i), `,"item":`...), s.state.output[from:]...)
	return append(dst, closeEvent...)
}

// closeInput ends the input of a custom tool.
func (s *Stream) closeInput(dst []byte, i int, p *protocol.Part) []byte {
	input := protocol.InputOf(p.Text)
	delta, done, _, _ := s.kindsOf(p)
	if rest := s.input.Rest(nil); len(rest) > 0 {
		dst = append(append(append(s.inner(dst, delta, i, p, ""), `,"delta":"`...), rest...), `"`+closeEvent...)
	}
	return append(append(append(s.inner(dst, done, i, p, ""), `,"input":"`...), input...), `"`+closeEvent...)
}

// closeText ends the text of a part, and the part of the item that holds it.
func (s *Stream) closeText(dst []byte, i int, p *protocol.Part, t *tool) []byte {
	_, kind, index, member := s.kindsOf(p)
	dst = append(append(append(s.inner(dst, kind, i, p, index), `,"`...), member...), `":"`...)
	dst = append(append(dst, p.Text...), '"')
	switch {
	case p.Kind == protocol.Call:
		dst = s.form.appendName(append(dst, `,"name":`...), p, t)
	case p.Kind == protocol.Text:
		dst = append(dst, `,"logprobs":[`...)
		if s.of.Request.Logprobs {
			dst = appendLogprobs(dst, p.Logprobs)
		}
		dst = append(dst, ']')
	}
	dst = append(dst, closeEvent...)
	switch {
	case p.Kind == protocol.Call || p.Kind == protocol.Reasoning && s.of.Request.Content:
		return dst
	case p.Kind == protocol.Reasoning:
		dst = append(s.inner(dst, "response.reasoning_summary_part.done", i, p, summaryIndex), `,"part":{"type":"summary_text","text":"`...)
		return append(append(append(dst, p.Text...), `"}`...), closeEvent...)
	}
	dst = append(s.inner(dst, "response.content_part.done", i, p, contentIndex), `,"part":`...)
	return append(s.form.appendPart(dst, p, p.Text), closeEvent...)
}

// itemStatus is how the item of part i ended: the last one of an answer that was cut is incomplete.
func itemStatus(t *protocol.Turn, i int) string {
	if i == len(t.Parts)-1 && outcome(t.Finish).status == Incomplete {
		return Incomplete
	}
	return Completed
}

// Finish implements protocol.Answer. What it learns is told in End: the last event says that all is well.
func (s *Stream) Finish(dst []byte, u *usage.Vector) []byte {
	if u != nil {
		copied := *u
		s.state.usage = &copied
	}
	return dst
}

// End implements protocol.Answer.
func (s *Stream) End(dst []byte) []byte {
	if s.state.status != Failed {
		end := outcome(s.turn.Finish)
		s.state.status, s.state.reason = end.status, end.reason
	}
	s.keep()
	return s.whole(dst, "response."+s.state.status)
}

// keep stores the response before its end is told; one that could not be stored says so.
func (s *Stream) keep() {
	if s.of.Keep != nil {
		s.single = s.of.appendObject(s.single[:0], &s.p, &s.state)
		s.state.kept = s.of.Keep(s.single) && s.of.stores()
	}
}
