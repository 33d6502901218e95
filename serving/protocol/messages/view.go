package messages

import (
	"slices"
	"strconv"

	"millrace/internal/usage"
	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
)

// view is what of a request shows in its answer.
type view struct {
	seal    protocol.ReasoningSeal
	stops   []string // stop_sequences
	hide    bool     // thinking is disabled: what an engine thinks all the same is not shown
	omit    bool     // thinking blocks without their text
	oneCall bool     // disable_parallel_tool_use: calls after the first are not shown
}

// shows reports whether a part becomes a block. called says that a call was shown before it.
func (v *view) shows(p *protocol.Part, called bool) bool {
	switch p.Kind {
	case protocol.Reasoning:
		return !v.hide
	case protocol.Call:
		return !(v.oneCall && called)
	}
	return true
}

// reason is why an answer ended, and the stop sequence that ended it; nil = none.
func (v *view) reason(t *protocol.Turn) (reason string, stop []byte) {
	switch {
	case t.Finish == "length":
		return "max_tokens", nil
	case t.Finish == "content_filter" || refused(t):
		return "refusal", nil
	case calls(t):
		return "tool_use", nil
	case len(t.Stop) > 0 && slices.Contains(v.stops, string(scan.Unquote(nil, t.Stop))):
		return "stop_sequence", t.Stop
	case t.HasCalls():
		return "tool_use", nil
	}
	return "end_turn", nil
}

// calls reports whether the answer holds a call whose arguments are whole: none are too.
func calls(t *protocol.Turn) bool {
	var r objectReader
	for i := range t.Parts {
		if p := &t.Parts[i]; p.Kind == protocol.Call {
			if r.reset(); len(p.Text) == 0 {
				return true
			}
			if r.take(scan.Unquote(nil, p.Text)); r.whole() {
				return true
			}
		}
	}
	return false
}

func refused(t *protocol.Turn) bool {
	return slices.ContainsFunc(t.Parts, func(p protocol.Part) bool { return p.Kind == protocol.Refusal })
}

// appendReason appends the members stop_reason and stop_sequence.
func (v *view) appendReason(dst []byte, t *protocol.Turn) []byte {
	reason, stop := v.reason(t)
	dst = append(append(append(dst, `"stop_reason":"`...), reason...), `","stop_sequence":`...)
	if stop == nil {
		return append(dst, "null"...)
	}
	return append(append(append(dst, '"'), stop...), '"')
}

// appendHead appends the members of a message up to its content.
func appendHead(dst []byte, p *protocol.AnswerParams) []byte {
	dst = append(append(append(dst, `"id":"`...), p.ID...), `","type":"message","role":"assistant","model":`...)
	return append(scan.Quote(dst, p.Model), `,"content":[`...)
}

// appendCounts appends the members of a usage object: no token is in two of them. Unknown usage is an estimate.
func appendCounts(dst []byte, u *usage.Vector, p *protocol.AnswerParams) []byte {
	if u == nil {
		u = &usage.Vector{usage.Input: p.Prompt}
	}
	cached, written := u[usage.Cached], u[usage.CacheWrite]
	dst = strconv.AppendInt(append(dst, `"input_tokens":`...), u.Prompt()-cached-written, 10)
	dst = strconv.AppendInt(append(dst, `,"cache_creation_input_tokens":`...), written, 10)
	dst = strconv.AppendInt(append(dst, `,"cache_read_input_tokens":`...), cached, 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens":`...), u.Generated(), 10)
	dst = strconv.AppendInt(append(dst, `,"output_tokens_details":{"thinking_tokens":`...), u[usage.Reasoning], 10)
	return append(dst, '}')
}

// standard is the tier of every answer here: Messages' own tiers are not offered.
const standard = `,"service_tier":"standard"`
