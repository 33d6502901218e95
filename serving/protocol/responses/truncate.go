package responses

import (
	"bytes"
	"slices"

	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// Truncates reports whether the client would rather have the begin of its conversation left out than be refused.
func (q *Request) Truncates() bool { return field.Text(q.truncation) == "auto" }

// Shorten writes once more the request that Chat wrote, with so much of its conversation left out, from its begin on: 0 =
// nothing, 1 = all but the last turn. The client must have asked for it.
func (q *Request) Shorten(drop float64) (*protocol.ChatRequest, error) {
	d := *q.said
	d.out, d.origins = bytes.Clone(d.out), slices.Clone(d.origins)
	d.truncate(drop)
	return q.decode(&d)
}

// truncate leaves out so much of the conversation: after the system messages that begin it, and up to a message of the
// user's, so that no output of a tool stands without its call.
func (d *dialogue) truncate(drop float64) {
	if drop <= 0 {
		return
	}
	role := func(i int, name string) bool { return bytes.HasPrefix(d.out[d.starts[i]:], []byte(`{"role":"`+name)) }
	first := 0
	for first < len(d.starts) && role(first, "system") {
		first++
	}
	if first == len(d.starts) {
		return
	}
	from := d.starts[first]
	enough := from + int(drop*float64(len(d.out)-from))
	cut := first
	for i := first + 1; i < len(d.starts) && d.starts[cut] < enough; i++ {
		if role(i, "user") {
			cut = i
		}
	}
	d.out = append(d.out[:from], d.out[d.starts[cut]:]...)
	d.origins = append(d.origins[:first], d.origins[cut:]...)
}
