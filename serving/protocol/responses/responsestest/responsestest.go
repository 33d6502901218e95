// Package responsestest reads answers of the Responses API as the strictest client would, by what OpenAI's reference and the
// Open Responses specification say, and puts streams together, so that tests of every layer hold to the same rules. It
// shares no code with the writers of such answers.
package responsestest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Answer is what a client has after reading an answer.
type Answer struct {
	Response map[string]any // the last response object
	Status   string
	Items    []Item
	Usage    *Usage
	Error    map[string]any // of a stream: the error event
	Types    []string       // of a stream: the events' types in their order
}

// Item is an output item, with what of it counts.
type Item struct {
	Type, ID, Status    string
	Text, Refusal       string // of a message
	CallID, Name, Space string
	Argument            string // arguments or input
	Summary, Reasoning  string
	Encrypted           string
	Logprobs            []any
	raw                 map[string]any
}

// Usage is the usage object.
type Usage struct{ Input, Cached, Output, Reasoning, Total int64 }

type event struct {
	kind string
	data map[string]any
}

// Check reads a streamed answer, or says which rule it breaks first.
func Check(body []byte) (*Answer, error) {
	events, err := split(body)
	if err != nil {
		return nil, err
	}
	return Events(events...)
}

// split cuts a stream into its events' data, and compares each with its event line.
func split(body []byte) (list []json.RawMessage, err error) {
	blocks := bytes.Split(body, []byte("\n\n"))
	if n := len(blocks) - 1; len(blocks[n]) != 0 {
		return nil, fmt.Errorf("the stream does not end with an empty line: %q", blocks[n])
	}
	for _, b := range blocks[:len(blocks)-1] {
		if bytes.HasPrefix(b, []byte(":")) {
			continue // a comment
		}
		lines := strings.Split(string(b), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "event: ") || !strings.HasPrefix(lines[1], "data: ") {
			return nil, fmt.Errorf("no event line and data line: %q", b)
		}
		data := []byte(lines[1][len("data: "):])
		var head struct{ Type string }
		if err := json.Unmarshal(data, &head); err != nil {
			return nil, fmt.Errorf("%w: %q", err, data)
		}
		if head.Type != lines[0][len("event: "):] {
			return nil, fmt.Errorf("event line %q and type %q differ", lines[0], head.Type)
		}
		list = append(list, data)
	}
	return list, nil
}

// Events reads the events of one answer, as a WebSocket carries them.
func Events(list ...json.RawMessage) (*Answer, error) {
	r := reader{a: &Answer{}}
	for n, data := range list {
		e := event{}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(&e.data); err != nil {
			return r.a, fmt.Errorf("event %d: %w: %q", n, err, data)
		}
		e.kind, _ = e.data["type"].(string)
		r.a.Types = append(r.a.Types, e.kind)
		if got := e.data["sequence_number"]; got != json.Number(fmt.Sprint(n)) {
			return r.a, fmt.Errorf("event %d has sequence_number %v", n, got)
		}
		if r.ended {
			return r.a, fmt.Errorf("%s after the end", e.kind)
		}
		if err := r.take(&e); err != nil {
			return r.a, fmt.Errorf("event %d %s: %w", n, data, err)
		}
	}
	if !r.ended {
		return r.a, fmt.Errorf("the stream has no end")
	}
	return r.a, nil
}

// Whole reads an answer that was given whole.
func Whole(body []byte) (*Answer, error) {
	var response map[string]any
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(&response); err != nil {
		return nil, err
	}
	a := &Answer{Response: response}
	return a, a.readResponse(response)
}

// Same reports whether two answers say the same, whatever their ids and times.
func Same(a, b *Answer) bool {
	if a.Status != b.Status || !reflect.DeepEqual(a.Usage, b.Usage) || len(a.Items) != len(b.Items) {
		return false
	}
	for i := range a.Items {
		x, y := a.Items[i], b.Items[i]
		if (x.Encrypted == "") != (y.Encrypted == "") {
			return false
		}
		for _, p := range []*Item{&x, &y} {
			p.raw, p.ID, p.Encrypted = nil, "", ""
		}
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}
