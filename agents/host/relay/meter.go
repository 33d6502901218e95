package relay

import (
	"bytes"

	"millrace/agents/host/journal"
	"millrace/serving/engine/scan"
)

// carryBytes bounds a usage object that is cut by the border of two reads.
const carryBytes = 2 << 10

// meter finds usage objects in a byte stream and puts their counts into the journal. It looks for the engine's mark and
// reads the numbers behind it; nothing else of the stream is looked at. The mark cannot occur inside a JSON string, where
// its quotes would be escaped.
type meter struct {
	mark   []byte
	record *journal.Record
	tail   []byte // the end of the last read, when it may hold the beginning of a usage object
}

// scan looks at the next bytes.
func (m *meter) scan(p []byte) {
	if m.record == nil {
		return
	}
	if len(m.tail) > 0 {
		joined := append(m.tail, p[:min(len(p), carryBytes)]...)
		m.take(joined)
		if len(p) < carryBytes && p[len(p)-1] != '\n' {
			m.keep(joined)
			return
		}
		m.tail = m.tail[:0]
	}
	m.take(p)
	if p[len(p)-1] != '\n' { // an event ends with a line: nothing is cut then
		m.keep(p)
	}
}

// take counts the last whole usage object of p.
func (m *meter) take(p []byte) {
	for end := len(p); ; {
		at := bytes.LastIndex(p[:end], m.mark)
		if at < 0 {
			return
		}
		open := at + len(m.mark) - 1
		if stop := scan.Value(p, open); stop > 0 {
			m.record.Count(counts(p[open:stop]))
			return
		}
		end = at // cut off: the one before it is whole
	}
}

// keep remembers what may be the beginning of a usage object: from a mark on, or less than a mark.
func (m *meter) keep(p []byte) {
	from := max(0, len(p)-len(m.mark)+1)
	if at := bytes.LastIndex(p, m.mark); at >= 0 && scan.Value(p, at+len(m.mark)-1) < 0 {
		from = at
	}
	if len(p)-from > carryBytes {
		from = max(0, len(p)-len(m.mark)+1) // no engine's usage is that long
	}
	m.tail = append(m.tail[:0], p[from:]...)
}

// handedOver says that everything scanned has been written to the caller.
func (m *meter) handedOver() {
	if m.record != nil {
		m.record.HandedOver()
	}
}

// counts reads the numbers of a usage object: OpenAI's (prompt_tokens, completion_tokens, prompt_tokens_details) or
// llama.cpp's timings (cache_n, prompt_n, predicted_n, where the prompt is what was cached and what was computed).
func counts(object []byte) (prompt, cached, generated int64) {
	o := scan.Object(object)
	for o.Next() {
		switch string(o.Key) {
		case "prompt_tokens":
			prompt = number(o.Value)
		case "completion_tokens", "predicted_n":
			generated = number(o.Value)
		case "prompt_tokens_details":
			d := scan.Object(o.Value)
			for d.Next() {
				if string(d.Key) == "cached_tokens" {
					cached = number(d.Value)
				}
			}
		case "cache_n":
			cached = number(o.Value)
			prompt += cached
		case "prompt_n":
			prompt += number(o.Value)
		}
	}
	return prompt, cached, generated
}

// number reads a whole number, 0 for anything else.
func number(b []byte) (n int64) {
	if len(b) > 15 {
		return 0
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + int64(c-'0')
	}
	return n
}
