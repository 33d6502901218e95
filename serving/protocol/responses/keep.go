package responses

import (
	"strconv"
	"strings"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// idPrefixes are of the ids that kept items get.
var idPrefixes = map[string]string{"message": messagePrefix, "reasoning": reasoningPrefix, "function_call": callPrefix, "function_call_output": "fco_",
	"custom_tool_call": customPrefix, "custom_tool_call_output": "ctco_", "compaction": compactionPrefix}

const compactionPrefix = "cmp_"

const maxItemID = 1024 // bytes of an id that a client gives

// keep adds an item to what is kept of the input.
func (d *dialogue) keep(raw []byte) error {
	if d.before.Keep == "" {
		return nil
	}
	if id := Text(Member(raw, "id")); len(id) > maxItemID || strings.Contains(id, "\x00") {
		return field.Invalid("id", "The id of an item has at most %d bytes, and no NUL among them.", maxItemID)
	}
	kept := d.q.Kept
	if len(kept) == 0 {
		kept = append(kept, '[')
	} else {
		kept[len(kept)-1] = ','
	}
	d.q.Kept = append(appendKept(kept, raw, d.before.Keep+"_in"+strconv.Itoa(d.item)), ']')
	return nil
}

// KeepItems gives items as they are kept, or says what is wrong with one. Each gets an id that ends in suffix and its place.
func KeepItems(list []byte, suffix string, c *Context) ([]byte, error) {
	in := *c
	in.Keep = suffix
	q := &Request{}
	d := dialogue{q: q, before: &in, loose: true}
	if !field.IsArray(list) {
		return nil, field.WantType("items", "an array of items")
	}
	if err := d.items(list, true); err != nil {
		return nil, err
	}
	return q.Kept, nil
}

// appendKept appends an item with what a list of items shows of each: id, type and status, a message's content as parts.
func appendKept(dst, raw []byte, suffix string) []byte {
	var f [4][]byte
	if field.Read(raw, []string{"id", "type", "role", "status"}, f[:], func([]byte) {}) != nil {
		return append(dst, "null"...)
	}
	kind := field.Text(f[1])
	if kind == "" {
		kind = "message"
	}
	dst = append(dst, `{"id":`...)
	if field.IsString(f[0]) && len(f[0]) > len(`""`) {
		dst = append(dst, f[0]...)
	} else {
		prefix, known := idPrefixes[kind]
		if !known {
			prefix = "item_"
		}
		dst = scan.Quote(dst, prefix+suffix)
	}
	dst = scan.Quote(append(dst, `,"type":`...), kind)
	if f[3] == nil && kind != "reasoning" && kind != "compaction" {
		dst = append(dst, `,"status":"completed"`...)
	}
	m := scan.Object(raw)
	for m.Next() {
		switch name := string(m.Key); {
		case name == "id" || name == "type":
		case name == "content" && kind == "message" && field.IsString(m.Value):
			part := "input_text"
			if field.Text(f[2]) == "assistant" {
				part = "output_text"
			}
			dst = append(append(append(dst, `,"content":[{"type":"`...), part...), `","text":`...)
			if dst = append(dst, m.Value...); part == "output_text" {
				dst = append(dst, `,"annotations":[],"logprobs":[]`...)
			}
			dst = append(dst, `}]`...)
		default:
			dst = append(append(dst, ','), raw[m.Start:m.End]...)
		}
	}
	return append(dst, '}')
}

// Elements are the elements of an array.
func Elements(array []byte) (list [][]byte) {
	e := scan.Array(array)
	for e.Next() {
		list = append(list, e.Value)
	}
	return list
}

// Member is a member of an object, raw; nil = absent or null.
func Member(object []byte, name string) []byte { return field.Member(object, name) }

// Text is a string of JSON decoded, "" for anything else.
func Text(raw []byte) string { return field.Text(raw) }

// WithStatus gives a response object another status, and an error where there is one.
func WithStatus(object []byte, status string, err []byte) []byte {
	out := append(make([]byte, 0, len(object)+len(err)+32), '{')
	m := scan.Object(object)
	for m.Next() {
		if len(out) > 1 {
			out = append(out, ',')
		}
		switch name := string(m.Key); {
		case name == "status":
			out = scan.Quote(append(out, `"status":`...), status)
		case name == "error" && err != nil:
			out = append(append(out, `"error":`...), err...)
		default:
			out = append(out, object[m.Start:m.End]...)
		}
	}
	return append(out, '}')
}

// ErrorOf is the error of a response object for an error frame of the pipeline.
func ErrorOf(frame []byte) []byte {
	f := readFrame(frame)
	return f.appendError(nil)
}
