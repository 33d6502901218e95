package gate

import (
	"errors"
	"log/slog"

	"millrace/internal/ids"
	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/internal/upstream"
	"millrace/serving/protocol"
)

// record keeps what is said of an answer that another engine could go on with. It ends with the first thing that is no plain
// text: reasoning and calls cannot be continued from their middle.
func (r *relay) record(data []byte) {
	if r.said, r.records = engine.Said(r.said, data); !r.records {
		r.said = r.said[:0]
	}
}

// resumes makes the request for the rest of an answer that an engine broke off, when another may go on with it: its client
// gets one answer. False: the answer ends here.
func (r *relay) resumes(err error) bool {
	t := r.t
	if !r.records || len(r.said) == 0 || r.try >= maxRetries || !brokeOff(t, err) || r.flush() != nil {
		return false
	}
	m := &t.meter
	m.deliver()
	body, ok := engine.Resume(t.req.Chat.Body, r.said, m.delivered)
	if !ok {
		return false
	}
	if r.pair != nil {
		r.pair.collect(blameWait)
	}
	m.resume(r.unit.Driver, t.promptEstimate())
	last := len(t.attempts) - 1
	if t.promptBy == 0 {
		t.promptBy = last + 1
	}
	t.attempts[last].Leg = usage.LegReplay
	t.attempts[last].Generated = m.before - t.replayed
	t.replayed, t.resumed = m.before, body
	t.gate.stats.replayed.Add(1)
	slog.Warn("an engine broke an answer; another goes on with it", "request_id", ids.Format(ids.Request, t.req.ID), "unit", r.unit.Name, "cause", err)
	return true
}

// brokeOff reports whether an error is an engine's end, and not an answer of its own.
func brokeOff(t *Ticket, err error) bool {
	f := t.classify(err)
	return (f.blame || upstream.IsTimeout(err)) && !errors.Is(err, protocol.ErrAnswerTooLarge)
}

// resume keeps what the answer came to so far: the next engine counts from nothing, and its prompt, which holds what was
// said, is billed to nobody.
func (m *meter) resume(d engine.Driver, estimate int64) {
	if m.prompt == nil {
		report, err := engine.Report{}, engine.ErrNoUsage
		if len(m.kept) > 0 {
			report, err = d.Usage(m.kept)
		}
		if err != nil {
			report = engine.Report{Vector: usage.Vector{usage.Input: estimate, usage.Requests: 1}}
		}
		m.prompt = &report
	}
	m.before, m.generated = m.delivered, m.delivered
	m.latest, m.kept, m.counted, m.apart, m.last = nil, m.kept[:0], false, false, 0
}

// share says what of the bill comes from which attempt; the last one's part is what the others leave.
func (t *Ticket) share(c *count) {
	if t.promptBy == 0 && t.resumed == nil {
		return
	}
	billed := !c.impossible && c.vector.Tokens() > 0
	left := c.vector.Generated()
	for i := range t.attempts {
		a := &t.attempts[i]
		if a.Prompt = 0; i == t.promptBy-1 && billed {
			a.Prompt = c.vector.Prompt()
		}
		if !billed {
			a.Generated = 0
		}
		a.Generated = min(a.Generated, left)
		left -= a.Generated
	}
}
