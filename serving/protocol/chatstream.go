package protocol

import (
	"strconv"
	"sync"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
)

// ChatStream is the streamed answer of Chat Completions.
type ChatStream struct {
	p       AnswerParams
	opening []byte // an event up to the index of its choice
	closing string // after the delta of an unfinished choice
	shapes  shapes
	chunk   chunk
	choices []streamChoice
}

type streamChoice struct {
	started  bool // the role was shown
	finished bool
	calls    calls
}

var chatStreams = sync.Pool{New: func() any { return &ChatStream{} }}

// NewChatStream makes a streamed answer.
func NewChatStream(p AnswerParams) *ChatStream {
	s := chatStreams.Get().(*ChatStream)
	s.p = p
	s.shapes.reset()
	if n := max(p.N, 1); n == 1 && len(s.choices) == 1 {
		s.choices[0] = streamChoice{calls: s.choices[0].calls.reset()}
	} else {
		s.choices = make([]streamChoice, n)
	}
	b := append(s.opening[:0], `data: {"id":"`...)
	b = append(append(b, p.ID...), `","object":"chat.completion.chunk","created":`...)
	b = append(strconv.AppendInt(b, p.Created, 10), `,"model":`...)
	b = append(p.appendService(scan.Quote(b, p.Model)), `,"choices":[`...)
	s.opening = b
	s.closing = `},"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
	if !p.Usage {
		s.closing = `},"logprobs":null,"finish_reason":null}]}` + "\n\n"
	}
	return s
}

// Release implements Answer.
func (s *ChatStream) Release() { chatStreams.Put(s) }

// Add implements Answer.
func (s *ChatStream) Add(dst, data []byte) ([]byte, Step, error) {
	if sh, text, tokens := s.shapes.match(data); sh != nil && sh.choice < len(s.choices) {
		c := &s.choices[sh.choice]
		if c.started && !c.finished {
			dst = s.open(dst, sh.choice)
			dst = append(append(append(dst, '"'), textNames[sh.text]...), `":"`...)
			dst = append(append(dst, text...), '"')
			return append(dst, s.closing...), Step{Says: true, Usage: sh.usage, Tokens: tokens, Choice: sh.choice}, nil
		}
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
		if d.index >= len(s.choices) {
			return dst, step, ErrMalformed
		}
		var err error
		if dst, err = s.choice(dst, d); err != nil {
			return dst, step, err
		}
	}
	s.shapes.learn(data, &s.chunk)
	return dst, step, nil
}

// choice shows one choice's delta: the role before anything else, then texts and calls, then the finish by itself.
func (s *ChatStream) choice(dst []byte, d *delta) ([]byte, error) {
	c, logprobs := &s.choices[d.index], d.logprobs
	if c.finished || !d.says() && logprobs == nil && d.finish == nil {
		return dst, nil
	}
	if !c.started {
		c.started = true
		dst = append(s.open(dst, d.index), `"role":"assistant","content":""`...)
		dst = append(dst, s.closing...)
	}
	if d.says() || logprobs != nil && d.finish == nil {
		before := len(dst)
		dst = s.open(dst, d.index)
		bare := len(dst)
		var ok bool
		if dst, ok = s.members(dst, d); !ok {
			return dst, ErrMalformed
		}
		if len(dst) == bare && logprobs == nil {
			dst = dst[:before] // a call whose name has not come yet
		} else {
			dst = s.close(dst, logprobs, "null")
			logprobs = nil
		}
	}
	if d.finish == nil {
		return dst, nil
	}
	reason, err := finishReason(d.finish)
	if err != nil {
		return dst, err
	}
	c.finished = true
	dst = s.restOfCalls(dst, d.index)
	return s.close(s.open(dst, d.index), logprobs, s.p.finish(reason, &c.calls)), nil
}

// members appends what the delta says.
func (s *ChatStream) members(dst []byte, d *delta) ([]byte, bool) {
	comma := false
	for which, t := range d.texts {
		if len(t) <= len(`""`) {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		dst = append(append(append(append(dst, '"'), textNames[which]...), `":`...), t...)
		comma = true
	}
	if d.tools == nil {
		return dst, true
	}
	return s.callMembers(dst, d, comma)
}

func (s *ChatStream) open(dst []byte, index int) []byte {
	dst = append(append(dst, s.opening...), `{"index":`...)
	return append(strconv.AppendInt(dst, int64(index), 10), `,"delta":{`...)
}

func (s *ChatStream) close(dst, logprobs []byte, reason string) []byte {
	dst = append(dst, `},"logprobs":`...)
	if logprobs == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, logprobs...)
	}
	dst = append(append(append(dst, `,"finish_reason":`...), reason...), `}]`...)
	if s.p.Usage {
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}

// Complete implements Answer.
func (s *ChatStream) Complete() bool {
	for i := range s.choices {
		if !s.choices[i].finished {
			return false
		}
	}
	return true
}

// Limit implements Answer: a stream that is cut ends with an error frame, never with a made-up finish.
func (s *ChatStream) Limit() {}

// Finish implements Answer.
func (s *ChatStream) Finish(dst []byte, u *usage.Vector) []byte {
	if !s.p.Usage {
		return dst
	}
	dst = append(append(dst, s.opening...), `],"usage":`...)
	return append(appendUsage(dst, u), "}\n\n"...)
}

// Fail implements Answer.
func (s *ChatStream) Fail(dst, frame []byte) []byte {
	return append(append(append(dst, "data: "...), frame...), "\n\n"...)
}

// KeepAlive implements Answer.
func (s *ChatStream) KeepAlive(dst []byte) []byte { return append(dst, Comment...) }

// End implements Answer.
func (s *ChatStream) End(dst []byte) []byte { return append(dst, "data: "+doneData+"\n\n"...) }

// appendUsage appends usage as OpenAI writes it; null when unknown.
func appendUsage(dst []byte, u *usage.Vector) []byte {
	if u == nil {
		return append(dst, "null"...)
	}
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), u.Prompt(), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), u.Generated(), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), u.Tokens(), 10)
	dst = strconv.AppendInt(append(dst, `,"prompt_tokens_details":{"cached_tokens":`...), u[usage.Cached], 10)
	if n := u[usage.CacheWrite]; n > 0 {
		dst = strconv.AppendInt(append(dst, `,"cache_write_tokens":`...), n, 10)
	}
	dst = strconv.AppendInt(append(dst, `,"audio_tokens":`...), u[usage.Audio], 10)
	dst = strconv.AppendInt(append(dst, `},"completion_tokens_details":{"reasoning_tokens":`...), u[usage.Reasoning], 10)
	return append(dst, `}}`...)
}
