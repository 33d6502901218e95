package responses

import (
	"strconv"
	"strings"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol"
	"millrace/serving/protocol/field"
)

// Prefixes of ids.
const (
	ResponsePrefix  = "resp_"
	reasoningPrefix = "rs_"
	messagePrefix   = "msg_"
	callPrefix      = "fc_"
	customPrefix    = "ctc_"
)

// form is how a part of an answer looks as an item.
type form struct {
	answer  string // the response's id without its prefix
	request *Request
	seal    *protocol.ReasoningSeal

	called bool // a call was shown
	hidden int  // parts that are no items
}

// item gives the place of part i among the items; false = it is none: a further call where the client wants one at a time.
// It is asked once for each part, in their order.
func (f *form) item(i int, p *protocol.Part) (at int, shown bool) {
	if p.Kind == protocol.Call {
		if f.called && string(f.request.parallel) == "false" {
			f.hidden++
			return 0, false
		}
		f.called = true
	}
	return i - f.hidden, true
}

func newForm(a *Answers, p *protocol.AnswerParams) form {
	return form{answer: strings.TrimPrefix(p.ID, ResponsePrefix), request: a.Request, seal: a.Seal}
}

// custom reports whether a part is a call of a custom tool.
func (f *form) custom(p *protocol.Part) bool {
	t := f.tool(p)
	return t != nil && t.custom
}

func (f *form) tool(p *protocol.Part) *tool {
	if p.Kind != protocol.Call || len(f.request.tools.list) == 0 {
		return nil
	}
	return f.request.tools.byFlat(string(scan.Unquote(nil, p.Name)))
}

// appendID appends the id of part i: it names its response, so that a kept item can be found by it.
func (f *form) appendID(dst []byte, i int, p *protocol.Part) []byte {
	prefix := messagePrefix
	switch {
	case p.Kind == protocol.Reasoning:
		prefix = reasoningPrefix
	case p.Kind == protocol.Call && f.custom(p):
		prefix = customPrefix
	case p.Kind == protocol.Call:
		prefix = callPrefix
	}
	dst = append(append(append(dst, prefix...), f.answer...), '_')
	return strconv.AppendInt(dst, int64(i), 10)
}

// appendItem appends a part as an item that is in progress, and so holds nothing yet, or has ended.
func (f *form) appendItem(dst []byte, i int, p *protocol.Part, status string) []byte {
	dst = append(f.appendID(append(dst, `{"id":"`...), i, p), `","type":"`...)
	begun := status == InProgress
	switch p.Kind {
	case protocol.Reasoning:
		return f.appendReasoning(dst, p, begun)
	case protocol.Call:
		return f.appendCall(dst, p, status)
	}
	dst = append(append(append(dst, `message","status":"`...), status...), `","role":"assistant","content":[`...)
	if !begun {
		dst = f.appendPart(dst, p, p.Text)
	}
	return append(dst, `]}`...)
}

func (f *form) appendReasoning(dst []byte, p *protocol.Part, begun bool) []byte {
	dst = append(dst, `reasoning","summary":[`...)
	if begun {
		return append(dst, `]}`...)
	}
	if f.request.Content {
		dst = append(append(append(dst, `],"content":[{"type":"reasoning_text","text":"`...), p.Text...), `"}]`...)
	} else {
		dst = append(append(append(dst, `{"type":"summary_text","text":"`...), p.Text...), `"}]`...)
	}
	if f.request.Encrypted && f.seal != nil {
		dst = append(f.seal.Append(append(dst, `,"encrypted_content":"`...), p.Text), '"')
	}
	return append(dst, '}')
}

func (f *form) appendCall(dst []byte, p *protocol.Part, status string) []byte {
	t := f.tool(p)
	kind, argument := "function_call", "arguments"
	if t != nil && t.custom {
		kind, argument = "custom_tool_call", "input"
	}
	dst = append(append(append(dst, kind...), `","status":"`...), status...)
	dst = append(append(append(dst, `","call_id":"`...), p.ID...), `","name":`...)
	dst = f.appendName(dst, p, t)
	dst = append(append(append(dst, `,"`...), argument...), `":"`...)
	if status != InProgress {
		dst = append(dst, f.argument(p, t)...)
	}
	return append(dst, `"}`...)
}

// appendName appends the client's name of a tool, and its namespace.
func (f *form) appendName(dst []byte, p *protocol.Part, t *tool) []byte {
	if t == nil {
		return append(append(append(dst, '"'), p.Name...), '"')
	}
	dst = scan.Quote(dst, t.name)
	if t.namespace != "" {
		dst = scan.Quote(append(dst, `,"namespace":`...), t.namespace)
	}
	return dst
}

// argument is what a call was given: the inside of a string.
func (f *form) argument(p *protocol.Part, t *tool) []byte {
	if t == nil || !t.custom {
		return p.Text
	}
	return protocol.InputOf(p.Text)
}

// appendPart appends a message's content part.
func (f *form) appendPart(dst []byte, p *protocol.Part, text []byte) []byte {
	if p.Kind == protocol.Refusal {
		return append(append(append(dst, `{"type":"refusal","refusal":"`...), text...), `"}`...)
	}
	dst = append(append(append(dst, `{"type":"output_text","text":"`...), text...), `","annotations":[],"logprobs":[`...)
	if f.request.Logprobs && len(text) > 0 {
		dst = appendLogprobs(dst, p.Logprobs)
	}
	return append(dst, `]}`...)
}

var logprobMembers = []string{"token", "logprob", "bytes", "top_logprobs"}

// appendLogprobs appends elements of a list as this API has them: bytes are never null.
func appendLogprobs(dst, elements []byte) []byte {
	list := append(append([]byte{'['}, elements...), ']')
	e, first := scan.Array(list), true
	for e.Next() {
		var f [4][]byte
		if field.Read(e.Value, logprobMembers, f[:], func([]byte) {}) != nil || !field.IsString(f[0]) || f[1] == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendLogprob(dst, f)
		dst = append(dst, `,"top_logprobs":[`...)
		if field.IsArray(f[3]) {
			top, firstTop := scan.Array(f[3]), true
			for top.Next() {
				var t [4][]byte
				if field.Read(top.Value, logprobMembers, t[:], func([]byte) {}) != nil || !field.IsString(t[0]) || t[1] == nil {
					continue
				}
				if !firstTop {
					dst = append(dst, ',')
				}
				firstTop = false
				dst = append(appendLogprob(dst, t), '}')
			}
		}
		dst = append(dst, `]}`...)
	}
	return dst
}

func appendLogprob(dst []byte, f [4][]byte) []byte {
	dst = append(append(append(dst, `{"token":`...), f[0]...), `,"logprob":`...)
	dst = append(append(dst, f[1]...), `,"bytes":`...)
	if field.IsArray(f[2]) {
		return append(dst, f[2]...)
	}
	dst = append(dst, '[')
	for i, c := range scan.Unquote(nil, field.Inside(f[0])) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(c), 10)
	}
	return append(dst, ']')
}
