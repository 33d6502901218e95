package responsestest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// reader is the state of a strict client.
type reader struct {
	a     *Answer
	step  int // 0 = nothing came, 1 = created, 2 = in progress
	ended bool
	id    string
	done  []any // items as they were when done

	open  *Item // the item between added and done
	text  strings.Builder
	part  int // of the open item: 0 = no part yet, 1 = open, 2 = its text is done, 3 = closed
	probs []any
}

func (r *reader) take(e *event) error {
	switch e.kind {
	case "response.created", "response.queued", "response.in_progress":
		return r.begin(e)
	case "error":
		return r.failure(e)
	}
	if r.step != 2 && e.kind != "response.failed" {
		return fmt.Errorf("before response.in_progress")
	}
	if r.a.Error != nil && e.kind != "response.failed" {
		return fmt.Errorf("after the error event")
	}
	switch e.kind {
	case "response.completed", "response.incomplete", "response.failed":
		return r.end(e)
	case "response.output_item.added":
		return r.added(e)
	}
	if r.open == nil {
		return fmt.Errorf("no item is open")
	}
	if e.data["output_index"] != json.Number(fmt.Sprint(len(r.done))) {
		return fmt.Errorf("output_index is not that of the open item, %d", len(r.done))
	}
	if e.kind == "response.output_item.done" {
		return r.itemDone(e)
	}
	if e.data["item_id"] != r.open.ID {
		return fmt.Errorf("item_id is not that of the open item, %s", r.open.ID)
	}
	return r.inside(e)
}

func (r *reader) begin(e *event) error {
	response, _ := e.data["response"].(map[string]any)
	if err := r.a.readResponse(response); err != nil {
		return err
	}
	id, _ := response["id"].(string)
	switch want := map[string]int{"response.created": 0, "response.queued": 1, "response.in_progress": 1}[e.kind]; {
	case r.step != want:
		return fmt.Errorf("out of order")
	case len(r.a.Items) > 0 || r.a.Usage != nil:
		return fmt.Errorf("a response that has only begun has output")
	case r.id != "" && id != r.id || !strings.HasPrefix(id, "resp_"):
		return fmt.Errorf("id %q", id)
	case e.kind == "response.in_progress" && r.a.Status != "in_progress":
		return fmt.Errorf("status %s", r.a.Status)
	default:
		r.id = id
	}
	if e.kind != "response.queued" {
		r.step++
	}
	return nil
}

func (r *reader) failure(e *event) error {
	inner, _ := e.data["error"].(map[string]any)
	if err := has(inner, map[string]rule{"type": isText, "code": orNull(isText), "message": isText, "param": orNull(isText)}); err != nil {
		return err
	}
	if err := has(e.data, map[string]rule{"code": orNull(isText), "message": isText, "param": orNull(isText)}); err != nil {
		return err
	}
	r.a.Error = inner
	return nil
}

func (r *reader) end(e *event) error {
	response, _ := e.data["response"].(map[string]any)
	if err := r.a.readResponse(response); err != nil {
		return err
	}
	failed := e.kind == "response.failed"
	switch {
	case "response."+r.a.Status != e.kind:
		return fmt.Errorf("status %s", r.a.Status)
	case response["id"] != r.id:
		return fmt.Errorf("id %v, not %s", response["id"], r.id)
	case r.open != nil && !failed:
		return fmt.Errorf("the item %s was never done", r.open.ID)
	case failed && r.a.Error == nil:
		return fmt.Errorf("no error event before it")
	}
	r.ended = true
	output := response["output"].([]any)
	if len(output) != len(r.done) || len(output) > 0 && !reflect.DeepEqual(output, r.done) {
		return fmt.Errorf("output differs from the items that were done: %v, %v", output, r.done)
	}
	return nil
}

func (r *reader) added(e *event) error {
	if r.open != nil {
		return fmt.Errorf("the item %s is open", r.open.ID)
	}
	if e.data["output_index"] != json.Number(fmt.Sprint(len(r.done))) {
		return fmt.Errorf("output_index is not %d", len(r.done))
	}
	item, err := readItem(e.data["item"])
	if err != nil {
		return err
	}
	if item.Type != "reasoning" && item.Status != "in_progress" || item.Text+item.Refusal+item.Argument+item.Summary+item.Reasoning != "" {
		return fmt.Errorf("an item that begins with something in it, or not in progress")
	}
	if content, ok := item.raw["content"].([]any); ok && len(content) > 0 {
		return fmt.Errorf("an item that begins with parts")
	}
	for _, d := range r.done {
		if d.(map[string]any)["id"] == item.ID {
			return fmt.Errorf("the id %s comes again", item.ID)
		}
	}
	r.open, r.part, r.probs = &item, 0, nil
	r.text.Reset()
	return nil
}

