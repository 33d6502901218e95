package messages

import (
	"sync"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
)

// whole is an answer that is given at once.
type whole struct {
	protocol.Silent
	turn protocol.Turn
	p    protocol.AnswerParams
	v    *view

	args  objectReader
	plain []byte
}

var wholes = sync.Pool{New: func() any { return &whole{} }}

func newWhole(p protocol.AnswerParams, v *view) *whole {
	w := wholes.Get().(*whole)
	*w = whole{turn: w.turn, p: p, v: v, args: w.args, plain: w.plain[:0]}
	w.turn.Reset(&p)
	return w
}

// Release implements protocol.Answer.
func (w *whole) Release() {
	w.v = nil
	wholes.Put(w)
}

// Add implements protocol.Answer. It appends nothing: Finish does.
func (w *whole) Add(dst, data []byte) ([]byte, protocol.Step, error) { return w.turn.Add(dst, data, w) }

// Complete implements protocol.Answer.
func (w *whole) Complete() bool { return w.turn.Finish != "" }

// Limit implements protocol.Answer: what is there becomes the answer.
func (w *whole) Limit() { w.turn.Limit() }

// Finish implements protocol.Answer.
func (w *whole) Finish(dst []byte, u *usage.Vector) []byte {
	dst = appendHead(append(dst, '{'), &w.p)
	called, first := false, true
	for i := range w.turn.Parts {
		p := &w.turn.Parts[i]
		if !w.v.shows(p, called) {
			continue
		}
		called = called || p.Kind == protocol.Call
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = w.block(dst, p)
	}
	dst = append(w.v.appendReason(append(dst, "],"...), &w.turn), `,"usage":{`...)
	return append(append(appendCounts(dst, u, &w.p), standard...), '}')
}

func (w *whole) block(dst []byte, p *protocol.Part) []byte {
	switch p.Kind {
	case protocol.Reasoning:
		dst = append(dst, `{"type":"thinking","thinking":"`...)
		if !w.v.omit {
			dst = append(dst, p.Text...)
		}
		dst = w.v.seal.Append(append(dst, `","signature":"`...), p.Text)
		return append(dst, `"}`...)
	case protocol.Call:
		dst = append(append(append(dst, `{"type":"tool_use","id":"`...), p.ID...), `","name":"`...)
		dst = append(append(dst, p.Name...), `","input":`...)
		w.plain = scan.Unquote(w.plain[:0], p.Text)
		return append(w.args.appendObject(dst, w.plain), '}')
	}
	return append(append(append(dst, `{"type":"text","text":"`...), p.Text...), `"}`...)
}

// Fail implements protocol.Answer: no part of a whole answer is ever shown, so there is nothing to end.
func (w *whole) Fail(dst, _ []byte) []byte { return dst }

// End implements protocol.Answer.
func (w *whole) End(dst []byte) []byte { return append(dst, "}\n"...) }

// KeepAlive implements protocol.Answer: a whole answer has not begun before its end.
func (w *whole) KeepAlive(dst []byte) []byte { return dst }
