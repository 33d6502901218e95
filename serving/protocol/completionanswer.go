package protocol

import (
	"strconv"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// CompletionStream is the streamed answer to a request for text.
type CompletionStream struct {
	p        AnswerParams
	opening  []byte
	shapes   shapes
	chunk    chunk
	finished []bool
}

// NewCompletionStream makes a streamed answer.
func NewCompletionStream(p AnswerParams) *CompletionStream {
	s := &CompletionStream{p: p, finished: make([]bool, max(p.N, 1))}
	s.opening = append(p.completionHead([]byte("data: ")), `,"choices":[`...)
	return s
}

// completionHead appends what every object of an answer begins with.
func (p *AnswerParams) completionHead(dst []byte) []byte {
	dst = append(append(append(dst, `{"id":"`...), p.ID...), `","object":"text_completion","created":`...)
	dst = append(strconv.AppendInt(dst, p.Created, 10), `,"model":`...)
	return p.appendService(scan.Quote(dst, p.Model))
}

// Add implements Answer.
func (s *CompletionStream) Add(dst, data []byte) ([]byte, Step, error) {
	if sh, text, tokens := s.shapes.match(data); sh != nil && sh.choice < len(s.finished) && !s.finished[sh.choice] {
		return s.show(dst, sh.choice, text, "null"), Step{Says: true, Usage: sh.usage, Tokens: tokens, Choice: sh.choice}, nil
	}
	if string(data) == doneData {
		return dst, Step{Done: true, Tokens: -1}, nil
	}
	if err := s.chunk.parse(data, s.p.Counter); err != nil {
		return dst, Step{Tokens: -1}, err
	}
	step := s.chunk.step()
	for i := range s.chunk.choices {
		d := &s.chunk.choices[i]
		if d.index >= len(s.finished) {
			return dst, step, ErrMalformed
		}
		if s.finished[d.index] || !d.says() && d.finish == nil {
			continue
		}
		reason := "null"
		if d.finish != nil {
			var err error
			if reason, err = finishReason(d.finish); err != nil {
				return dst, step, err
			}
			s.finished[d.index] = true
		}
		dst = s.show(dst, d.index, field.Inside(d.texts[content]), reason)
	}
	s.shapes.learn(data, &s.chunk)
	return dst, step, nil
}

func (s *CompletionStream) show(dst []byte, index int, text []byte, reason string) []byte {
	dst = appendCompletionChoice(append(dst, s.opening...), index, text, reason)
	if s.p.Usage {
		return append(dst, `],"usage":null}`+"\n\n"...)
	}
	return append(dst, "]}\n\n"...)
}

func appendCompletionChoice(dst []byte, index int, text []byte, reason string) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = appendString(append(dst, `,"text":`...), text)
	return append(append(append(dst, `,"logprobs":null,"finish_reason":`...), reason...), '}')
}

// Complete implements Answer.
func (s *CompletionStream) Complete() bool {
	for _, f := range s.finished {
		if !f {
			return false
		}
	}
	return true
}

// Limit implements Answer: a stream that is cut ends with an error frame.
func (s *CompletionStream) Limit() {}

// Finish implements Answer.
func (s *CompletionStream) Finish(dst []byte, u *usage.Vector) []byte {
	if !s.p.Usage {
		return dst
	}
	dst = append(append(dst, s.opening...), `],"usage":`...)
	return append(appendUsage(dst, u), "}\n\n"...)
}

// Fail implements Answer.
func (s *CompletionStream) Fail(dst, frame []byte) []byte {
	return append(append(append(dst, "data: "...), frame...), "\n\n"...)
}

// KeepAlive implements Answer.
func (s *CompletionStream) KeepAlive(dst []byte) []byte { return append(dst, Comment...) }

// End implements Answer.
func (s *CompletionStream) End(dst []byte) []byte { return append(dst, "data: "+doneData+"\n\n"...) }

// Release implements Answer.
func (s *CompletionStream) Release() {}

// CompletionWhole is the whole answer to a request for text: a chat's, with another face.
type CompletionWhole struct{ *ChatWhole }

// NewCompletionWhole makes a whole answer.
func NewCompletionWhole(p AnswerParams) CompletionWhole { return CompletionWhole{NewChatWhole(p)} }

// Finish implements Answer.
func (w CompletionWhole) Finish(dst []byte, u *usage.Vector) []byte {
	dst = append(w.p.completionHead(dst), `,"choices":[`...)
	for i := range w.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendCompletionChoice(dst, i, w.choices[i].texts[content], w.choices[i].finish)
	}
	dst = append(dst, ']')
	if u != nil {
		dst = appendUsage(append(dst, `,"usage":`...), u)
	}
	return dst
}
