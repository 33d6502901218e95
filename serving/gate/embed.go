package gate

import (
	"fmt"
	"io"
	"net/http"

	"millrace/internal/usage"
	"millrace/serving/protocol"
	"millrace/serving/route"
)

// embed passes on an answer that is no stream. What it says of itself is as for stream.
func (r *relay) embed() (ended bool, err error) {
	t := r.t
	r.exchange.Deadline(t.start.Add(t.gate.Times.FirstToken), 0)
	body, err := io.ReadAll(io.LimitReader(r.exchange, protocol.MaxAnswerBytes+1))
	switch {
	case r.ctx.Err() != nil:
		return true, r.clientLeft()
	case err != nil:
		return false, err
	case len(body) > protocol.MaxAnswerBytes:
		return false, protocol.ErrAnswerTooLarge
	}
	out, tokens, err := protocol.Embeddings(r.out[:0], body, t.model.Name)
	if err != nil {
		return false, err
	}
	r.firstToken = t.gate.Clock.Now()
	t.booking.FirstToken()
	m := &t.meter
	m.said = true
	if tokens >= 0 {
		m.counted, m.kept = true, fmt.Appendf(m.kept[:0], `{"usage":{"prompt_tokens":%d,"completion_tokens":0}}`, tokens)
	}
	c := r.delivered(true)
	shown := r.shown(&c).Prompt()
	r.out = fmt.Appendf(out, `,"usage":{"prompt_tokens":%d,"total_tokens":%d}`, shown, shown)
	r.commit("application/json", len(r.out)+len(endOfObject))
	if err := r.write(r.out); err != nil {
		r.end(usage.ClientLeft, http.StatusOK, c, route.OK)
		return true, nil
	}
	r.last(r.end(usage.Complete, http.StatusOK, c, route.OK), func(dst []byte) []byte { return append(dst, endOfObject...) })
	return true, nil
}

// endOfObject waits for the usage log.
const endOfObject = "}\n"
