package protocol

import (
	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// What the templates of some models do not take is said in another way. Engines say so by refusing a request, so the
// request is changed only then.

// FoldSystem says what system messages say that are not the first one's: in the user's turn beside them, and several at the
// begin as one. It reports whether there were any.
func (q *ChatRequest) FoldSystem() bool {
	list := field.Member(q.Body, "messages")
	f := folder{out: append(make([]byte, 0, len(list)), '['), begin: true}
	for e := scan.Array(list); e.Next(); {
		f.add(e.Value)
	}
	f.flush()
	if !f.changed {
		return false
	}
	from := offset(q.Body, list)
	q.Body = rewrite(q.Body, nil, []edit{{from, from + len(list), string(append(f.out, ']'))}})
	return true
}

// folder writes messages. A turn, of the system's at the begin or of a user's, is written when what follows is none of it.
type folder struct {
	out     []byte
	begin   bool     // nothing but system messages came
	raw     []byte   // the turn, where it is one message as it came
	turn    [][]byte // contents of the turn
	folded  bool     // a system message is among them
	changed bool
}

func (f *folder) add(message []byte) {
	role := string(field.Member(message, "role"))
	content := field.Member(message, "content")
	switch {
	case role == `"system"` && f.begin:
		f.raw, f.turn, f.changed = message, append(f.turn, content), len(f.turn) > 0
		return
	case role == `"system"`:
		f.turn, f.folded, f.changed = append(f.turn, content), true, true
		return
	case role == `"user"` && f.folded && !f.begin:
		f.turn = append(f.turn, content)
		return
	}
	f.flush()
	f.begin = false
	if role == `"user"` {
		f.raw, f.turn = message, append(f.turn, content)
		return
	}
	f.write(message)
}

func (f *folder) write(message []byte) {
	if len(f.out) > 1 {
		f.out = append(f.out, ',')
	}
	f.out = append(f.out, message...)
}

func (f *folder) flush() {
	switch {
	case len(f.turn) == 0:
	case len(f.turn) == 1 && !f.folded:
		f.write(f.raw)
	case f.begin:
		f.write(appendContents([]byte(`{"role":"system","content":`), f.turn))
	default:
		f.write(appendContents([]byte(`{"role":"user","content":`), f.turn))
	}
	f.turn, f.folded = f.turn[:0], false
}

// appendContents joins contents, texts or arrays of parts, and ends the message.
func appendContents(dst []byte, contents [][]byte) []byte {
	parts := false
	for _, c := range contents {
		parts = parts || field.IsArray(c)
	}
	if !parts {
		dst = append(dst, '"')
		for i, c := range contents {
			if i > 0 {
				dst = append(dst, `\n\n`...)
			}
			dst = append(dst, field.Inside(c)...)
		}
		return append(dst, `"}`...)
	}
	var list []byte
	for _, c := range contents {
		if field.IsString(c) {
			c = append(append([]byte(`[{"type":"text","text":`), c...), `}]`...)
		}
		list = appendElements(list, c)
	}
	return append(append(append(dst, '['), list...), `]}`...)
}

// FillReasoning gives every message of the assistant's that has no reasoning an empty one. It reports whether there were any.
func (q *ChatRequest) FillReasoning() bool {
	var edits []edit
	for e := scan.Array(field.Member(q.Body, "messages")); e.Next(); {
		if string(field.Member(e.Value, "role")) != `"assistant"` || field.Member(e.Value, "reasoning_content") != nil {
			continue
		}
		end := offset(q.Body, e.Value) + len(e.Value) - 1 // an object with a role: after a null of that name, and so in its place
		edits = append(edits, edit{end, end, `,"reasoning_content":""`})
	}
	if edits == nil {
		return false
	}
	q.Body = rewrite(q.Body, nil, edits)
	return true
}