// kinds are the events inside of items.
var kinds = map[string]struct {
	item, index, member string // member: of the done event
	part                bool   // text stands in a part of its own
}{
	"response.output_text":             {"message", "content_index", "text", true},
	"response.refusal":                 {"message", "content_index", "refusal", true},
	"response.reasoning_summary_text":  {"reasoning", "summary_index", "text", true},
	"response.reasoning_text":          {"reasoning", "content_index", "text", false},
	"response.function_call_arguments": {"function_call", "", "arguments", false},
	"response.custom_tool_call_input":  {"custom_tool_call", "", "input", false},
	"response.content_part":            {"message", "content_index", "part", true},
	"response.reasoning_summary_part":  {"reasoning", "summary_index", "part", true},
}

func (r *reader) inside(e *event) error {
	at := strings.LastIndexByte(e.kind, '.')
	what, step := e.kind[:at], e.kind[at+1:]
	k, known := kinds[what]
	switch {
	case !known:
		return fmt.Errorf("an event that nobody knows")
	case k.item != r.open.Type:
		return fmt.Errorf("of a %s in a %s", k.item, r.open.Type)
	case k.index != "" && e.data[k.index] != json.Number("0"):
		return fmt.Errorf("%s is %v", k.index, e.data[k.index])
	}
	if k.member == "part" {
		return r.partEvent(e, step)
	}
	before := 0 // what has no parts may come at once
	if k.part {
		before = 1
	}
	if r.part != before {
		return fmt.Errorf("its part is not open")
	}
	switch step {
	case "delta":
		text, ok := e.data["delta"].(string)
		if !ok || text == "" {
			return fmt.Errorf("a delta without text")
		}
		r.text.WriteString(text)
		return r.takeLogprobs(e, what)
	case "done":
		r.part = 2
		if e.data[k.member] != r.text.String() {
			return fmt.Errorf("%s is not what the deltas came to, %q", k.member, r.text.String())
		}
		return nil
	}
	return fmt.Errorf("an event that nobody knows")
}

func (r *reader) takeLogprobs(e *event, what string) error {
	if what != "response.output_text" {
		return nil
	}
	list, ok := e.data["logprobs"].([]any)
	if !ok {
		return fmt.Errorf("no logprobs")
	}
	r.probs = append(r.probs, list...)
	return checkLogprobs(list)
}

func (r *reader) partEvent(e *event, step string) error {
	part, _ := e.data["part"].(map[string]any)
	text, _ := part["text"].(string)
	if refusal, ok := part["refusal"].(string); ok {
		text = refusal
	}
	switch {
	case step == "added" && r.part == 0 && text == "":
		r.part = 1
	case step == "done" && r.part == 2 && text == r.text.String():
		r.part = 3
	default:
		return fmt.Errorf("a part out of order, or not what its deltas came to")
	}
	if r.open.Type == "message" {
		return new(Item).part(part)
	}
	if part["type"] != "summary_text" {
		return fmt.Errorf("a part of type %v", part["type"])
	}
	return nil
}

func (r *reader) itemDone(e *event) error {
	item, err := readItem(e.data["item"])
	if err != nil {
		return err
	}
	said := item.Text + item.Refusal + item.Argument + item.Summary + item.Reasoning
	switch {
	case item.ID != r.open.ID || item.Type != r.open.Type || item.Name != r.open.Name || item.CallID != r.open.CallID || item.Space != r.open.Space:
		return fmt.Errorf("another item than was added")
	case said != r.text.String():
		return fmt.Errorf("the item says %q, its deltas %q", said, r.text.String())
	case r.part < 2:
		return fmt.Errorf("its text was never done")
	case (item.Type == "message" || item.Summary != "") && r.part != 3:
		return fmt.Errorf("its part was never closed")
	case item.Status == "in_progress":
		return fmt.Errorf("it is still in progress")
	case len(item.Logprobs) != len(r.probs) || len(r.probs) > 0 && !reflect.DeepEqual(item.Logprobs, r.probs):
		return fmt.Errorf("logprobs differ from those of the deltas")
	}
	r.done = append(r.done, e.data["item"])
	r.open = nil
	return nil
}
