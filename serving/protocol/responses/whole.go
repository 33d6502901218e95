package responses

import (
	"sync"

	"millrace/internal/usage"
	"millrace/serving/protocol"
)

// Whole is the answer given whole: the response object.
type Whole struct {
	of    *Answers
	p     protocol.AnswerParams
	turn  protocol.Turn
	state state // once the engine has ended
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
	w.of, w.state = nil, state{}
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

// Finish implements protocol.Answer. Without its end, an answer does not look whole. One that is kept is told in End, all of
// it: it can be read by others once it is kept, which is not before its usage is safe.
func (w *Whole) Finish(dst []byte, u *usage.Vector) []byte {
	w.state = outcome(w.turn.Finish)
	w.state.output, w.state.kept = w.appendOutput(nil), w.of.stores()
	if u != nil {
		copied := *u
		w.state.usage = &copied
	}
	if w.of.Keep != nil {
		return dst
	}
	dst = w.of.appendObject(dst, &w.p, &w.state)
	return dst[:len(dst)-1]
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

// End implements protocol.Answer. A response is kept before the client sees any of it.
func (w *Whole) End(dst []byte) []byte {
	if w.of.Keep == nil {
		return append(dst, "}\n"...)
	}
	from := len(dst)
	dst = w.of.appendObject(dst, &w.p, &w.state)
	if !w.of.Keep(dst[from:]) && w.state.kept {
		w.state.kept = false
		dst = w.of.appendObject(dst[:from], &w.p, &w.state)
	}
	return append(dst, '\n')
}
