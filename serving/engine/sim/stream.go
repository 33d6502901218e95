package sim

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"millrace/serving/engine/scan"
)

// fingerprint is the system_fingerprint of every answer.
const fingerprint = "simulated"

// stream writes an answer as server-sent events, a chunk per token. It returns errCut when the connection must be broken.
func (a *answering) stream(w http.ResponseWriter, r *http.Request) error {
	out := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	a.startChunks()
	defer a.endChunks()
	write := func(text string) error {
		a.buf = append(a.buf, text...)
		_, err := w.Write(a.buf)
		a.buf = a.buf[:0]
		if err != nil {
			return err
		}
		return out.Flush()
	}
	for {
		if !a.next(r) {
			return errCut
		}
		for more := true; more; {
			more = a.fill()
			if len(a.buf) > 0 {
				if err := write(""); err != nil {
					return err
				}
			}
			if due := a.faults.due(a.struck); due == 0 || a.sent != due { // nothing sent is no fault that is due at 0
				continue
			}
			a.struck = a.sent
			if err := a.e.strike(w, r, &a.faults, a.sent, write); errors.Is(err, errDone) {
				return nil
			} else if err != nil {
				return err
			}
		}
		if ended, whole := a.progress(); ended {
			if !whole && !a.cancelled.Load() {
				return errCut // the engine is stopping
			}
			a.endCancelled()
			a.end()
			return write("")
		}
	}
}

// startChunks fixes what all chunks begin with.
func (a *answering) startChunks() {
	object, id := "text_completion", "cmpl-"
	if a.q.chat {
		object, id = "chat.completion.chunk", "chatcmpl-"
	}
	b := append([]byte(`data: {"id":`), scan.Quote(nil, id+a.q.id)...)
	b = append(b, `,"object":"`+object+`","created":`...)
	b = strconv.AppendInt(b, a.e.clock.Now().Unix(), 10)
	b = append(b, `,"model":`...)
	b = append(b, scan.Quote(nil, a.q.model)...)
	a.head = append(b, `,"system_fingerprint":"`+fingerprint+`","choices":[`...)
	a.buf = *chunkSpace.Get().(*[]byte)
}

// chunkSpace holds buffers of chunks between answers.
var chunkSpace = sync.Pool{New: func() any { return new([]byte) }}

func (a *answering) endChunks() {
	space := a.buf[:0]
	chunkSpace.Put(&space)
}

// fill appends chunks for the tokens that have been generated. It stops at the next fault and when enough is gathered;
// true says that there may be more.
func (a *answering) fill() (more bool) {
	due := a.faults.due(a.struck)
	for i, s := range a.seqs {
		for n := int(s.produced.Load()); a.choices[i].sent < n; {
			if due > 0 && a.sent == due {
				return true
			}
			if a.choices[i].sent == 0 && a.q.chat {
				a.open(i)
				a.buf = append(append(a.buf, a.e.voice.opening()...), a.e.voice.going()...)
				a.closeChunk(a.traits.lineEnd)
			}
			a.sent++
			a.choices[i].sent++
			a.token(i, s, a.choices[i].sent-1)
			if len(a.buf) >= flushBytes {
				return true
			}
		}
	}
	return false
}

// flushBytes is how much is gathered for one write.
const flushBytes = 64 << 10

// open starts a chunk of choice i, up to its delta or text.
func (a *answering) open(i int) {
	a.buf = append(a.buf, a.head...)
	a.buf = append(a.buf, `{"index":`...)
	a.buf = strconv.AppendInt(a.buf, int64(i), 10)
	if a.q.chat {
		a.buf = append(a.buf, `,"delta":`...)
	} else {
		a.buf = append(a.buf, `,"text":`...)
	}
}

// closeChunk ends a chunk after its choices; end stands before the line's end.
func (a *answering) closeChunk(end string) {
	switch {
	case a.faults.NoUsage:
	case a.q.everyUsage && a.traits.continuous:
		a.buf = append(a.buf, `,"usage":`...)
		a.buf = a.appendUsage(a.buf)
	case a.q.lastUsage && a.traits.nullUsage:
		a.buf = append(a.buf, `,"usage":null`...)
	}
	a.buf = append(append(append(a.buf, '}'), end...), "\n\n"...)
}

// token appends the chunk of token t of choice i, and with the last one its finish.
func (a *answering) token(i int, s *sequence, t int) {
	g := s.answer.segment(t)
	open, last := a.say(i, s, g, t), t == s.target-1
	if alone := a.q.chat && (a.traits.apart || g.part == toolCall); open && (!last || alone) {
		a.buf = append(a.buf, a.e.voice.going()...)
		a.closeChunk("")
		open = false
	}
	if last {
		a.finishChoice(i, s, open)
	}
}

// say appends a chunk up to its delta or text; false when this token shows nothing.
func (a *answering) say(i int, s *sequence, g *segment, t int) bool {
	start := len(a.buf)
	a.open(i)
	delta := len(a.buf)
	p := g.at(t - g.start)
	switch {
	case !a.q.chat:
		a.buf = append(append(append(a.buf, '"'), a.choices[i].shown(s.answer, p)...), '"')
	case g.part == toolCall:
		a.call(i, g, t-g.start)
	case g.part == reasoning:
		a.buf = a.e.voice.text(a.buf, reasoning, p.json)
	default:
		a.buf = a.e.voice.text(a.buf, content, a.choices[i].shown(s.answer, p))
	}
	if len(a.buf) == delta {
		a.buf = a.buf[:start]
		return false
	}
	return true
}

// finishChoice ends a choice, in the chunk that is open or in one of its own.
func (a *answering) finishChoice(i int, s *sequence, open bool) {
	if !open {
		a.open(i)
		if a.q.chat {
			a.buf = append(a.buf, cmp.Or(a.traits.emptyDelta, "{}")...)
		} else {
			a.buf = append(a.buf, `""`...)
		}
	}
	reason, stop := a.finish(s)
	a.buf = a.e.voice.end(a.buf, reason, stop)
	if params := a.e.transferParams(a, s); params != nil {
		a.buf = append(append(a.buf, `,"kv_transfer_params":`...), params...)
	}
	if a.traits.apart && a.q.everyUsage {
		a.buf = append(a.buf, "}\n\n"...)
	} else {
		a.closeChunk("")
	}
}

// call appends the delta of token j of a tool call: nothing until the name is complete, then the name, then arguments.
func (a *answering) call(i int, g *segment, j int) {
	if j < g.nameEnds-1 {
		return
	}
	c := callPiece{choice: i, index: g.call, id: a.callID(i, g), name: g.name, first: j == g.nameEnds-1, forced: a.q.forced}
	if !c.first {
		c.arguments = g.at(j).json
	}
	a.buf = a.e.voice.call(a.buf, c)
}

func (a *answering) callID(i int, g *segment) string {
	return "chatcmpl-tool-" + a.q.id + "-" + strconv.Itoa(i) + "-" + strconv.Itoa(g.call)
}

// endCancelled ends the choices that were cut short.
func (a *answering) endCancelled() {
	for i, s := range a.seqs {
		if int(s.produced.Load()) < s.target {
			a.finishChoice(i, s, false)
		}
	}
}

// end appends what follows the last token: usage when it was asked for, and the end mark.
func (a *answering) end() {
	if a.q.lastUsage && !a.faults.NoUsage {
		a.buf = append(append(a.buf, a.head...), `],"usage":`...)
		a.buf = a.appendUsage(a.buf)
		a.buf = append(a.buf, "}\n\n"...)
	}
	a.buf = append(a.buf, "data: [DONE]\n\n"...)
}
