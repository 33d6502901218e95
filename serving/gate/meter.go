package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"millrace/internal/usage"
	"millrace/serving/engine"
	"millrace/serving/protocol"
)

// meter counts one request's tokens as its answer is made and written. What was delivered is known exactly at any cut,
// because engines count on every chunk; where one does not, each chunk counts as a token and the result is an estimate.
type meter struct {
	total int64 // most output tokens that were asked for, over all choices
	held  int64 // output tokens that the hold covers

	generated int64   // of the answer so far, written or not
	choices   []int64 // running counts of a request with several choices
	apart     bool    // the engine counts each choice by itself, as vLLM does
	last      int64   // the running count before
	counted   bool    // generated is the engine's count
	latest    []byte  // the chunk with the engine's latest count; aliases the stream's buffer until kept

	delivered int64  // generated, as of the last write that succeeded
	kept      []byte // a copy of latest, as of then
	said      bool   // something of the answer was generated
	pieces    int64  // chunks that said something
}

// reset forgets an attempt that came to nothing.
func (m *meter) reset() {
	m.generated, m.delivered, m.pieces, m.counted, m.said, m.latest, m.kept = 0, 0, 0, false, false, nil, m.kept[:0]
	m.apart, m.last = false, 0
	clear(m.choices)
}

// add takes in one event of the engine's stream.
func (m *meter) add(s protocol.Step, data []byte) {
	if s.Says {
		m.said = true
		m.pieces++
	}
	if s.Usage {
		m.latest = data
	}
	switch {
	case s.Tokens < 0:
		if s.Says && !m.counted {
			m.generated++
		}
	case m.choices == nil || s.Choice < 0:
		m.counted, m.generated = true, s.Tokens
	default:
		m.addChoice(s)
	}
}

// addChoice takes in a running count of a request with several choices. One count for all of them grows with every chunk
// that says something; counts for each do not.
func (m *meter) addChoice(s protocol.Step) {
	m.apart = m.apart || s.Says && m.counted && s.Tokens <= m.last
	m.counted, m.last = true, s.Tokens
	m.choices[s.Choice] = s.Tokens
	if !m.apart {
		m.generated = s.Tokens
		return
	}
	m.generated = 0
	for _, n := range m.choices {
		m.generated += n
	}
}

// deliver says that all that was added has been written. It must come before the stream's buffer is filled again.
func (m *meter) deliver() {
	m.delivered = m.generated
	if m.latest != nil {
		m.kept, m.latest = append(m.kept[:0], m.latest...), nil
	}
}

// overrun reports whether the engine generated far more than was asked for: it ignores the limit, or miscounts.
func (m *meter) overrun(generated int64) bool { return generated > m.total+m.total/8+64 }

// count is what a request used, as far as is known.
type count struct {
	vector     usage.Vector
	raw        json.RawMessage
	estimated  bool
	impossible bool   // the engine's usage cannot be: nothing is charged, the rater puts it aside
	doubt      string // why it cannot be
}

// impossible is usage that the rater puts aside.
func impossible(raw json.RawMessage, doubt string) count {
	doubt = strings.ToValidUTF8(doubt[:min(len(doubt), usage.MaxDoubtBytes)], "")
	return count{vector: usage.Impossible, raw: raw, impossible: true, doubt: doubt}
}

// count gives what was delivered. complete means that the engine ended the answer by itself; hit is how many prompt
// tokens the router believes were cached.
func (m *meter) count(d engine.Driver, complete bool, prompt, hit int64, quote *usage.Quote) count {
	report, err := engine.Report{}, engine.ErrNoUsage
	if len(m.kept) > 0 {
		report, err = d.Usage(m.kept)
	}
	switch {
	case errors.Is(err, engine.ErrNoUsage):
		report = engine.Report{Vector: usage.Vector{usage.Input: prompt, usage.Output: m.delivered, usage.Requests: 1}}
	case err != nil:
		return impossible(rawUsage(report.Raw, m.kept), strings.TrimPrefix(err.Error(), "engine: "))
	case m.overrun(report.Vector.Generated()):
		return impossible(rawUsage(report.Raw, m.kept), fmt.Sprintf("%d tokens were generated, at most %d were asked for", report.Vector.Generated(), m.total))
	case m.counted && !complete: // the chunk may count one choice only, or more than was written
		thought := min(report.Vector[usage.Reasoning], m.delivered)
		report.Vector[usage.Reasoning], report.Vector[usage.Output] = thought, m.delivered-thought
	}
	c := count{vector: report.Vector, raw: rawUsage(report.Raw, nil), estimated: err != nil}
	if !report.CachedKnown {
		c.predictCached(hit, complete, quote.For(c.vector.Prompt()))
	}
	return c
}

// predictCached splits the prompt by what the router predicted where that is the customer's gain.
func (c *count) predictCached(hit int64, complete bool, prices *usage.Prices) {
	if prices[usage.Cached] > prices[usage.Input] {
		hit = 0
	}
	hit = min(hit, c.vector[usage.Input])
	c.vector[usage.Input] -= hit
	c.vector[usage.Cached] += hit
	c.estimated = c.estimated || hit > 0 || !complete
}

// rawUsage is the engine's usage as the event keeps it: what the driver found, else the chunk itself.
func rawUsage(found, chunk []byte) json.RawMessage {
	raw := found
	if raw == nil {
		raw = bytes.Clone(chunk)
	}
	if raw == nil || len(raw) <= usage.MaxRawBytes && json.Valid(raw) {
		return raw
	}
	quoted, err := json.Marshal(string(raw[:min(len(raw), usage.MaxRawBytes/8)])) // escapes take up to six bytes each
	if err != nil {
		return nil
	}
	return quoted
}
