package responses

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"millrace/internal/usage"
	"millrace/serving/protocol"
)

// Summarize is what a model is asked to compact a conversation: an array of one item.
const Summarize = `[{"type":"message","role":"user","content":"Summarize our conversation so far, so that it can be continued from your summary alone. ` +
	`Keep every decision, fact, name, number, open task and constraint that may matter later, and what was asked last. Write only the summary."}]`

// Compactions makes the answers of a compaction: the model's text becomes an item that only we can read.
type Compactions struct{ Seal *protocol.ReasoningSeal }

// New makes one attempt's answer.
func (c *Compactions) New(_ bool, p protocol.AnswerParams) protocol.Answer {
	a := compactions.Get().(*compaction)
	a.seal, a.p = c.Seal, p
	a.turn.Reset(&p)
	return a
}

type compaction struct {
	seal *protocol.ReasoningSeal
	p    protocol.AnswerParams
	turn protocol.Turn
}

var compactions = sync.Pool{New: func() any { return &compaction{} }}

func (c *compaction) Release() { compactions.Put(c) }

func (c *compaction) Add(dst, data []byte) ([]byte, protocol.Step, error) {
	return c.turn.Add(dst, data, protocol.Silent{})
}

func (c *compaction) Complete() bool              { return c.turn.Finish != "" }
func (c *compaction) Limit()                      { c.turn.Limit() }
func (c *compaction) Fail(dst, _ []byte) []byte   { return dst }
func (c *compaction) KeepAlive(dst []byte) []byte { return dst }
func (c *compaction) End(dst []byte) []byte       { return append(dst, "}\n"...) }

func (c *compaction) Finish(dst []byte, u *usage.Vector) []byte {
	summary := []byte(compactionMark)
	for i := range c.turn.Parts {
		if p := &c.turn.Parts[i]; p.Kind == protocol.Text {
			summary = append(summary, p.Text...)
		}
	}
	dst = append(append(append(dst, `{"id":"`...), c.p.ID...), `","object":"response.compaction","created_at":`...)
	dst = append(strconv.AppendInt(dst, c.p.Created, 10), `,"output":[{"id":"`...)
	dst = append(append(dst, compactionPrefix...), strings.TrimPrefix(c.p.ID, ResponsePrefix)...)
	dst = c.seal.Append(append(dst, `","type":"compaction","encrypted_content":"`...), summary)
	if u == nil {
		u = &usage.Vector{}
	}
	return appendUsage(append(dst, `"}],"usage":`...), u)
}

// Queued is the response object of a response that is to be made in the background.
func (a *Answers) Queued(id string, at time.Time) []byte {
	if a.echo == nil {
		a.echo = a.appendEcho(nil)
	}
	return a.appendObject(nil, &protocol.AnswerParams{ID: id, Model: a.Request.Model, Created: at.Unix()}, &state{status: Queued, kept: true})
}
