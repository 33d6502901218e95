package protocol

import (
	"errors"
	"strconv"
	"sync"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// MaxAnswerBytes bounds a whole answer in memory: 256K tokens of text fit many times over.
const MaxAnswerBytes = 64 << 20

// ErrAnswerTooLarge says that a whole answer is above MaxAnswerBytes; streamed it would have passed.
var ErrAnswerTooLarge = errors.New("protocol: the answer is too large to be given whole")

// ChatWhole is the whole answer of Chat Completions, put together from the engine's stream: texts are spliced as they
// stand, still escaped.
type ChatWhole struct {
	p       AnswerParams
	shapes  shapes
	chunk   chunk
	choices []wholeChoice
	size    int
}

type wholeChoice struct {
	texts    [numTexts][]byte
	calls    calls
	logprobs [2][]byte // elements of the arrays content and refusal
	finish   string
}

var chatWholes = sync.Pool{New: func() any { return &ChatWhole{} }}

// maxKeptText bounds the text buffers that are kept for later answers, in bytes.
const maxKeptText = 64 << 10

// NewChatWhole makes a whole answer.
func NewChatWhole(p AnswerParams) *ChatWhole {
	w := chatWholes.Get().(*ChatWhole)
	w.p, w.size = p, 0
	w.shapes.reset()
	if n := max(p.N, 1); n == 1 && len(w.choices) == 1 {
		w.choices[0].reset()
	} else {
		w.choices = make([]wholeChoice, n)
	}
	return w
}

func (c *wholeChoice) reset() {
	old := *c
	*c = wholeChoice{calls: old.calls.reset()}
	for i, t := range old.texts {
		if cap(t) <= maxKeptText {
			c.texts[i] = t[:0]
		}
	}
}

// Release implements Answer.
func (w *ChatWhole) Release() { chatWholes.Put(w) }

// Add implements Answer. It appends nothing: Finish does.
func (w *ChatWhole) Add(dst, data []byte) ([]byte, Step, error) {
	if w.size += len(data); w.size > MaxAnswerBytes {
		return dst, Step{Tokens: -1}, ErrAnswerTooLarge
	}
	if sh, text, tokens := w.shapes.match(data); sh != nil && sh.choice < len(w.choices) {
		if c := &w.choices[sh.choice]; c.finish == "" {
			c.texts[sh.text] = append(c.texts[sh.text], text...)
			return dst, Step{Says: true, Usage: sh.usage, Tokens: tokens, Choice: sh.choice}, nil
		}
	}
	if string(data) == doneData {
		return dst, Step{Done: true, Tokens: -1}, nil
	}
	if err := w.chunk.parse(data, w.p.Counter); err != nil {
		return dst, Step{Tokens: -1}, err
	}
	step := w.chunk.step()
	for i := range w.chunk.choices {
		d := &w.chunk.choices[i]
		if d.index >= len(w.choices) {
			return dst, step, ErrMalformed
		}
		if err := w.choices[d.index].add(d); err != nil {
			return dst, step, err
		}
	}
	w.shapes.learn(data, &w.chunk)
	return dst, step, nil
}

func (c *wholeChoice) add(d *delta) (err error) {
	if c.finish != "" {
		return nil
	}
	for which, t := range d.texts {
		c.texts[which] = append(c.texts[which], field.Inside(t)...)
	}
	if d.tools != nil && !c.calls.add(d.tools, func(int) {}) {
		return ErrMalformed
	}
	if d.logprobs != nil {
		m := scan.Object(d.logprobs)
		for m.Next() {
			switch string(m.Key) {
			case "content":
				c.logprobs[0] = appendElements(c.logprobs[0], m.Value)
			case "refusal":
				c.logprobs[1] = appendElements(c.logprobs[1], m.Value)
			}
		}
	}
	if d.finish != nil {
		c.finish, err = finishReason(d.finish)
	}
	return err
}

// appendElements appends an array's elements to a list without brackets.
func appendElements(dst, array []byte) []byte {
	if len(array) < 2 || array[0] != '[' {
		return dst
	}
	array = array[scan.Space(array, 1) : len(array)-1]
	if len(array) == 0 {
		return dst
	}
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	return append(dst, array...)
}

// Complete implements Answer.
func (w *ChatWhole) Complete() bool {
	for i := range w.choices {
		if w.choices[i].finish == "" {
			return false
		}
	}
	return true
}

// Limit implements Answer: what is there becomes the answer.
func (w *ChatWhole) Limit() {
	for i := range w.choices {
		if w.choices[i].finish == "" {
			w.choices[i].finish = `"length"`
		}
	}
}

// Finish implements Answer.
func (w *ChatWhole) Finish(dst []byte, u *usage.Vector) []byte {
	dst = append(append(append(dst, `{"id":"`...), w.p.ID...), `","object":"chat.completion","created":`...)
	dst = append(strconv.AppendInt(dst, w.p.Created, 10), `,"model":`...)
	dst = append(w.p.appendService(scan.Quote(dst, w.p.Model)), `,"choices":[`...)
	for i := range w.choices {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = w.choices[i].render(dst, &w.p, i)
	}
	dst = append(dst, `]`...)
	if u != nil {
		dst = appendUsage(append(dst, `,"usage":`...), u)
	}
	return dst
}

// Fail implements Answer: no part of a whole answer is ever shown, so there is nothing to end.
func (w *ChatWhole) Fail(dst, _ []byte) []byte { return dst }

// KeepAlive implements Answer: a whole answer has not begun before its end.
func (w *ChatWhole) KeepAlive(dst []byte) []byte { return dst }

// End implements Answer.
func (w *ChatWhole) End(dst []byte) []byte { return append(dst, "}\n"...) }

func (c *wholeChoice) render(dst []byte, p *AnswerParams, index int) []byte {
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(index), 10)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	if len(c.texts[content]) == 0 && c.calls.named+len(c.texts[reasoning])+len(c.texts[refusal]) > 0 {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, c.texts[content])
	}
	dst = append(dst, `,"refusal":`...)
	if len(c.texts[refusal]) == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, c.texts[refusal])
	}
	if len(c.texts[reasoning]) > 0 {
		dst = appendString(append(dst, `,"reasoning_content":`...), c.texts[reasoning])
	}
	dst = p.appendCalls(dst, &c.calls, index)
	dst = append(dst, `},"logprobs":`...)
	if c.logprobs[0] == nil && c.logprobs[1] == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(append(append(dst, `{"content":[`...), c.logprobs[0]...), `],"refusal":`...)
		if c.logprobs[1] == nil {
			dst = append(dst, `null}`...)
		} else {
			dst = append(append(append(dst, '['), c.logprobs[1]...), `]}`...)
		}
	}
	return append(append(append(dst, `,"finish_reason":`...), p.finish(c.finish, &c.calls)...), '}')
}

func appendString(dst, inside []byte) []byte {
	return append(append(append(dst, '"'), inside...), '"')
}
