package protocol

import (
	"bytes"
	"strconv"

	"millrace/serving/engine/scan"
	"millrace/serving/protocol/field"
)

// call is one tool call of a choice in the making. Names and arguments are insides of JSON strings.
type call struct {
	index     int // the engine's
	id        []byte
	name      []byte // of engines that give it in pieces: those that came
	whole     bool   // the name is: its arguments have begun, or another call
	args      []byte // all of them; in a stream only those not shown yet
	place     int    // among the calls that have a name, in the order in which they got it; -1 = it has none
	announced bool   // streamed: id and name were shown
	custom    *CustomInput
}

// calls are the tool calls of one choice, in the order in which they began. Engines leave out indexes, repeat ids and
// names, or use one index twice; clients break on each of these.
type calls struct {
	list  []call
	last  int
	named int // calls that have a name
}

// reset forgets the calls and keeps some memory.
func (c *calls) reset() calls { return calls{list: c.list[:0]} }

// maxCalls bounds the tool calls of one choice.
const maxCalls = 1024

// piece is one element of a delta's tool_calls: insides of strings, nil where there is none.
type piece struct {
	index          int // -1 = none
	id, name, args []byte
}

func (p *piece) parse(raw []byte) bool {
	*p = piece{index: -1}
	m := scan.Object(raw)
	for m.Next() {
		switch string(m.Key) {
		case "index":
			if n, err := strconv.Atoi(string(m.Value)); err == nil {
				p.index = n
			}
		case "id":
			p.id = field.Inside(m.Value)
		case "function":
			f := scan.Object(m.Value)
			for f.Next() {
				switch {
				case string(f.Key) == "name":
					p.name = field.Inside(f.Value)
				case string(f.Key) != "arguments" || field.IsNull(f.Value):
				case f.Value[0] == '"':
					p.args = field.Inside(f.Value)
				default: // an object where a string belongs
					p.args = field.Inside(scan.Quote(nil, string(f.Value)))
				}
			}
			if f.Err() != nil && !field.IsNull(m.Value) {
				return false
			}
		}
	}
	return m.Err() == nil
}

// add takes in a delta's tool_calls and tells each call that changed.
func (c *calls) add(raw []byte, changed func(position int)) bool {
	e := scan.Array(raw)
	for n := 0; e.Next(); n++ {
		var p piece
		if !p.parse(e.Value) {
			return false
		}
		i := c.find(&p, n)
		if i < 0 {
			return false
		}
		if last := c.last; last != i && !c.list[last].whole {
			c.list[last].whole = true
			changed(last)
		}
		k := &c.list[i]
		if len(k.id) == 0 {
			k.id = append(k.id, p.id...)
		}
		if len(k.name) == 0 && len(p.name) > 0 {
			k.place = c.named
			c.named++
		}
		k.addName(p.name)
		k.args = append(k.args, p.args...)
		k.whole = k.whole || len(k.name) > 0 && len(k.args) > 0
		c.last = i
		changed(i)
	}
	return e.Err() == nil
}

// addName takes in what came of a name: its next piece, or again all that there is of it.
func (k *call) addName(p []byte) {
	switch {
	case len(k.name) == 0 || !k.whole && bytes.HasPrefix(p, k.name):
		k.name = append(k.name[:0], p...)
	case !k.whole:
		k.name = append(k.name, p...)
	}
}

// find gives the position of the call that piece n of a delta belongs to, a new one when it begins one; -1 = too many.
func (c *calls) find(p *piece, n int) int {
	at := -1
	for i := range c.list {
		if p.index >= 0 && c.list[i].index == p.index {
			at = i // the latest with this index
		}
	}
	if p.index < 0 && len(c.list) > 0 && (n == 0 || len(p.name) == 0) {
		at = c.last
	}
	if at >= 0 && (len(p.id) == 0 || len(p.name) == 0 || len(c.list[at].id) == 0 || string(p.id) == string(c.list[at].id)) {
		return at // another id begins a call only when it brings a name
	}
	if len(c.list) == maxCalls {
		return -1
	}
	c.list = append(c.list, call{index: p.index, place: -1})
	return len(c.list) - 1
}

// appendID appends a call's id, made up from the answer's when the engine gave none.
func (k *call) appendID(dst []byte, answer string, choice int) []byte {
	if len(k.id) > 0 {
		return append(dst, k.id...)
	}
	dst = append(append(dst, "call_"...), answer[max(len(answer)-24, 0):]...)
	dst = strconv.AppendInt(append(dst, '_'), int64(choice), 10)
	return strconv.AppendInt(append(dst, '_'), int64(k.place), 10)
}

// appendHead appends a call's opening members: id, type, and its name up to the opening quote of its arguments or input.
func (k *call) appendHead(dst []byte, answer string, choice int) []byte {
	dst = k.appendID(append(dst, `"id":"`...), answer, choice)
	if k.custom != nil {
		dst = append(append(dst, `","type":"custom","custom":{"name":"`...), k.name...)
		return append(dst, `","input":"`...)
	}
	dst = append(append(dst, `","type":"function","function":{"name":"`...), k.name...)
	return append(dst, `","arguments":"`...)
}
