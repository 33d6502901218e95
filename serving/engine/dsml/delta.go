package dsml

import (
	"strconv"

	"millrace/serving/engine/scan"
)

// delta writes pieces as the members of a Chat Completions delta. Pieces come in the order of their kinds, so that each
// text is one string.
type delta struct {
	dst       []byte
	open      Kind // what is being written
	any       bool // something is
	inText    bool // a string is
	calls     bool // the list of calls is
	reasoning int  // bytes of reasoning
	size      int  // bytes of everything
}

func (d *delta) add(pieces []Piece) {
	for i := range pieces {
		p := &pieces[i]
		d.size += len(p.Text) + len(p.Name)
		if p.Kind == Reasoning {
			d.reasoning += len(p.Text)
		}
		switch p.Kind {
		case CallBegin:
			d.call(p.Call)
			d.dst = appendString(append(d.dst, `,"id":`...), p.ID)
			d.dst = appendString(append(d.dst, `,"type":"function","function":{"name":`...), p.Name)
			d.dst = append(d.dst, `,"arguments":"`...)
		case CallText:
			if !d.calls {
				d.call(p.Call)
				d.dst = append(d.dst, `,"function":{"arguments":"`...)
			}
		default:
			d.text(p.Kind)
		}
		d.dst = appendInside(d.dst, p.Text)
	}
}

// text opens a text, unless it is open.
func (d *delta) text(k Kind) {
	if d.inText && d.open == k {
		return
	}
	d.end()
	if d.any {
		d.dst = append(d.dst, ',')
	}
	d.any, d.inText, d.open = true, true, k
	if k == Reasoning {
		d.dst = append(d.dst, `"reasoning_content":"`...)
	} else {
		d.dst = append(d.dst, `"content":"`...)
	}
}

// call opens a call's element up to its index.
func (d *delta) call(index int) {
	if d.calls {
		d.dst = append(d.dst, `"}},{"index":`...)
	} else {
		d.end()
		if d.any {
			d.dst = append(d.dst, ',')
		}
		d.any, d.calls = true, true
		d.dst = append(d.dst, `"tool_calls":[{"index":`...)
	}
	d.dst = strconv.AppendInt(d.dst, int64(index), 10)
}

// end closes what is open.
func (d *delta) end() {
	switch {
	case d.calls:
		d.dst = append(d.dst, `"}}]`...)
	case d.inText:
		d.dst = append(d.dst, '"')
	}
	d.inText, d.calls = false, false
}

func (d *delta) close() []byte {
	d.end()
	return append(d.dst, '}')
}

// tokens counts the tokens of reasoning, where the engine tells with every chunk how many tokens it has generated. A chunk
// that holds the end of the thoughts is split by the lengths of its texts.
type tokens struct {
	ok        bool  // every chunk so far told
	seen      int64 // tokens generated so far
	reasoning int64
}

// add takes in a chunk: count is the engine's count, -1 = none; before and after say whether the model thought before the
// chunk and still does behind it.
func (t *tokens) add(count int64, reasoning, size int, before, after bool) {
	if count < t.seen {
		t.ok = t.ok && size == 0
		return
	}
	n := count - t.seen
	t.seen = count
	switch {
	case !before:
	case after || size == 0 || reasoning == size:
		t.reasoning += n
	default:
		t.reasoning += (n*int64(reasoning) + int64(size) - 1) / int64(size)
	}
}

// appendUsage appends the engine's usage, with the tokens of reasoning where they are known and it does not tell itself.
func (t *tokens) appendUsage(dst, usage []byte) []byte {
	if !t.ok || t.seen == 0 || len(usage) < 2 || usage[0] != '{' || member(usage, "completion_tokens_details") != nil {
		return append(dst, usage...)
	}
	m := scan.Object(usage)
	dst = append(dst, '{')
	for m.Next() {
		if string(m.Key) != "completion_tokens_details" {
			dst = append(append(dst, usage[m.Start:m.End]...), ',')
		}
	}
	dst = strconv.AppendInt(append(dst, `"completion_tokens_details":{"reasoning_tokens":`...), t.reasoning, 10)
	return append(dst, "}}"...)
}

func completionTokens(usage []byte) int64 {
	if n, err := strconv.ParseInt(string(member(usage, "completion_tokens")), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}
