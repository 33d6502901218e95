package responses

import (
	"sync"

	"millrace/internal/usage"
	"millrace/serving/protocol"
)

// Whole is the answer given whole: the response object.
type Whole struct {
	of   *Answers
	p    protocol.AnswerParams
	turn protocol.Turn
}

var wholes = sync.Pool{New: func() any { return &Whole{} }}

func newWhole(a *Answers, p protocol.AnswerParams) *Whole {
	w := wholes.Get().(*Whole)
	w.of, w.p = a, p
	w.turn.Reset(&p)
	return w
}

// Release implements protocol.Answer.
func (w *Whole) Release() {
	w.of = nil
	wholes.Put(w)
}

// Add implements protocol.Answer. It appends nothing: Finish does.
func (w *Whole) Add(dst, data []byte) ([]byte, protocol.Step, error) {
	return w.turn.Add(dst, data, protocol.Silent{})
}

// Complete implements protocol.Answer.
func (w *Whole) Complete() bool { return w.turn.Finish != "" }

// Limit implements protocol.Answer: what is there becomes the answer.
func (w *Whole) Limit() { w.turn.Limit() }

// KeepAlive implements protocol.Answer: a whole answer has not begun before its end.
func (w *Whole) KeepAlive(dst []byte) []byte { return dst }

// Fail implements protocol.Answer: no part of a whole answer is ever shown, so there is nothing to end.
func (w *Whole) Fail(dst, _ []byte) []byte { return dst }

// Finish implements protocol.Answer. A response is stored before the client sees any of it.
func (w *Whole) Finish(dst []byte, u *usage.Vector) []byte {
	s := outcome(w.turn.Finish)
	s.usage, s.output, s.kept = u, w.appendOutput(nil), w.of.stores()
	from := len(dst)
	dst = w.of.appendObject(dst, &w.p, &s)
	if w.of.Keep != nil && !w.of.Keep(dst[from:]) && s.kept {
		s.kept = false
		dst = w.of.appendObject(dst[:from], &w.p, &s)
	}
	return dst[:len(dst)-1] // without its end, an answer does not look whole
}

func (w *Whole) appendOutput(dst []byte) []byte {
	f := newForm(w.of, &w.p)
	for i := range w.turn.Parts {
		p := &w.turn.Parts[i]
		at, shown := f.item(i, p)
		if !shown {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ',')
		}
		dst = f.appendItem(dst, at, p, itemStatus(&w.turn, i))
	}
	return dst
}

// End implements protocol.Answer.
func (w *Whole) End(dst []byte) []byte { return append(dst, "}\n"...) }
